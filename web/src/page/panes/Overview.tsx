// The whole computation as one picture: the stream as its spine, attention and feed-forward as what is written to it.

import { useState } from "preact/hooks";
import { useMemo } from "preact/hooks";
import { lengthAt, meanOfHeads } from "../compute/readings";
import { visible } from "../marks/colour";
import { Flow, FlowPart, flowPlaces, FlowRow } from "../marks/flow";
import { Unrolled } from "../marks/bars";
import { seriate } from "../marks/glass";
import { Spot } from "../marks/grid";
import { show } from "../numbers/opened";
import { row } from "../rows";
import { block, chosen, isOff, position, shown, source, toggle } from "../state";
import { MEAN, Values, atPosition } from "../source";
import { saidBy } from "../wanted";
import { N, language, number, rich, t } from "../words";
import { Figure, Line } from "./Figure";
import { columns, gutter, lane, margin, narrow, tokens } from "./layout";
import { contributionName, explained, Live, placeName, Token, traced } from "./pieces";

let fixed: { width: number; order: Uint32Array } | null = null;

/** The order of dimensions of all panes: made once, from the first sentence, so that a pane keeps its face. */
function orderOf(values: Values, names: readonly string[]): Uint32Array {
  const width = values.embed.shape[2];
  if (fixed?.width === width) return fixed.order;
  const all = names.flatMap((name) => Array.from(values[name].data));
  fixed = { width, order: seriate(all, width) };
  return fixed.order;
}

/** The name of the block's weights, if a part is attention. */
const weightsOf = (part: string): string | null => (part.endsWith(".attn.out") ? part.replace(/out$/, "weights") : null);

function parts(values: Values, names: readonly string[], at: number, count: number): FlowPart[] {
  return names.map((name): FlowPart => {
    const weights = weightsOf(name);
    const length = lengthAt(values, name, at);
    const row = weights && values[atPosition(MEAN + weights, at)];
    if (row) return { kind: "attention", length, weights: row.data, off: isOff(name) };
    if (!weights || !values[weights]) return { kind: "feed-forward", length, off: isOff(name) };
    const links = meanOfHeads(values[weights]);
    return { kind: "attention", length, links, weights: links.subarray(at * count, (at + 1) * count), off: isOff(name) };
  });
}

export function Overview() {
  const { about } = source.value!;
  const { ids, values, compared, edits } = shown.value!;
  const at = position.value;
  const [pointed, setPointed] = useState<Spot | null>(null);
  const order = useMemo(() => orderOf(values, about.stream), [about]);
  const made = useMemo(() => parts(values, about.contributions, at, ids.length), [values, at, edits]);
  const read = useMemo(() => about.stream.map((name) => saidBy(values, name, ids.length, at)), [values, at]);
  const before = useMemo(() => compared && about.stream.map((name) => saidBy(compared, name, ids.length, at)), [compared, at]);
  const rows = useMemo((): FlowRow[] => about.stream.map((name, place) => {
    const [id, probability] = [read[place].ids[at], read[place].shares[at]];
    const old = before && before[place].ids[at] !== id ? ` (${visible(about.tokens[before[place].ids[at]])})` : "";
    return { name: placeName(name), vectors: values[name].data, says: { token: about.tokens[id], probability, text: number(probability) + old } };
  }), [values, at, before, language.value]);
  const start = lengthAt(values, "embed", at);
  const places = flowPlaces(made, columns.value);
  const last = about.stream.length - 1;
  const spot = pointed && pointed.row <= last && pointed.column < ids.length ? pointed : { row: last, column: at };
  const name = about.stream[spot.row];
  const vector = row(values[name], 0, spot.column);
  const strongest = made.reduce((best, part, place) => (part.kind === "attention" && part.length > (made[best]?.kind === "attention" ? made[best].length : -1) ? place : best), 0);
  const weights = made[strongest]?.weights;
  const most = weights ? Array.from(weights).reduce((best, each, source) => (each > weights[best] ? source : best), 0) : -1;
  const enter = (part: string) => {
    block.value = Number(part.split(".")[1]);
    document.getElementById("heads")?.scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  };
  return (
    <section aria-labelledby="overview">
      <div class="prose">
        <h2 id="overview">{t("Each token becomes a pane of glass, and gathers light from the panes before it.")}</h2>
        <p>
          {rich("A pane is {count} numbers: colour for plus, lead for minus. At the right the stream of {token}: its embedding, and all that is written to it on the way down, each thread as wide as what is added is long.", {
            count: <Live value={about.d_model} digits={0} />, token: <Token id={ids[at]} />,
          })}{" "}
          {weights && most >= 0 && rich("Attention brings ribbons of colour from tokens before it, in block {block} most from {token} with {weight} of the weight; feed-forward, the lens at its side, works on one pane alone.", {
            block: about.contributions[strongest].split(".")[1], token: <Token id={ids[most]} />, weight: <Live value={weights[most]} token={tokens.value[most]} />,
          })}
        </p>
        <p>
          {rich("The last pane is read off as a token: {token} with {probability}.", { token: <Token id={read[last].ids[at]} />, probability: <Live value={read[last].shares[at]} token={about.tokens[read[last].ids[at]]} /> })}
          {before && <>{" "}{rich("With everything switched on it is {token} with {probability}.", { token: <Token id={before[last].ids[at]} />, probability: <Live value={before[last].shares[at]} token={about.tokens[before[last].ids[at]]} /> })}</>}
        </p>
      </div>
      <Figure id="overview" command={explained()} label={t("The whole computation, from the embedding down to the prediction")} python={traced(name, `0, ${spot.column}`)}
        caption={t("A ribbon's width is its weight, the mean of the heads, times the length of what attention adds here; the order of a pane's numbers is fixed, those that move together lie together. At the far right: what the stream would say if it ended there. Point at a pane to unroll it, choose one of its numbers to open it; choose a part at the left to go in.")}>
        <div class="line">
          {!narrow.value && (
            <div class="flow-names" style={{ height: `${places.bottom}px`, width: `${gutter.value}px` }}>
              <span class="flow-name" style={{ top: `${places.tops[0]}px` }}>{t("embedding")}</span>
              {about.contributions.map((part, place) => {
                const top = (places.tops[place] + places.tall + places.tops[place + 1]) / 2 - 14;
                return (
                  <span class="flow-name" key={part} style={{ top: `${top}px` }}>
                    {weightsOf(part) ? <button class="enter" onClick={() => enter(part)}>{contributionName(part)}</button> : contributionName(part)}
                    <Switch part={part} />
                  </span>
                );
              })}
            </div>
          )}
          <div class="line-mark">
            <Flow label={t("The stream of {token} from the embedding to the prediction", { token: visible(tokens.value[at]) })} tokens={tokens.value} columns={columns.value} chosen={at} rows={rows} parts={made} start={start}
              order={order} lane={lane.value} margin={margin.value} picked={{ row: last, column: at }} onPoint={(spot) => { if (spot) setPointed(spot); }} onPick={({ column }) => (chosen.value = column)}
              say={({ row: line, column }) => t(read[line].ids[column] < 0 ? N("{token} after {place}") : N("{token} after {place}: says {said}, {probability}"), { token: visible(tokens.value[column]), place: placeName(about.stream[line]), said: visible(about.tokens[read[line].ids[column]] ?? ""), probability: number(read[line].shares[column]) })} />
          </div>
        </div>
        <Line name={<>{t("pane of {token}, token {place}", { token: visible(tokens.value[spot.column]), place: spot.column + 1 })}<br /><small>{placeName(name)}</small></>}>
          <Unrolled label={t("The numbers of one pane")} values={vector} token={tokens.value[spot.column]} width={columns.value.edges[ids.length]} order={order} number={number}
            name={(dimension) => t("dimension {number}", { number: dimension })} onPick={({ column }) => show(name, [0, spot.column, order[column]])} />
        </Line>
      </Figure>
      {narrow.value && <p class="switches">{about.contributions.map((part) => <label key={part}>{contributionName(part)} <Switch part={part} /></label>)}</p>}
    </section>
  );
}

/** Switches a part of the model off and on again. */
export function Switch({ part, which, name }: { part: string; which?: number; name?: string }) {
  const off = isOff(part, which);
  const what = name ?? contributionName(part);
  return (
    <button class="switch" role="switch" aria-checked={!off} aria-label={t("{part} is switched on", { part: what })} title={off ? t("switch it on") : t("switch it off")} onClick={() => toggle(part, which)}>
      <i />
    </button>
  );
}
