// The sentence: what is typed, its tokens as panes, and how the model rated each beside a table that only counted.

import { computed, effect, signal } from "@preact/signals";
import { useCallback, useMemo } from "preact/hooks";
import { mean, surprisals } from "../compute/readings";
import { softmax } from "../decoding/filters";
import { Hanging } from "../marks/bars";
import { visible } from "../marks/colour";
import { Panes } from "../marks/panes";
import { CountsData, Ngrams } from "../ngrams";
import { marked } from "../numbers/opened";
import { chosen, cropped, encoded, gapAt, gapsIn, hide, ids, position, shown, origin, text, type } from "../state";
import { largest, rowOf } from "../rows";
import { RATED, Values, atPosition } from "../source";
import { ratings, saidBy } from "../wanted";
import { N, Sentence as Written, number, ordinal, plural, rich, t } from "../words";
import { Figure, Line } from "./Figure";
import { Habit } from "./Heads";
import { columns, narrow, tokens } from "./layout";
import { fillings } from "./Gaps";
import { explained, Field, Live, never, Said, Token, traced } from "./pieces";

export { Token } from "./pieces";
export { visible } from "../marks/colour";

/** The counts that the page carries, once they are unpacked. */
const unpacked = signal<{ of?: CountsData; counts: Ngrams | null }>({ counts: null });
export const counts = computed(() => (origin.value && unpacked.value.of === origin.value.about.counts ? unpacked.value.counts : null));
effect(() => {
  const of = origin.value?.about.counts;
  if (of && unpacked.peek().of !== of) void Ngrams.open(of).then((counts) => origin.peek()?.about.counts === of && (unpacked.value = { of, counts }));
});

/** Whether the model has a token for the end of a line; else lines are joined by a space. */
const readsLines = (): boolean => origin.value!.about.tokenizer.kind !== "characters" || !origin.value!.encode("\n").unseen.length;

/** From so many numbers on, a language model is no small one. */
const SMALL = 1e7;
/** A second guess that is less probable is not named. */
const LEAST_GUESS = 0.01;
const READS: Record<string, Written> = {
  characters: N("It reads letter by letter."),
  bytes: N("It reads byte by byte."),
};

/** What this is, who answers, and what the answer is; of one head alone, what it does. */
export function Introduction({ alone }: { alone: boolean }) {
  const { about } = origin.value!;
  return (
    <p class="introduction">
      {t(about.parameters < SMALL ? "This small language model has {count} numbers." : "This language model has {count} numbers.", { count: about.parameters })}{" "}
      {!alone && t(READS[String(about.tokenizer.kind)] ?? N("It reads in tokens, which are pieces of words."))}{" "}
      {about.fills && (about.fills.ahead ? t("It continues a text, and fills gaps.") : t("It fills gaps."))}{" "}
      {about.labels && t("It reads a text whole and names its label.")}{" "}
      <span class="guess">{shown.value && <Guess />}</span>{" "}
      {about.source && <>{t("It reads one text whole and answers with another, token by token.")}{" "}</>}
      {alone ? <Habit /> : about.served ? t("Type anything: all is computed on this machine.") : t("Type anything: all is computed in this browser.")}
    </p>
  );
}

/** The model's guess: what comes after the sentence, what fills its gap, which label it has. */
function Guess() {
  const { from: { about }, ids, values, edits } = shown.value!;
  const share = (value: number) => <span class="live">{number(100 * value, 0)} %</span>;
  if (about.task) {
    const gaps = gapsIn(about, ids);
    const gap = gapAt(position.value) ?? gaps[0];
    if (gap === undefined && !about.labels) return null;
    const shares = about.labels ? softmax(values.logits.data) : fillings(about, values, gap);
    const [first, second = first] = largest(shares, 2);
    return <>{rich(about.labels ? "It says {first} ({most})." : gaps.length > 1 ? "In gap {which} of {n} it guesses {first} ({most}) or {second} ({next})." : "In the gap it guesses {first} ({most}) or {second} ({next}).", { which: gaps.indexOf(gap) + 1, n: gaps.length, first: <Said id={first} />, most: share(shares[first]), second: <Said id={second} />, next: share(shares[second]) })}</>;
  }
  const last = ids.length - 1;
  const logits = values.logits || values[atPosition("logits", last)] ? rowOf(values, "logits", last) : null;
  const alone = saidBy(values, "logits", ids.length, last);
  const [first, second] = logits ? largest(logits, 2) : [alone.ids[last], -1];
  const most = alone.shares[last];
  const next = logits && second >= 0 ? most * Math.exp(logits[second] - logits[first]) : 0;
  if (!(most > 0) || first < 0) return null;
  const told = { first: <Token id={first} />, most: share(most), second: <Token id={second} />, next: share(next) };
  return (
    <>
      {next >= LEAST_GUESS
        ? rich(edits.length ? "With your changes it guesses that {first} ({most}) or {second} ({next}) comes next." : "It guesses that {first} ({most}) or {second} ({next}) comes next.", told)
        : rich(edits.length ? "With your changes it guesses that {first} ({most}) comes next." : "It guesses that {first} ({most}) comes next.", told)}
    </>
  );
}

export function Sentence() {
  const { unseen } = encoded.value;
  return (
    <section class="sentence" aria-labelledby="sentence">
      <h2 id="sentence" class="unseen">{t("The sentence")}</h2>
      <Field label={t("Type a sentence")} text={text.value} isLine={!readsLines()} onText={type} />
      <p role="status" class="remark">
        {!ids.value.length && t(origin.value!.about.task ? "Type a few letters: the model reads them." : "Type a few letters: the model reads them and says what comes next.")}
        {never(unseen)}{" "}
        {cropped.value > 0 && plural(cropped.value, "The sentence is too long: the first token is left out.", "The sentence is too long: the first {n} tokens are left out.")}
      </p>
    </section>
  );
}

/** The panes of the sentence. */
export function SentenceLine() {
  const { ids, from: { about } } = shown.value!;
  const panes = useMemo(() => tokens.value.map((token) => ({ token })), [tokens.value]);
  return (
    <div class="sentence-line">
      <Line name={<>{plural(ids.length, "{n} token", "{n} tokens")}<br /><small>{t("choose one: ← →")}</small></>}>
        <Panes label={t("The tokens of the sentence")} panes={panes} columns={columns.value} chosen={position.value} marked={marked.value} open={!about.task && position.value === ids.length - 1 ? "?" : undefined}
          height={narrow.value ? 40 : 48} say={(at) => t("{token}, id {id}, position {position}", { token: visible(tokens.value[at]), id: String(ids[at]), position: at })}
          onPick={({ column }) => (about.task === "gaps" && column === position.value ? hide(column) : (chosen.value = column))} />
      </Line>
    </div>
  );
}

/** Until each token was hidden in its turn. */
const NOT_YET: Values = { [RATED]: { shape: [], data: new Float64Array() } };

export function Surprise() {
  const { from: { about }, ids, truth, values, compared } = shown.value!;
  const isHiding = about.task === "gaps";
  const read = useCallback((from: Values) => ratings(isHiding && !from[RATED] ? NOT_YET : from, ids), [isHiding, ids]);
  const own = useMemo(() => read(values), [read, values]);
  const before = useMemo(() => compared && read(compared).losses, [read, compared]);
  const counted = useMemo(() => counts.value && surprisals(counts.value.probabilities(ids)), [counts.value, ids]);
  const lines = before ?? counted ?? undefined;
  const notes = useMemo(() => narrow.value ? [] : [
    Array.from(own.ranks, (rank) => ({ text: rank ? String(rank) : "", bold: rank > 1 })),
    ids.map((id) => ({ text: String(id) })),
  ], [own, ids, narrow.value]);
  if (ids.length < 2 || about.labels) return null;
  const worst = own.losses.reduce((best, each, place) => (each > own.losses[best] || Number.isNaN(own.losses[best]) ? place : best), 0);
  const name = about.tokens[truth[worst]];
  const isKnown = !Number.isNaN(own.losses[worst]);
  const label = t("How surprised the model was at each token");
  return (
    <Figure id="surprise" label={label} command={explained()} python={isHiding ? undefined : traced("logits", "0, :-1]").replace(/\]$/, "") + ".log_softmax(-1)"}
      caption={<>
        {isHiding && t("Each token is hidden in its turn, and the model says what it was.")}{" "}
        {t("A bar is the model's surprise at a token, −ln p, in nats: 0 where it was sure, {even} where it gave even odds.", { even: number(Math.LN2) })}{" "}
        {before ? t("The line across it is the surprise of the unchanged model.")
          : counted ? t("The line across it is that of a {n}-gram table counted on its training text.", { n: counts.value!.order }) : ""}{" "}
        {isKnown && rich("Its biggest surprise was {token}: p = {probability}, its {rank} guess ({loss} nats).", { token: <Token id={truth[worst]} />, probability: number(Math.exp(-own.losses[worst]), 3), loss: <Live value={own.losses[worst]} token={name} />, rank: ordinal(own.ranks[worst]) })}{" "}
        {!isKnown ? "" : lines ? rich(before ? "Over this sentence {model} nats a token, before {other}." : "Over this sentence {model} nats a token, the table {other}.", { model: <Live value={mean(own.losses)} />, other: <Live value={mean(lines)} /> })
          : rich("Over this sentence {model} nats a token.", { model: <Live value={mean(own.losses)} /> })}
      </>}>
      <Line name={<><div style={{ height: narrow.value ? "auto" : "92px" }}>{t("surprise")}</div>{!narrow.value && <><div class="note">{t("rank")}</div><div class="note">{t("id")}</div></>}</>}>
        <Hanging label={label} tokens={tokens.value} columns={columns.value} values={own.losses} lines={lines} notes={notes} unit={t("nats")}
          onPick={({ column }) => (chosen.value = column)}
          say={(at) => Number.isNaN(own.losses[at]) ? (isHiding ? visible(tokens.value[at]) : t("nothing comes before the first token")) : t("{token}: {loss} nats, rank {rank}", { token: visible(tokens.value[at]), loss: number(own.losses[at], 3), rank: own.ranks[at] }) + (lines ? ` · ${number(lines[at], 3)}` : "")} />
      </Line>
    </Figure>
  );
}
