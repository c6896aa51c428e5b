// Faults of a page's layout: texts that lie over one another, texts that are cut off, and a page wider than its window.

globalThis.layoutFaults = () => {
  const found = [];
  const texts = [];
  const shown = (node) => node.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && !node.closest(".unseen, [role=grid], [aria-hidden=true].mark-tip, dialog");
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const own = node.parentElement;
    if (!node.data.trim() || !shown(own) || own.closest("option, textarea, script, style")) continue;
    const range = document.createRange();
    range.selectNodeContents(node);
    for (const box of range.getClientRects()) if (box.width > 1) texts.push({ text: node.data.trim().slice(0, 40), own, box });
  }
  // What is drawn on canvas is in the scenes of marks.
  const pen = document.createElement("canvas").getContext("2d");
  for (const mark of document.querySelectorAll(".mark")) {
    const scene = vitralPage.scenes.get(mark);
    if (!scene || mark.querySelector("svg") || !shown(mark)) continue;
    const frame = mark.getBoundingClientRect();
    for (const { kind, text, size, x, y, anchor, bold, face } of scene.shapes) {
      if (kind !== "text") continue;
      pen.font = `${bold ? 600 : 400} ${size}px ${getComputedStyle(document.body).getPropertyValue(face === "serif" ? "--serif" : "--sans")}`;
      const wide = pen.measureText(text).width;
      const left = frame.left + x - (anchor === "middle" ? wide / 2 : anchor === "end" ? wide : 0);
      const box = { left, right: left + wide, top: frame.top + y - 0.75 * size, bottom: frame.top + y + 0.2 * size };
      texts.push({ text, own: mark, box: { ...box, width: wide, height: 0.95 * size } });
    }
  }
  const name = ({ text, own }) => `“${text}” in ${own.closest("[id]")?.id ?? ""} ${own.localName}.${own.getAttribute("class") ?? ""}`;
  texts.sort((one, other) => one.box.top - other.box.top);
  texts.forEach((one, at) => {
    for (let next = at + 1; next < texts.length && texts[next].box.top < one.box.bottom; next++) {
      const other = texts[next];
      if (!one.own.closest(".tour") !== !other.own.closest(".tour")) continue; // the tour's card lies over the page
      const wide = Math.min(one.box.right, other.box.right) - Math.max(one.box.left, other.box.left);
      const tall = Math.min(one.box.bottom, other.box.bottom) - Math.max(one.box.top, other.box.top);
      if (wide > 2 && tall > 0.35 * Math.min(one.box.height, other.box.height)) found.push(`${name(one)} and ${name(other)} overlap by ${Math.round(wide)} × ${Math.round(tall)}`);
    }
    let scrolls = false;
    for (let node = one.own; node && node !== document.body && !scrolls; node = node.parentElement) {
      const { overflowX } = getComputedStyle(node);
      scrolls = overflowX === "auto" || overflowX === "scroll";
      if (scrolls || overflowX === "visible") continue;
      const edge = node.getBoundingClientRect();
      if (one.box.right > edge.right + 1 || one.box.left < edge.left - 1 || one.box.bottom > edge.bottom + 2) found.push(`${name(one)} is cut off by ${node.localName}.${node.getAttribute("class")}`);
    }
    if (!scrolls && (one.box.right > innerWidth + 1 || one.box.left < -1)) found.push(`${name(one)} is outside of the window`);
  });
  const { scrollWidth } = document.documentElement;
  if (scrollWidth > innerWidth) found.push(`the page is ${scrollWidth} wide in a window of ${innerWidth}`);
  return [...new Set(found)];
};
