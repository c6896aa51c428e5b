// What the encoder of an encoder-decoder reads: the field, and who looks at it. Each written token looks at the source through
// cross-attention; the tokens of the source look at each other in the encoder.

import { useMemo } from "preact/hooks";
import { headMap, meanOfHeads } from "../compute/readings";
import { visible } from "../marks/colour";
import { layOut } from "../marks/columns";
import { Heat } from "../marks/heat";
import { Panes } from "../marks/panes";
import { open } from "../numbers/opened";
import { largest } from "../rows";
import type { Tensor } from "../source";
import { answer, chosen, crossed, given, isOff, isOwn, origin, position, shown, source, toggle } from "../state";
import { number, plural, rich, t } from "../words";
import { Figure, Line } from "./Figure";
import { Group } from "./Group";
import { gutter, narrow, room, tokens } from "./layout";
import { Field, Live, never, Token, traced } from "./pieces";

/** Pixels of a letter of the source, at most and at least. */
const [WIDEST, LEAST] = [44, 8.6];

/** The field of the source, above the sentence. */
export function SourceField() {
  const from = source.value;
  if (!from?.about.source) return null;
  const { ids, unseen } = from.encode(given.value, true);
  const cut = ids.length - from.about.source.context;
  return (
    <section class="sentence source" aria-labelledby="source">
      <h2 id="source">{t("It reads:")}</h2>
      <Field label={t("Type what it reads")} text={given.value} isLine onText={answer} />
      <p role="status" class="remark">
        {!ids.length && t("Type a few letters: the encoder reads them, and the decoder answers.")}
        {never(unseen)}{" "}
        {cut > 0 && t("The encoder reads {n} tokens; the rest is left out.", { n: from.about.source.context })}
      </p>
      <p class="remark" role="status">
        {t(isOwn.value ? "It answers by itself, the likeliest token each time, from → to ■:" : "Its answer is given, from → to ■:")}
      </p>
    </section>
  );
}

/** The maps of a kind, or their mean: [rows × columns]. */
const meanOf = (maps: readonly Tensor[]): Float64Array => {
  const all = maps.map((map) => meanOfHeads(map));
  return Float64Array.from(all[0], (_, cell) => all.reduce((sum, map) => sum + map[cell], 0) / all.length);
};

/** The maps of the source, with the chosen head or the mean of all. */
export function Source() {
  const { about } = origin.value!;
  return about.source && shown.value!.values["blocks.0.cross.weights"] ? <Maps /> : null;
}

function Maps() {
  const { about } = origin.value!;
  const { ids, values, from } = shown.value!;
  const read = from.given!;
  const labels = useMemo(() => read.map((id) => about.tokens[id]), [about, read]);
  const columns = useMemo(() => layOut(labels, room.value - 60, labels.length - 1, WIDEST, narrow.value ? LEAST : 19), [labels, room.value, narrow.value]);
  const [at, edge] = [position.value, narrow.value ? 28 : gutter.value];
  const name = (layer: number) => `blocks.${layer}.cross.weights`;
  const heads = Array.from({ length: about.layers }, (_, layer) => Array.from({ length: about.heads }, (_, head) => `${layer}.${head}`)).flat();
  const which = heads.includes(crossed.value) ? crossed.value : "";
  const [layer, head] = which.split(".").map(Number);
  const map = useMemo(() => which ? headMap(values[name(layer)], true, undefined, head) : meanOf(Array.from({ length: about.layers }, (_, each) => values[name(each)])), [values, which, layer, head, about]);
  const row = map.subarray(at * read.length, (at + 1) * read.length);
  const [first, second] = largest(row, 2);
  const inner = useMemo(() => {
    const of = Math.min(which ? layer : about.source!.layers - 1, about.source!.layers - 1);
    const weights = values[`encoder.blocks.${of}.attn.weights`];
    return { of, values: which ? headMap(weights, true, undefined, head) : meanOfHeads(weights) };
  }, [values, which, layer, head, about]);
  const token = (place: number) => visible(tokens.value[place]);
  const label = which ? t("Head {head} of cross-attention: a row for each token that was written, a column for each that is read", { head: which }) : t("Cross-attention, the mean of all heads: a row for each token that was written, a column for each that is read");
  const within = t("The encoder, block {block}: a row for each token that is read, a column for each that it looks at", { block: inner.of });
  const off = which !== "" && isOff(`blocks.${layer}.cross.z`, head);
  return (
    <section class="alignment" aria-labelledby="alignment">
      <div class="prose">
        <h2 id="alignment">{t("Each token it writes looks at what it reads.")}</h2>
        <p>
          {rich(second === undefined || !(row[second] > 0.005) ? "After {token} it looks at {first} with {most} to write the next token." : "After {token} it looks at {first} with {most} and at {second} with {next} to write the next token.", {
            token: <Token id={ids[at]} />, first: <Token id={read[first]} />, most: <Live value={row[first]} token={labels[first]} />,
            second: <Token id={read[second]} />, next: <Live value={row[second]} token={labels[second]} />,
          })}{" "}
          {t("This is cross-attention: the queries are the decoder's, keys and values the encoder's, so no mask hides anything.")}
        </p>
      </div>
      <Line name={t("heads")}>
        <Group class="steps" label={t("Heads of cross-attention")}>
          <button aria-pressed={!which} onClick={() => (crossed.value = "")}>{t("mean of all")}</button>
          {heads.map((each) => <button aria-pressed={each === which} onClick={() => (crossed.value = each)}>{each}</button>)}
          {which && <button class="said" aria-pressed={off} onClick={() => toggle(`blocks.${layer}.cross.z`, head)}>{off ? t("switch it on") : t("switch it off")}</button>}
        </Group>
      </Line>
      <Figure id="alignment" label={label} python={traced(which ? name(layer) : name(about.layers - 1), `0, ${which ? head : ":"}, ${at}`)}
        caption={t("A row looks, a column is read and lends its colour; brightness is the square root of the weight. Choose a row to choose its token.")}>
        <Line name={<>{plural(read.length, "{n} token", "{n} tokens")}<br /><small>{t("read by the encoder")}</small></>}>
          <div style={{ marginLeft: `${edge - gutter.value}px` }}><Panes label={t("The tokens that it reads")} panes={labels.map((each) => ({ token: each }))} columns={columns} marked={first === undefined ? [] : [first]} height={40} say={(place) => visible(labels[place])} /></div>
        </Line>
        <div class="in-gutter">
          <Heat label={label} values={map} tokens={labels} rows={tokens.value} kind="share" columns={columns} row={at} gutter={edge} picked={{ row: at, column: first ?? 0 }}
            say={({ row: time, column }) => `${token(time)} → ${visible(labels[column])}: ${number(map[time * read.length + column], 3)}`}
            onPick={(spot) => { chosen.value = spot.row; if (which) open(name(layer), [0, head, spot.row, spot.column]); }} />
        </div>
      </Figure>
      <Figure id="encoder" label={within} python={traced(`encoder.blocks.${inner.of}.attn.weights`, which ? `0, ${head}` : "0")} caption={t("In the encoder every token sees every other, before it and after it.")}>
        <Line name={<>{t("encoder, block {block}", { block: inner.of })}</>}><span class="soft">{which ? t("head {head}", { head: `${inner.of}.${head}` }) : t("mean of all")}</span></Line>
        <div class="in-gutter">
          <Heat label={within} values={inner.values} tokens={labels} kind="share" columns={columns} gutter={edge}
            say={({ row: one, column }) => `${visible(labels[one])} → ${visible(labels[column])}: ${number(inner.values[one * read.length + column], 3)}`}
            onPick={(spot) => which && open(`encoder.blocks.${inner.of}.attn.weights`, [0, head, spot.row, spot.column])} />
        </div>
      </Figure>
    </section>
  );
}
