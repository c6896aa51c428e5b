// Attention worked: why one token looks at another, in six steps, with the numbers of the model.

import { ComponentChildren } from "preact";
import { typed } from "../../typed";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { lengthAt } from "../compute/readings";
import { Unrolled, UnrolledProps, unrolledScene } from "../marks/bars";
import { visible } from "../marks/colour";
import { Dials } from "../marks/dials";
import { Drawn, useScene } from "../marks/drawn";
import { Numbers, length, reach } from "../marks/plain";
import { glass, theme } from "../marks/theme";
import { anatomy, show } from "../numbers/opened";
import { Edit } from "../source";
import { WORKED, answering, block, column, compared, edits, head, isOff, origin, position, shown, stage } from "../state";
import { Answer, Work, biased, byWeight, folded, pairsOf, scaleOf, together, workOf } from "../worked";
import { N, Sentence, number, plural, rich, t } from "../words";
import { Figure, Line } from "./Figure";
import { Group } from "./Group";
import { lengthsOf } from "./Heads";
import { gutter, narrow, room, tokens, width } from "./layout";
import { Live, Token, contributionName, explained, traced } from "./pieces";

const NAMES: Sentence[] = [N("projection"), N("scoring"), N("scaling"), N("masking"), N("softmax"), N("weighting")];
/** What each step ends in. */
const ENDS = ["q", "scores", "scaled", "masked", "weights", "z"];
/** Milliseconds that a step is shown while the steps play. */
const PAUSE = 3200;
/** How many times more tokens are unfolded each time; hidden tokens that are named. */
const [TIMES, MOST_HIDDEN] = [4, 12];
/** Room for a number, and for that of a weight; heights of bars. */
const [WIDE, WRITTEN, TALL, ASKED] = [68, 66, 28, 44];
const shareWide = (): number => (narrow.value ? 80 : 132);
/** How far a sum may be from a value that it almost is, as a share of its length. */
const ALMOST = 0.1;

const digitsOf = (answers: readonly Answer[]): number => (reach(answers.map(({ score }) => score)) >= 10 ? 1 : 2);
const share = (weight: number): string => number(weight, weight > 0 && weight < 0.001 ? 4 : 3);
const tokenAt = (place: number) => <Token id={shown.value!.ids[place]} />;
const nameAt = (place: number) => visible(tokens.value[place] ?? "");
const colours = (place: number) => {
  const { fill, ink } = glass(tokens.value[place] ?? "");
  return { background: fill, color: ink };
};
const numbered = (dimension: number) => t("number {number}", { number: dimension });

/** `chosen`: the token whose key is compared. */
interface Parts { work: Work; step: number; chosen: Answer | undefined; ranked: Answer[] }

export function Worked() {
  const { about } = origin.value!;
  const { ids, values, edits: now } = shown.value!;
  const [at, which] = [position.value, Math.min(head.value, about.heads - 1)];
  const work = useMemo(() => workOf(about, values, now, block.value, which, at, ids.length), [about, values, now, block.value, which, at, ids.length]);
  const [isMoving, setMoving] = useState(false);
  const [isPlaying, setPlaying] = useState(false);
  const section = useRef<HTMLElement>(null);
  const step = stage.value;
  const go = (to: number) => {
    setMoving(true);
    stage.value = Math.min(WORKED, Math.max(1, to));
  };
  useEffect(() => {
    if (!isPlaying) return;
    if (step === WORKED) return setPlaying(false);
    const waiting = setTimeout(go, PAUSE, step + 1);
    return () => clearTimeout(waiting);
  }, [isPlaying, step]);
  useLayoutEffect(() => {
    if (document.activeElement?.matches("[data-step]")) section.current?.querySelector<HTMLElement>(`[data-step="${step}"]`)?.focus({ preventScroll: true });
  }, [step]);
  if (!work) return null;
  const play = () => {
    if (!isPlaying) go(step === WORKED ? 1 : step + 1);
    setPlaying(!isPlaying);
  };
  const choose = (to: number) => {
    setPlaying(false);
    go(to);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const isOurs = event.target === section.current || (event.target as Element).matches("[data-step]");
    const to = { ArrowLeft: step - 1, ArrowRight: step + 1 }[event.key] ?? (/^[1-6]$/.test(event.key) ? Number(event.key) : null);
    if (event.altKey || event.ctrlKey || event.metaKey || !isOurs || (to === null && event.key !== " ")) return;
    event.preventDefault();
    event.stopPropagation();
    if (to === null) play();
    else choose(to);
  };
  const ranked = byWeight(work.answers);
  const chosen = ranked.find(({ place }) => place === compared.value) ?? ranked[0];
  const parts = { work, step, chosen, ranked };
  return (
    <section class={isMoving ? "worked moving" : "worked"} data-at={step} aria-labelledby="worked" ref={section} tabIndex={-1} onKeyDown={onKeyDown}>
      <h2 id="worked">{heading(parts)}</h2>
      <Figure id="worked" command={explained()} label={t("The attention of one token in six steps")} python={traced(`${work.base}.${ENDS[step - 1]}`, `0, ${which}, ${at}`)}>
        <div class="foot">
          <div role="group" aria-label={t("Step of attention")}>
            {NAMES.map((name, place) => <button data-step={place + 1} aria-pressed={step === place + 1} tabIndex={step === place + 1 ? 0 : -1} onClick={() => choose(place + 1)}>{place + 1} {t(name)}</button>)}
          </div>
          <p class="remark"><button class="said" onClick={play}>{isPlaying ? t("pause") : t("play")}</button><kbd>← → {t("space")}</kbd>{" · "}{t("head {head}", { head: `${block.value}.${which}` })}</p>
        </div>
        {narrow.value && <p class="says">{says(parts)}</p>}
        <div data-drawn>
          {step === 1 || !chosen ? <Asking {...parts} /> : (
            <>
              <Query work={work} chosen={chosen} />
              <Answers {...parts} chosen={chosen} />
            </>
          )}
          {step === 4 && <Hidden work={work} />}
        </div>
        {!narrow.value && <p class="says">{says(parts)}</p>}
      </Figure>
    </section>
  );
}

/** The question that the section answers; never one that the numbers deny. */
function heading({ work: { at, answers }, ranked: [first, second], chosen }: Parts): ComponentChildren {
  const places = { token: tokenAt(at), source: chosen && tokenAt(chosen.place) };
  if (!chosen) return rich("{token} may look at no token.", places);
  const isSelf = first.place === at;
  if (!second) return rich(isSelf ? N("{token} can only look at itself.") : N("{token} can only look at {source}."), places);
  if (chosen !== first) return rich("How much does {token} look at {source}?", places);
  const isFlat = !(first.weight * answers.length > 1.5 && first.weight > 1.2 * second.weight);
  return rich(isFlat ? N("How does {token} share out its attention?") : isSelf ? N("How does {token} find itself?") : N("How does {token} find {source}?"), places);
}

function Cell({ name, index, children }: { name: string; index: readonly number[]; children: ComponentChildren }) {
  return <button class="cell" data-cell={`${name}:${index.join(".")}`} onClick={() => show(name, index)}>{children}</button>;
}

/** The width of a vector: keys and values stand side by side, on a phone one below the other. */
const vectorWide = (): number => (narrow.value ? Math.max(120, width.value - 48) : Math.min(360, Math.floor((room.value - (biased(origin.value!.about) ? 4 : 2) * WIDE - shareWide() - WRITTEN - 60) / 2)));

/** A vector whose numbers can be pointed at and opened. */
function Vector({ of, index, ...given }: Omit<UnrolledProps, "name"> & { of: string; index: readonly number[]; name?: UnrolledProps["name"] }) {
  return <Unrolled name={numbered} {...given} height={ASKED} onPick={({ column }) => show(of, [...index, column])} />;
}

/** A vector without a stop of its own. */
function Bars({ label, values, faint, place, wide, most }: { label: string; values: Numbers; faint?: Numbers; place: number; wide: number; most: number }) {
  const token = tokens.value[place];
  return <Drawn label={label} scene={useScene(() => unrolledScene({ values, faint, token, width: wide, height: TALL, most }, theme.value), [values, faint, token, wide, most])} />;
}

function Asking({ work: { at, head: which, input, unturned, query, base } }: Parts) {
  const token = tokens.value[at];
  const across = Math.min(narrow.value ? width.value : room.value, 720);
  const wide = Math.min(across, Math.max(vectorWide(), 300));
  const pairs = useMemo(() => pairsOf(origin.value!.about, query.length), [query.length]);
  const own = { index: [0, which, at], token, width: wide, most: Math.max(reach(query), unturned ? reach(unturned) : 0) };
  return (
    <>
      <Line name={<><span>x</span>{tokenAt(at)}</>}><Vector label={t("The stream of {token}", { token: nameAt(at) })} of={input.name} index={[0, at]} values={input.numbers} token={token} width={across} /></Line>
      {unturned && <Line name="x · W_Q"><Vector {...own} label={t("The query before its rotation")} of={`${base}.q_pre`} values={unturned} /></Line>}
      {unturned && <Line name={t("turned in pairs")}><Dials label={t("The pairs of the query before their turn (thin) and after it")} before={unturned} after={query} pairs={pairs} token={token} width={across} /></Line>}
      <Line name={unturned ? "q" : "q = x · W_Q"}><Vector {...own} label={t("The query of {token}", { token: nameAt(at) })} of={`${base}.q`} values={query} /></Line>
    </>
  );
}

const whereOf = (edit: Edit): string => JSON.stringify({ ...edit, value: 0 });

/** The query as bars that can be drawn up and down: an edit of one number. */
function Query({ work: { at, base, query, head: which }, chosen }: { work: Work; chosen: Answer }) {
  const node = useRef<HTMLDivElement>(null);
  /** Of the bar that is drawn: what half the height stands for, and where the pointer went down. */
  const drawn = useRef<{ most: number; from: number; moved: boolean } | null>(null);
  // An answer may take longer than the hand: the next place is asked for when it is here.
  const isAsked = useRef(false);
  useEffect(() => void (isAsked.current = false), [shown.value]);
  const most = drawn.current?.most ?? reach(query);
  const wide = vectorWide();
  const last = query.length - 1;
  const active = column.value >= 0 && column.value <= last ? column.value : strongest(query, chosen.key);
  const edit = (value: number): Edit => ({ at: `${base}.q`, heads: [which], positions: [at], columns: [active], do: "set", value });
  const others = edits.value.filter((each) => whereOf(each) !== whereOf(edit(0)));
  const put = (value: number) => {
    const rounded = Number(value.toPrecision(3));
    if (!Number.isFinite(Math.fround(rounded))) return;
    isAsked.current = true;
    edits.value = [...others, edit(rounded)];
  };
  const under = (event: PointerEvent) => {
    const { left, top, width: across, height } = node.current!.getBoundingClientRect();
    return { column: Math.min(last, Math.max(0, Math.floor(((event.clientX - left) / across) * query.length))), value: ((top + height / 2 - event.clientY) / (height / 2 - 1)) * most };
  };
  const onKeyDown = (event: KeyboardEvent) => {
    const by = reach(query) / (event.shiftKey ? 4 : 20);
    const to = { ArrowLeft: active - 1, ArrowRight: active + 1 }[event.key];
    const up = { ArrowUp: by, ArrowDown: -by }[event.key];
    if (event.altKey || event.ctrlKey || event.metaKey || (to === undefined && up === undefined)) return;
    event.preventDefault();
    if (to !== undefined) column.value = Math.min(last, Math.max(0, to));
    else put(query[active] + up!);
  };
  return (
    <Line name={<><span>{t("query")}</span>{tokenAt(at)}</>}>
      <div class="asked">
        <Drawn label="" scene={useScene(() => unrolledScene({ values: query, token: tokens.value[at], width: wide, height: ASKED, most }, theme.value), [query, at, wide, most])}>
          <div class="mark-ring" style={{ left: `${(active * wide) / query.length}px`, top: 0, width: `${wide / query.length}px`, height: `${ASKED}px` }} />
          <div ref={node} class="mark-slider hand" role="slider" tabIndex={0} aria-orientation="vertical" aria-label={t("Query of {token}: left and right choose a number, up and down change it", { token: nameAt(at) })}
            aria-valuemin={-Math.ceil(2 * most)} aria-valuemax={Math.ceil(2 * most)} aria-valuenow={Number(query[active].toFixed(4))} aria-valuetext={`${numbered(active)}: ${number(query[active])}`} onKeyDown={onKeyDown}
            onPointerDown={(event) => {
              node.current!.setPointerCapture(event.pointerId);
              column.value = under(event).column;
              drawn.current = { most: reach(query), from: event.clientY, moved: false };
            }}
            onPointerMove={(event) => {
              const hold = drawn.current;
              if (!hold || !event.buttons || (!hold.moved && Math.abs(event.clientY - hold.from) < 3)) return;
              hold.moved = true;
              if (!isAsked.current) put(under(event).value);
            }}
            onPointerUp={(event) => {
              if (drawn.current?.moved) put(under(event).value);
              drawn.current = null;
            }} />
        </Drawn>
        <p class="remark">
          <Cell name={`${base}.q`} index={[0, which, at, active]}>{`q[${active}]`}</Cell>{" = "}
          <input inputmode="decimal" autocomplete="off" aria-label={numbered(active)} value={number(query[active], 3)} onChange={({ currentTarget: field }) => {
            const asked = typed(field.value);
            if (asked) put(asked.value);
            field.value = number(query[active], 3); // until the answer is here, and for good where it cannot be put
          }} />{" "}
          {others.length < edits.value.length ? <button class="said" onClick={() => (edits.value = others)}>{t("as it was")}</button> : <small>{t("Drag a bar, or type a number: the whole page follows.")}</small>}
        </p>
      </div>
    </Line>
  );
}

/** The place where two vectors have the largest product. */
const strongest = (one: Numbers, other: Numbers): number =>
  Array.from(one, (_, place) => place).reduce((best, place) => (one[place] * other[place] > one[best] * other[best] ? place : best), 0);

function Answers({ work, step, chosen, ranked }: Parts & { chosen: Answer }) {
  const { base, head: which, served, at, query, answers, z } = work;
  const { shown: rows, rest } = useMemo(() => folded(answers, chosen, answering.value), [answers, chosen, answering.value]);
  const [wide, whole, digits] = [vectorWide(), shareWide(), digitsOf(answers)];
  const products = useMemo(() => Float64Array.from(query, (each, place) => each * chosen.key[place]), [query, chosen]);
  const brings = useMemo(() => rows.map(({ value, weight }) => Float64Array.from(value, (each) => each * weight)), [rows]);
  const [most, tallest, longest] = [reach(rows.map(({ key }) => reach(key))), reach(rows.map(({ value }) => reach(value))), Math.max(reach(z), reach(brings.map((each) => reach(each))))];
  const faint = useMemo(() => rows.map(({ value }) => Float64Array.from(value, (each) => (each / tallest) * longest)), [rows, tallest, longest]);
  const { kind, factor } = scaleOf(origin.value!.about, answers);
  const cell = (name: string, place: number, text: string) => <Cell name={`${base}.${name}`} index={[0, which, at, place]}>{text}</Cell>;
  const columns: [string, number, (each: Answer) => ComponentChildren][] = [
    ["q · k", 2, ({ place, score }) => cell("scores", place, number(score, digits))],
    [kind === "sqrt" ? `÷ √${query.length}` : `× ${kind === "none" ? 1 : number(factor, 3)}`, 3, ({ place, scaled }) => cell("scaled", place, number(scaled))],
  ];
  if (biased(origin.value!.about)) columns.push([t("distance"), 4, ({ place, masked, scaled }) => <span class="bias" data-place={place}>{number(masked - scaled)}</span>], [t("sum"), 4, ({ place, masked }) => cell("masked", place, number(masked))]);
  let sum = 0;
  /** A weight in a width that is 1: from the left, or behind those before it. */
  const bar = (weight: number, place: number | null, isBehind = false) => {
    const across = isBehind ? wide : whole;
    if (isBehind) sum += weight;
    return (
      <div class={isBehind ? "unit stair" : "unit"} style={{ width: `${across}px` }}>
        <i style={{ left: `${isBehind ? (sum - weight) * across : 0}px`, width: `${weight * across}px`, ...(place === null ? {} : { background: colours(place).background }) }} />
      </div>
    );
  };
  const line = narrow.value ? undefined : { gridTemplateColumns: `${gutter.value}px ${wide + 20}px ${columns.map(() => `${WIDE}px`).join(" ")} ${whole + WRITTEN + 24}px minmax(0, 1fr)` };
  const compare = ({ place }: Answer) => (compared.value = place === ranked[0].place ? -1 : place);
  return (
    <>
      {step === 2 && (
        <Line name={<><span>q × k</span>{tokenAt(chosen.place)}</>}>
          <div class="asked">
            <Vector label={t("Query of {token} times key of {source}", { token: nameAt(at), source: nameAt(chosen.place) })} of={`${base}.k`} index={[0, served, chosen.place]} values={products} token={tokens.value[chosen.place]} width={wide}
              name={(dimension) => `${number(query[dimension])} · ${number(chosen.key[dimension])}`} />
            <p>= <b>{cell("scores", chosen.place, number(chosen.score, digits))}</b></p>
          </div>
        </Line>
      )}
      <Group label={t("What each token answers")}>
        <div class="answer titles" style={line} aria-hidden="true">
          <span /><span>{t("keys: what each token offers")}</span>
          {columns.map(([name, when]) => <span class="amount">{step >= when && name}</span>)}
          <span>{step >= 5 && t("weight")}</span>
          <span>{step === 5 ? t("exp of each, side by side: together 1") : step === 6 && t("weight × value, and their sum z")}</span>
        </div>
        {rows.map((each, index) => {
          const { place, weight } = each;
          const token = nameAt(place);
          return (
            <div key={place} class="answer" style={line} data-place={place}>
              <button class="glass" style={colours(place)} aria-pressed={each === chosen} aria-label={t("{token}, position {position}: compare its key", { token, position: place })} onClick={() => compare(each)}>{token}</button>
              <div class="key" onClick={() => compare(each)}><Bars label={t("The key of {token}", { token })} values={each.key} place={place} wide={wide} most={most} /></div>
              {columns.map(([name, when, of]) => (step >= when || !narrow.value) && <div class="amount" data-label={name}>{step >= when && of(each)}</div>)}
              {step >= 5 && <div class="weight">{bar(weight, place)}{cell("weights", place, share(weight))}</div>}
              {step === 5 && bar(weight, place, true)}
              {step === 6 && <div class="brings"><Bars label={t("The value of {token} times its weight", { token })} values={brings[index]} faint={faint[index]} place={place} wide={wide} most={longest} /></div>}
            </div>
          );
        })}
        {rest.length > 0 && (
          <div class="answer rest" style={line}>
            <button class="said" onClick={() => (answering.value *= TIMES)}>{plural(rest.length, "{n} more token", "{n} more tokens")}</button>
            {step >= 5 && <div class="weight">{bar(together(rest), null)}<span class="few">{t("{weight} together", { weight: share(together(rest)) })}</span></div>}
            {step === 5 && bar(together(rest), null, true)}
          </div>
        )}
        {step === 6 && (
          <div class="answer total" style={line}>
            <Lengths work={work} />
            <div class="brings"><Vector label={t("z: what {token} takes along", { token: nameAt(at) })} of={`${base}.z`} index={[0, which, at]} values={z} token={tokens.value[ranked[0].place]} width={wide} most={longest} /></div>
          </div>
        )}
      </Group>
    </>
  );
}

/** What the head adds to the stream, beside what all heads add together: the ribbon of the overview. */
function Lengths({ work }: { work: Work }) {
  const { base, head: which, at } = work;
  const { values } = shown.value!;
  const added = useMemo(() => lengthsOf(values, base, which, "z"), [values, base, which, anatomy.value])?.[at];
  const whole = lengthAt(values, `${base}.out`, at);
  const line = (name: string, value: number, place?: number) => (
    <div>
      <span>{name}</span>
      <i style={{ width: `${(value / (Math.max(added ?? 0, whole) || 1)) * 110}px`, ...(place === undefined ? {} : { background: colours(place).background }) }} />
      <span class="long">{number(value)}</span>
    </div>
  );
  return (
    <div class="lengths">
      {added !== undefined && line(t("length of z · W_O, this head"), added, at)}
      {line(contributionName(`${base}.out`), whole)}
    </div>
  );
}

/** Tokens that the mask hides, and why. */
function Hidden({ work: { hidden, at } }: { work: Work }) {
  const masks = (origin.value!.about.model.attention as { mask?: unknown } | undefined)?.mask;
  const mask = (Array.isArray(masks) ? masks[block.value % masks.length] : masks) as { name?: string; size?: number } | undefined;
  const some = (places: number[], why: string) => places.length > 0 && (
    <p class="hides"><span>{why}</span> {places.slice(0, MOST_HIDDEN).map(tokenAt)}{places.length > MOST_HIDDEN && " …"}</p>
  );
  return (
    <>
      {some(hidden.earlier, mask?.name === "window" ? t("Outside of the window of {n}:", { n: mask.size ?? 0 }) : t("Hidden by the model's mask:"))}
      {some(hidden.later, t("Hidden, after {token}:", { token: nameAt(at) }))}
    </>
  );
}

/** The step in words, with the numbers of the model as it is now. */
function says({ work, step, chosen, ranked }: Parts): ComponentChildren {
  const { at, query, input, unturned, answers, base, served, sharing, changed, hidden, z } = work;
  const { model, heads } = origin.value!.about;
  const said: ComponentChildren[] = [];
  const live = (value: number, digits: number, place?: number) => <Live value={value} digits={digits} token={place === undefined ? undefined : tokens.value[place]} />;
  const count = (value: number) => live(value, 0);
  const common = { token: tokenAt(at), d: count(query.length), n: count(answers.length) };
  const say = (sentence: Sentence, places: Record<string, ComponentChildren> = {}) => said.push(...rich(sentence, { ...common, ...places }), " ");
  if (!chosen) {
    say(N("The mask hides every token from {token}, so no weight is left, and z is zero."));
    return said;
  }
  const digits = digitsOf(answers);
  const second = ranked.find((each) => each !== chosen);
  const numbers = {
    source: tokenAt(chosen.place), score: live(chosen.score, digits, chosen.place), scaled: live(chosen.scaled, 2, chosen.place), weight: live(chosen.weight, 3, chosen.place),
    second: second && tokenAt(second.place), next: second && live(second.score, digits, second.place),
  };
  const multiplied = () => say(second ? N("Multiplied place by place and summed, {source} gives {score}, {second} {next}.") : N("Multiplied place by place and summed, {source} gives {score}."), numbers);
  if (step === 1) {
    const bias = typeof model.bias === "object" ? (model.bias as { qkv?: boolean }).qkv : model.bias;
    say(N("{token} asks with {d} numbers, its query: {made}, where x are the {m} numbers of {stream}."), {
      made: bias === false ? "x · W_Q" : "x · W_Q + b", m: count(input.numbers.length), stream: input.name.endsWith("attn_norm") ? t("its normed stream") : t("its stream"),
    });
    if (unturned) say(N("Its position, {at}, then turns pairs of them, each by an angle of its own: so query and key can tell how far apart they are."), { at: count(at) });
    say(N("No number has a name: training found which question is worth asking."));
  }
  if (step === 2) {
    say(N("Every token that {token} may look at answers with {d} numbers, its key."));
    multiplied();
    const most = strongest(query, chosen.key);
    const product = query[most] * chosen.key[most];
    if (product > 0) say(N("Where both have the same sign, the sum grows: number {number} alone brings {product}."), { number: count(most), product: live(product, digits, chosen.place) });
    if (sharing.length > 1) say(sharing.length === heads ? N("All heads of this block read the same keys and values.") : N("Heads {heads} read the same keys and values, those of key-value head {served}."), { heads: sharing.join(", "), served: count(served) });
  }
  if (step === 3) {
    const { kind, factor } = scaleOf(origin.value!.about, answers);
    say(kind === "sqrt" ? N("A sum of {d} products grows with their number: divided by √{d}, {score} becomes {scaled}.")
      : kind === "none" ? N("This model does not scale its scores: {score} stays {scaled}.") : N("Times {factor}, this model's own scale, {score} becomes {scaled}."), { ...numbers, factor: live(factor, 3) });
  }
  if (step === 4) {
    if (biased(origin.value!.about)) say(N("For a distance of {away} {positions} adds {bias}, so {source} has {sum} in all."), {
      ...numbers, positions: model.positions === "alibi" ? "ALiBi" : t("the model"), away: count(Math.abs(at - chosen.place)), bias: live(chosen.masked - chosen.scaled, 2), sum: live(chosen.masked, 2, chosen.place),
    });
    const hides = hidden.later.length + hidden.earlier.length;
    const { shape, data } = shown.value!.values[`${base}.masked`] ?? { shape: [], data: [] };
    const end = data[(work.head * shape[2] + 1) * shape[3] - 1]; // of the first row
    if (!hides && shape[3] > 1 && end === -Infinity) say(N("The mask hides what comes after a token; here nothing comes after {token}."));
    if (!hides && end !== -Infinity) say(N("There is no mask here: {token} may look at every token."));
    if (hides) said.push(plural(hides, "The mask hides {n} token; its weight will be 0.", "The mask hides {n} tokens; their weights will be 0."), " ");
  }
  if (step === 5) {
    say(N("Softmax makes shares of 1: exp of each number, which is 2.718 to its power, divided by the sum of them all."));
    say(N("{source} gets {weight}, all others together {rest}."), { ...numbers, rest: live(together(answers.filter((each) => each !== chosen)), 3) });
    if (second && chosen.weight > second.weight && second.weight > 0) say(N("Side by side the bars are 1 wide. A lead of {lead} over {second} makes a share {times} times as large."), {
      ...numbers, lead: live(chosen.masked - second.masked, 2), times: live(chosen.weight / second.weight, 2),
    });
  }
  if (step === 6) {
    say(second ? N("{token} asks with {d} numbers; {n} tokens answer with {d} each.") : N("{token} asks with {d} numbers, and one token answers."));
    multiplied();
    const brings = ({ weight, value }: Answer) => weight * length(value);
    const isNear = length(Float64Array.from(z, (each, place) => each - chosen.value[place])) <= ALMOST * length(chosen.value);
    const isMost = brings(chosen) > answers.reduce((sum, each) => sum + brings(each), 0) / 2;
    say(N("After softmax {source} has {share} of the attention."), { ...numbers, share: <>{live(chosen.weight * 100, chosen.weight < 0.0995 ? 1 : 0, chosen.place)}{"\u00a0%"}</> });
    say(isNear ? N("So what {token} takes along, z, is almost exactly the value of {source}.") : isMost ? N("So what {token} takes along, z, is mostly the value of {source}.") : N("So what {token} takes along, z, is a mixture of values."), numbers);
  }
  if (step === 6 && (isOff(`${base}.z`, work.head) || isOff(`${base}.z`) || isOff(`${base}.out`))) said.push(t("But this head is switched off: it adds nothing."));
  else if (changed.length) said.push(t("Changed here: {names}. These numbers do not follow from those before them.", { names: changed.join(", ") }));
  return said;
}
