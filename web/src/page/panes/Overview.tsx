// The whole computation as one picture: the stream as its spine, attention and feed-forward as what is written to it.

import { useMemo, useState } from "preact/hooks";
import { lengthAt, meanOfHeads } from "../compute/readings";
import { visible } from "../marks/colour";
import { Flow, FlowPart, flowPlaces, FlowRow } from "../marks/flow";
import { Unrolled } from "../marks/bars";
import { seriate } from "../marks/glass";
import { Spot } from "../marks/grid";
import { goTo, show } from "../numbers/opened";
import { row } from "../rows";
import { Shown, block, chosen, isOff, isSilent, origin, position, shown, toggle } from "../state";
import { MEAN, Values, atPosition, outputs, seesAll } from "../source";
import { saidBy } from "../wanted";
import { language, number, rich, t } from "../words";
import { Figure, Line } from "./Figure";
import { columns, gutter, lane, margin, narrow, tokens } from "./layout";
import { contributionName, explained, Live, placeName, Said, Token, traced } from "./pieces";

/** The order of dimensions of all panes, so that a pane keeps its face. */
const orderOf = (face: Values): Uint32Array => seriate(Object.values(face).flatMap(({ data }) => Array.from(data)), face.embed.shape[2]);

/** The name of the block's weights, if a part is attention. */
const weightsOf = (part: string): string | null => (part.endsWith(".attn.out") ? part.replace(/out$/, "weights") : null);

function parts({ values, edits, from: { about } }: Shown, at: number, count: number): FlowPart[] {
  return about.contributions.map((name): FlowPart => {
    const weights = weightsOf(name);
    const length = lengthAt(values, name, at);
    const off = isSilent(name, about.heads, edits);
    const row = weights && values[atPosition(MEAN + weights, at)];
    if (!weights || !(row || values[weights])) return { kind: "feed-forward", length, off };
    if (off) return { kind: "attention", length, off };
    if (row) return { kind: "attention", length, weights: row.data, off };
    const links = meanOfHeads(values[weights]);
    return { kind: "attention", length, links, weights: links.subarray(at * count, (at + 1) * count), off };
  });
}

/** What the picture shows: who sees whom in the model as it is now. */
function title(mixing: readonly string[], live: readonly string[], memory: boolean, isAll: boolean): string {
  if (live.length && isAll) return t("Each token becomes a pane of glass, and gathers light from all others.");
  if (live.length) return t("Each token becomes a pane of glass, and gathers light from the panes before it.");
  if (memory) return t("Each token becomes a pane of glass, and a memory carries light from the left to the right.");
  if (mixing.length) return t("Each token becomes a pane of glass. Attention is switched off: no pane sees another.");
  return t("Each token becomes a pane of glass, and no pane sees another.");
}

export function Overview() {
  const { about } = origin.value!;
  const { ids, values, compared, edits, face } = shown.value!;
  const at = position.value;
  const said = outputs(about);
  const mixing = about.contributions.filter(weightsOf);
  const live = mixing.filter((part) => !isSilent(part, about.heads, edits));
  const memory = about.contributions.some((part) => part.endsWith("recurrence.out") && !isSilent(part, about.heads, edits));
  const [pointed, setPointed] = useState<Spot | null>(null);
  const order = useMemo(() => orderOf(face), [face]);
  const made = useMemo(() => parts(shown.value!, at, ids.length), [shown.value, at, ids]);
  const read = useMemo(() => about.stream.map((name) => saidBy(values, name, ids.length, at)), [about, values, ids, at]);
  const before = useMemo(() => compared && about.stream.map((name) => saidBy(compared, name, ids.length, at)), [about, compared, ids, at]);
  const rows = useMemo((): FlowRow[] => about.stream.map((name, place) => {
    const [id, probability] = [read[place].ids[at], read[place].shares[at]];
    const old = before && before[place].ids[at] !== id ? ` (${visible(said[before[place].ids[at]])})` : "";
    return { name: placeName(name), vectors: values[name].data, says: { token: said[id], probability, text: number(probability) + old } };
  }), [about, said, values, at, read, before, language.value]);
  const start = lengthAt(values, "embed", at);
  const places = flowPlaces(made, columns.value, narrow.value);
  const last = about.stream.length - 1;
  const spot = pointed && pointed.row <= last && pointed.column < ids.length ? pointed : { row: last, column: at };
  const name = about.stream[spot.row];
  const vector = row(values[name], 0, spot.column);
  const strongest = made.reduce((best, part, place) => (part.weights && part.length > (made[best]?.length ?? 0) ? place : best), -1);
  const weights = made[strongest]?.weights;
  const most = weights ? Array.from(weights).reduce((best, each, source) => (each > weights[best] ? source : best), 0) : -1;
  const enter = (part: string) => {
    block.value = Number(part.split(".")[1]);
    goTo("heads");
  };
  return (
    <section aria-labelledby="overview" onPointerLeave={() => setPointed(null)}
      onFocusOut={({ currentTarget, relatedTarget }: FocusEvent) => (currentTarget as Element).contains(relatedTarget as Node | null) || setPointed(null)}>
      <div class="prose">
        <h2 id="overview" data-gathers={live.length > 0}>{title(mixing, live, memory, seesAll(about))}</h2>
        <p>
          {rich("A pane is {count} numbers: colour for plus, lead for minus. At the right the stream of {token}: its embedding, which are the numbers learned for it, and all that is written to it on the way down.", {
            count: <Live value={about.d_model} digits={0} />, token: <Token id={ids[at]} />,
          })}{" "}
          {live.length ? t("A ribbon is as wide as the vector it adds is long.") : t("A thread is as wide as the vector it adds is long.")}{" "}
          {weights && most >= 0 && <span class="tells">{rich(seesAll(about) ? "Attention brings ribbons of colour from other tokens, in block {block} most from {token} with {weight} of the weight." : "Attention brings ribbons of colour from tokens before it, in block {block} most from {token} with {weight} of the weight.", {
            block: about.contributions[strongest].split(".")[1], token: <Token id={ids[most]} />, weight: <Live value={weights[most]} token={tokens.value[most]} />,
          })}</span>}{" "}
          {about.contributions.some((part) => part.endsWith("mlp.out")) && t("Feed-forward, the lens at its side, works on one pane alone.")}{" "}
          {about.source && t("Cross-attention, a lens as well, brings what the encoder has read.")}
        </p>
        <p>
          {rich(about.labels ? "The last pane is read off as a label: {token} with {probability}." : "The last pane is read off as a token: {token} with {probability}.", { token: <Said id={read[last].ids[at]} />, probability: <Live value={read[last].shares[at]} token={said[read[last].ids[at]]} /> })}
          {before && <>{" "}{rich("The unchanged model says {token} with {probability}.", { token: <Said id={before[last].ids[at]} />, probability: <Live value={before[last].shares[at]} token={said[before[last].ids[at]]} /> })}</>}
        </p>
      </div>
      {narrow.value && <p class="switches" id="parts">{about.contributions.map((part) => <label key={part}>{contributionName(part)} <Switch part={part} /></label>)}</p>}
      <Figure id="overview" command={explained()} label={t("The whole computation, from the embedding down to the prediction")} python={traced(name, `0, ${spot.column}`)}
        caption={<>
          {live.length > 0 && t("A ribbon's width is its weight, the mean of the heads, times the length of what attention adds here.")}{" "}
          {t("The order of a pane's numbers is fixed; those that move together lie together. At the far right: what the stream would say if it ended there. Point at a pane to unroll it, choose one of its numbers to open it.")}{" "}
          {mixing.length > 0 && !narrow.value && t("Choose “{part}” to see its heads.", { part: contributionName(mixing[mixing.length - 1]) })}
        </>}>
        <div class="line">
          {!narrow.value && (
            <div class="flow-names" id="parts" style={{ height: `${places.bottom}px`, width: `${gutter.value}px` }}>
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
              order={order} lane={lane.value} margin={margin.value} named={narrow.value} picked={{ row: last, column: at }} onPoint={(spot) => { if (spot) setPointed(spot); }} onPick={({ column }) => (chosen.value = column)}
              say={({ row: line, column }) => t(read[line].ids[column] < 0 ? "{token} after {place}" : "{token} after {place}: says {said}, {probability}", { token: visible(tokens.value[column]), place: placeName(about.stream[line]), said: visible(said[read[line].ids[column]] ?? ""), probability: number(read[line].shares[column]) })} />
          </div>
        </div>
        <Line name={<>{t("pane of {token}, position {position}", { token: visible(tokens.value[spot.column]), position: spot.column })}<br /><small>{placeName(name)}</small></>}>
          <Unrolled label={t("The numbers of one pane")} values={vector} token={tokens.value[spot.column]} width={columns.value.edges[ids.length]} order={order}
            name={(dimension) => t("dimension {number}", { number: dimension })} onPick={({ column }) => show(name, [0, spot.column, order[column]])} />
        </Line>
      </Figure>
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
