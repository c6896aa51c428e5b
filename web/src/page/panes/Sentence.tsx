// The sentence: what is typed, its tokens as panes, and how the model rated each beside a table that only counted.

import { effect, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { mean, surprisals } from "../compute/readings";
import { Hanging } from "../marks/bars";
import { visible } from "../marks/colour";
import { Panes } from "../marks/panes";
import { CountsData, Ngrams } from "../ngrams";
import { marked } from "../numbers/opened";
import { chosen, cropped, encoded, ids, position, shown, source, text } from "../state";
import { ratings } from "../wanted";
import { number, plural, rich, t } from "../words";
import { Figure, Line } from "./Figure";
import { columns, narrow, tokens } from "./layout";
import { explained, Live, Token, traced } from "./pieces";

export { Token } from "./pieces";
export { visible } from "../marks/colour";

/** The counts that the page carries, once they are unpacked. */
export const counts = signal<Ngrams | null>(null);

export function useCounts(): void {
  useEffect(
    () =>
      effect(() => {
        const data = source.value?.about.counts as CountsData | undefined;
        if (data && !counts.peek()) void Ngrams.open(data).then((opened) => (counts.value = opened));
      }),
    [],
  );
}

export function Sentence() {
  const { unseen } = encoded.value;
  return (
    <section class="sentence" aria-labelledby="sentence">
      <h2 id="sentence" class="unseen">{t("The sentence")}</h2>
      <input
        type="text"
        spellcheck={false}
        autocomplete="off"
        aria-label={t("Type a sentence")}
        value={text.value}
        onInput={(event) => {
          text.value = event.currentTarget.value;
          chosen.value = -1;
        }}
      />
      <p role="status" class="remark">
        {!ids.value.length && t("Type a few letters: the model reads them and says what comes next.")}
        {unseen.length > 0 &&
          plural(unseen.length, "The model has never seen {which}; it is left out.", "The model has never seen {which}; they are left out.", {
            which: [...new Set(unseen)].map((each) => `“${each}”`).join(" "),
          })}{" "}
        {cropped.value > 0 && plural(cropped.value, "The sentence is too long: the first token is left out.", "The sentence is too long: the first {n} tokens are left out.")}
      </p>
    </section>
  );
}

/** The panes of the sentence. */
export function SentenceLine() {
  const { ids } = shown.value!;
  const panes = useMemo(() => tokens.value.map((token) => ({ token })), [tokens.value]);
  return (
    <div class="sentence-line">
      <Line name={<>{plural(ids.length, "{n} token", "{n} tokens")}<br /><small>{t("choose one: ← →")}</small></>}>
        <Panes label={t("The tokens of the sentence")} panes={panes} columns={columns.value} chosen={position.value} marked={marked.value} open={position.value === ids.length - 1 ? "?" : undefined}
          height={narrow.value ? 40 : 48} say={(at) => t("{token}, token {id}, place {place}", { token: visible(tokens.value[at]), id: String(ids[at]), place: at + 1 })}
          onPick={({ column }) => (chosen.value = column)} />
      </Line>
    </div>
  );
}

export function Surprise() {
  useCounts();
  const { ids, values, compared } = shown.value!;
  const own = useMemo(() => ratings(values, ids), [values, ids]);
  const before = useMemo(() => compared && ratings(compared, ids).losses, [compared, ids]);
  const counted = useMemo(() => counts.value && surprisals(counts.value.probabilities(ids)), [counts.value, ids]);
  const lines = before ?? counted ?? undefined;
  const notes = useMemo(() => narrow.value ? [] : [
    Array.from(own.ranks, (rank) => ({ text: rank ? String(rank) : "", bold: rank > 1 })),
    ids.map((id) => ({ text: String(id) })),
  ], [own, ids, narrow.value]);
  if (ids.length < 2) return null;
  const worst = own.losses.reduce((best, each, place) => (place && !(each <= own.losses[best]) ? place : best), 1);
  const name = source.value!.about.tokens[ids[worst]];
  return (
    <Figure id="surprise" label={t("How surprised the model was at each token")} command={explained()} python={traced("logits", "0, :-1]").replace(/\]$/, "") + ".log_softmax(-1)"}
      caption={<>
        {t("A bar is the model's surprise at a token, −ln p.")}{" "}
        {before ? t("The line across it is its surprise with everything switched on.")
          : counted ? plural(counts.value!.order, "The line across it is that of a table that counted every token of the same text.", "The line across it is that of a table that counted every {n} tokens of the same text.") : ""}{" "}
        {rich("It expected {token} least: {loss} nats, place {rank}.", { token: <Token id={ids[worst]} />, loss: <Live value={own.losses[worst]} token={name} />, rank: String(own.ranks[worst]) })}{" "}
        {lines ? rich(before ? "Over this sentence {model} nats a token, before {other}." : "Over this sentence {model} nats a token, the table {other}.", { model: <Live value={mean(own.losses)} />, other: <Live value={mean(lines)} /> })
          : rich("Over this sentence {model} nats a token.", { model: <Live value={mean(own.losses)} /> })}
      </>}>
      <Line name={<><div style={{ height: narrow.value ? "auto" : "92px" }}>{t("surprise")}</div>{!narrow.value && <><div class="note">{t("place")}</div><div class="note">{t("id")}</div></>}</>}>
        <Hanging label={t("How surprised the model was at each token")} tokens={tokens.value} columns={columns.value} values={own.losses} lines={lines} notes={notes} unit={t("nats")}
          number={number} onPick={({ column }) => (chosen.value = column)}
          say={(at) => at ? t("{token}: {loss} nats, place {rank}", { token: visible(tokens.value[at]), loss: number(own.losses[at], 3), rank: own.ranks[at] }) + (lines ? ` · ${number(lines[at], 3)}` : "") : t("nothing comes before the first token")} />
      </Line>
    </Figure>
  );
}
