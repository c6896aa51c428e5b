// What a walk over a page needs in it: the acts that are possible now, each act, and what the page says.

// What the page shows by design without its address saying so. All else is a function of the address.
const EXCEPT = [
  ".menu", // "Copied." and the open menu of a figure
  "dialog", // the list of keys
  ".mark-tip, .mark-ring, [role=grid] > [role=row]", // where the pointer or the keyboard is
  ".choice-top p:has(> .button)", // the way back from a token that was chosen
  ".game", // the reader's guess
];
const UNTOLD = /^(style|class|tabindex|id|aria-activedescendant|font-family)$/;

globalThis.walk = (() => {
  const visible = (node) => node.checkVisibility({ visibilityProperty: true });
  const nameOf = (node) => `${node.localName} ${(node.ariaLabel ?? node.textContent).trim().slice(0, 60)}`;
  const KINDS = {
    press: "button, summary, a[href^='#'], input[type=checkbox], input[type=radio]",
    slide: "input[type=range]",
    fill: "input[type=number], input[inputmode]",
    select: "select",
    write: "textarea",
    point: ".mark > [tabindex]",
    key: ".mark > [tabindex], button, input, body",
  };
  const all = (kind) => [...document.querySelectorAll(KINDS[kind])].filter((node) => visible(node) && !node.disabled);

  const KEYS = [..."?/,.hHbBsxXudl+-0 ", "Enter", "Escape", "Backspace", "Tab", "Home", "End", "ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown"];
  const WRITTEN = [
    ...["a", " ha", "[MASK]", "bc\n", "👩\u200d👧", "漢字"].map((text) => ["more", text]),
    ["half", ""],
    ...[1, 5].map((letters) => ["delete", letters]),
    ...["", "abc\nha b", "abcd efgh ".repeat(40)].map((text) => ["whole", text]),
  ];
  const ADDRESSES = [
    ...["", "text=", "text=%ff%E2", "b=99&h=-3&p=99&s=none", "n=1&b=1&h=1", "n=0&b=1&h=2", "n=4", "n=99", "i=1.2.3", "i=a"],
    ...["t=99&k=0&q=2&m=-1", "t=0&k=3&q=0.5&m=0.1", "u=0.5&r=7", "f=heads", "f=lens", "f=none", "c=dark&l=pt", "d=change length"],
    ...["o=logits:0.0.99", "o=blocks.0.attn.z:0.1.2.0", "o=logits:0.1.3:1.0", "e=[{", "text=ab&e=[null]", "rather=3.99&terms=1"],
    ...["w=2&j=1&number=1", "w=9&j=99", "g=1", "g=3", "g=4.done", "g=99", "v=1", "n=1&v=0", "n=5&a=10", "a=14", "a=12"],
    ...["x=", "x=abc ha d&z=head", "x=%00&z=head", "x=ab&y=1.2&text=bc", "text=abc&x=bca&y=99.1", "few=32&long=30&more=5", "long=9&beam=2.4", "beam=9.9", "hide=2", "text=abc ha&hide=1.3", "text=a[MASK]c&p=1", "source=", "source=abc&text=a&cross=1.0", "cross=9.9"],
    'e=[{"at":"embed","do":"patch","from":"abc ha b"}]',
    'e=[{"at":"embed","do":"scale","factor":1e300}]',
    'e=[{"at":"blocks.0.attn.out","do":"zero"},{"at":"blocks.1.attn.out","do":"zero"}]',
  ];
  const WIDTHS = [320, 390, 600, 768, 1024, 1280, 1400];
  /** How often each kind of act is done. */
  const WEIGHTS = { press: 8, write: 3, point: 5, key: 5, slide: 3, fill: 1, select: 1, back: 4, forward: 2, address: 2, resize: 1 };
  const one = (list, share) => list[Math.floor(share * list.length)];

  /** An act that is possible now, by three numbers from 0 to below 1: what kind, of what, how. A second thing of a name is "NAME #2". */
  function chosen(kindAt, whichAt, howAt) {
    const targets = (kind) => {
      const times = {};
      if (kind === "back" || kind === "forward") return navigation[kind === "back" ? "canGoBack" : "canGoForward"] ? [""] : [];
      return kind in KINDS ? all(kind).map((node) => [nameOf(node), (times[nameOf(node)] = (times[nameOf(node)] ?? 0) + 1)].join(" #")) : [""];
    };
    const kinds = Object.entries(WEIGHTS).flatMap(([kind, times]) => (targets(kind).length ? Array(times).fill(kind) : []));
    const kind = one(kinds, kindAt);
    const given = { fill: ["3", "-1", "1e99", ""], write: WRITTEN, key: KEYS, address: ADDRESSES, resize: WIDTHS }[kind];
    return [kind, one(targets(kind), whichAt), given ? one(given, howAt) : kind === "point" ? [howAt, (7 * howAt) % 1] : howAt];
  }

  const tell = (node, ...types) => types.forEach((type) => node.dispatchEvent(new Event(type, { bubbles: true })));

  /** Does an act where its target is still there; a pointer and keys are the caller's: their place, or true. */
  function act(kind, target, given) {
    if (kind === "back" || kind === "forward") return void (navigation[kind === "back" ? "canGoBack" : "canGoForward"] && history[kind]());
    if (kind === "address") return void (location.hash = given);
    const [name, nth] = target.split(" #");
    const node = all(kind).filter((each) => nameOf(each) === name)[nth - 1];
    if (!node) return false;
    switch (kind) {
      case "press":
        return void node.click();
      case "slide": {
        const [min, max, step] = [node.min, node.max, node.step || 1].map(Number);
        node.value = min + step * Math.round((given * (max - min)) / step);
        return tell(node, "input", "change");
      }
      case "fill":
        node.value = given;
        return tell(node, "input", "change");
      case "select":
        node.selectedIndex = Math.floor(given * node.options.length);
        return tell(node, "input", "change");
      case "write": {
        const [how, text] = given;
        node.value = how === "delete" ? node.value.slice(0, -text) : how === "whole" ? text : node.value + (how === "half" ? "\ud83d" : text);
        return tell(node, "input");
      }
      case "point": {
        node.scrollIntoView({ block: "center" });
        const box = node.getBoundingClientRect();
        return [box.left + given[0] * box.width, box.top + given[1] * box.height];
      }
      default:
        node.focus();
        return true;
    }
  }

  /** Puts away what the address does not say: the pointer's and the keyboard's place, the list of keys, the game of guessing. */
  function still() {
    document.querySelector("dialog[open] button")?.click();
    document.querySelector(".guessing #heads ~ p button")?.click();
    const playing = [...document.querySelectorAll(".worked .remark > .said, .film .controls > .button")];
    playing.filter((each) => /^pausa|^pause/.test(each.textContent)).forEach((each) => each.click());
  }

  /** All that is shown, line by line: texts, attributes, the values of controls, the pixels of pictures. */
  function said() {
    document.getElementById("film")?.scrollIntoView(); // frames are read where they are seen
    const lines = [];
    const visit = (node, depth) => {
      if (node.nodeType === Node.TEXT_NODE) return void (node.data.trim() && lines.push(" ".repeat(depth) + node.data.trim()));
      if (node.nodeType !== Node.ELEMENT_NODE || node.matches(EXCEPT.join()) || !visible(node)) return;
      const told = [...node.attributes].filter(({ name }) => !UNTOLD.test(name)).map(({ name, value }) => `${name}=${value}`).sort();
      if ("value" in node && node.localName !== "button") told.push(`now=${node.checked ?? ""}${node.value}`);
      if (node.localName === "canvas") told.push(pixels(node));
      lines.push(" ".repeat(depth) + [node.localName, ...told].join(" "));
      node.childNodes.forEach((each) => visit(each, depth + 1));
    };
    visit(document.body, 0);
    return lines;
  }

  let before = "";

  /** What has not come to rest yet. */
  function restless() {
    document.activeElement?.blur(); // a closed dialog gives the focus back
    const { shown, source, ids, edits, written } = vitralPage;
    const [now, told] = [shown.value, JSON.stringify(said())];
    const isStill = told === before;
    before = told;
    const asks = ids.value.length && source.value.given?.length !== 0 && (now || !document.querySelector(".page > [role=alert]"));
    const alerts = [...document.querySelectorAll("[role=alert]")].map((each) => each.textContent);
    const found = [
      asks && now?.from !== source.value && "the run",
      asks && now?.ids !== ids.value && "the sentence",
      asks && now?.edits !== edits.value && !edits.value.some((each) => each.columns) && "the changes", // of those with columns, a short sentence has some
      !isStill && "what is shown",
      document.querySelector("[aria-busy=true]") && "what is written",
      location.hash.slice(1) !== written() && `the address, ${location.hash}, not ${written()}`,
    ].filter(Boolean);
    return found.length ? [...found, ...alerts] : found;
  }

  function pixels(canvas) {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let made = 0;
    new Int32Array(data.buffer).forEach((each) => (made = (Math.imul(made, 31) + each) | 0));
    return made;
  }

  /** Rules that hold whatever was done, those that are broken. */
  function broken() {
    const { shown, edits } = vitralPage;
    const now = shown.value;
    const has = (what) => document.querySelector(what) !== null;
    const same = (what, one, other) => (one === other ? [] : [`${what}: ${one}, not ${other}`]);
    if (!now) return same("pictures without a sentence", document.querySelectorAll("section .mark").length, 0);
    const { about } = now.from;
    if (document.querySelector(".alone")) return [];
    const zero = (at, head) => edits.value.some((each) => each.at === at && each.do === "zero" && each.positions === "all" && (!each.heads || each.heads.includes(head)));
    const gathers = about.contributions.filter((at) => at.endsWith(".attn.out")).some((at) =>
      !zero(at) && Array.from({ length: about.heads }, (_, head) => head).some((head) => !zero(at.replace(/out$/, "z"), head)));
    return [
      ...same("the run's name", document.querySelector("header .name").textContent.startsWith(about.name), true),
      ...same("heads", has("#figure-heads"), about.contributions.some((at) => at.endsWith(".attn.out"))),
      ...same("sentences of attention", document.querySelector("#overview").dataset.gathers, String(gathers)),
      ...same("ribbons of attention", has(".tells") && !gathers, false),
      ...same("the list of changes", has("p.edits"), edits.value.length > 0),
      ...[...document.querySelectorAll("#figure-overview .switch")].flatMap((each, place) =>
        same("a switch", each.ariaChecked, String(!edits.value.some(({ at, do: what, positions, heads }) => at === about.contributions[place] && what === "zero" && positions === "all" && !heads)))),
      ...same("chosen runs", document.querySelectorAll(".runs [aria-pressed=true]").length, has(".runs") ? 1 : 0),
    ];
  }

  /** The first lines by which this page differs from another one that says these. */
  function differences(others) {
    const own = said();
    const at = Array.from({ length: Math.max(own.length, others.length) }, (_, place) => place).find((place) => own[place] !== others[place]);
    if (at === undefined) return [];
    const near = (lines) => lines.slice(Math.max(0, at - 2), at + 4).map((line) => line.slice(0, 300));
    return [`opened anew (${own.length} lines):`, ...near(own), `after the acts (${others.length} lines):`, ...near(others)];
  }

  return { act, broken, chosen, differences, restless, said, still };
})();
