// The same sentence, two readers: what surprises each, what each expects, what one gains, and how both write on.

import { batch } from "@preact/signals";
import { useMemo } from "preact/hooks";
import { Reader, isPairs, mixes, ordered, reader } from "../compute/readers";
import { differences, mean } from "../compute/readings";
import { softmax } from "../decoding/filters";
import { isRunning, made, others, pause } from "../decoding/session";
import { BarList, Hanging } from "../marks/bars";
import { visible } from "../marks/colour";
import { Panes } from "../marks/panes";
import { reach, signed } from "../marks/plain";
import { Gained, Mark, Ruler } from "../marks/readers";
import { largest, rowOf } from "../rows";
import { atPosition } from "../source";
import { Shown, chosen, more, other, position, relation, run, shown, writes } from "../state";
import { language, N, number, rich, t } from "../words";
import { FAINT, Piece } from "./Continuation";
import { Figure, Line } from "./Figure";
import { Group } from "./Group";
import { columns, narrow, room, tokens, width } from "./layout";
import { Live, Token, command } from "./pieces";

/** Pixels of the longest bar, of the numbers right of the bars, and of a list. */
const [TALL, UNIT, MOST_WIDE] = [112, 76, 300];
/** Tokens of a list. */
const EXPECTED = 4;

/** How the first reader of a pair differs from the second, where that is known. */
function between([one, two]: readonly Reader[]) {
  const known = relation.value;
  const [a, b] = [one.from.about, two.from.about];
  const turned = known?.run === b.name && known.against === a.name;
  if (!known || !(turned || (known.run === a.name && known.against === b.name))) return null;
  const found = known.difference;
  const [difference, low, high] = [found?.difference ?? NaN, found?.low ?? NaN, found?.high ?? NaN];
  return {
    sameBatches: known.batches !== "other",
    isAttention: String(known.changed) === "model.attention" && mixes(a) && !mixes(b),
    // Of the second less the first: what the first gains.
    gain: turned ? { mean: difference, low, high } : { mean: -difference, low: -high, high: -low },
  };
}

/** A name may go on in the next line after a slash. */
const Name = ({ of }: { of: Reader }) => <b>{of.from.about.name.split("/").map((part, at) => <>{at > 0 && <>/<wbr /></>}{part}</>)}</b>;

/** The other one is taken apart, and the one before stands beside it. */
const turn = () => batch(() => ([run.value, other.value] = other.value < 0 ? [1 - run.value, -1] : [other.value, run.value]));

/** Whether two have read the sentence, and something in it can surprise them. */
export const areTwo = (): boolean => Boolean(shown.value?.beside) && shown.value!.ids.length > 1;

export function Readers() {
  const now = shown.value!;
  return areTwo() ? <Both now={now} beside={now.beside!} /> : null;
}

function Both({ now, beside }: { now: Shown; beside: NonNullable<Shown["beside"]> }) {
  const { ids, values, from, edits } = now;
  const at = position.value;
  const pair = useMemo(() => ordered(reader(from, values, ids), reader(beside.from, beside.values, ids)), [from, values, ids, beside]);
  const [one, two] = pair;
  const gains = useMemo(() => differences(two.losses, one.losses), [one, two]);
  const known = between(pair);
  const name = one.from.about.name;
  const isOneRun = from.trained?.about === beside.from.about;
  const count = { count: gains.filter((each) => each > 0).length, all: ids.length - 1, name };
  const most = Math.max(...pair.map(({ losses }) => reach(losses, 0.5))) * 1.02;
  const list = narrow.value ? width.value : Math.min(MOST_WIDE, room.value - columns.value.edges[ids.length] - UNIT);
  const next = pair.map((each) => expected(each, at));
  const first = t("nothing comes before the first token");
  const share = Math.max(...next.map((rows) => rows[0]?.value ?? 0));
  return (
    <section class="readers" aria-labelledby="readers">
      <h2 id="readers" class="prose">{t("The same sentence, two readers.")}</h2>
      <p class="prose">
        {isOneRun && t("One run: after step {step}, and as it was trained.", { step: from.about.step })}
        {known?.sameBatches && (known.isAttention ? t("Both were trained on the same batches; only {name} has attention.", { name }) : t("Both were trained on the same batches."))}{" "}
        <em>{t("Type, choose a token, draw: both follow.")}</em>
      </p>
      <Group class="steps prose" label={t("In detail below:")}>
        {!isOneRun && t("In detail below:")}
        {!isOneRun && pair.map((each) => <button aria-pressed={each.from === from} onClick={() => each.from !== from && turn()}>{each.from.about.name}</button>)}
        {edits.length > 0 && <span role="status">{t("What is changed is changed in {name} alone.", { name: from.about.name })}</span>}
      </Group>
      <Figure id="readers" label={t("How surprised two readers were at each token")} command={pair.map((each) => command("inspect", "--text", each.from.about)).join("; ")}
        caption={<>
          {t("A bar is the surprise at a token, in nats, of both in one scale; below, by how much that of {name} is smaller; under the line it is larger.", { name })}{" "}
          {rich("Over this sentence it gains {mean} nats a token.", { mean: <Live value={mean(gains)} /> })}
        </>}>
        <Line name="">
          <div class="both">
            <Panes label={t("The tokens of the sentence")} panes={tokens.value.map((token) => ({ token }))} columns={columns.value} chosen={at} height={40}
              say={(place) => visible(tokens.value[place])} onPick={({ column }) => (chosen.value = column)} />
          </div>
        </Line>
        {pair.map((each, which) => (
          <Line name={<><Name of={each} /><br /><small>{t("{loss} nats here", { loss: number(mean(each.losses)) })}</small>{each.from.about.loss !== undefined && <><br /><small>{t("{loss} on the test text", { loss: number(each.from.about.loss, 3) })}</small></>}</>}>
            <div class="both">
              <Hanging label={t("How surprised {name} was at each token", { name: each.from.about.name })} tokens={tokens.value} columns={columns.value} values={each.losses} most={most} height={TALL} unit={t("nats")}
                onPick={({ column }) => (chosen.value = column)}
                say={(place) => (place ? t("{token}: {loss} nats", { token: visible(tokens.value[place]), loss: number(each.losses[place], 3) }) : first)} />
              <div class="says">
                <p>{rich("{name} says after {token}:", { name: <Name of={each} />, token: <Token id={ids[at]} /> })}</p>
                <BarList label={t("What {name} expects next", { name: each.from.about.name })} rows={next[which]} width={list} most={share} say={(row) => `${visible(next[which][row].token)}: ${next[which][row].after}`} />
              </div>
            </div>
          </Line>
        ))}
        <Line name={<><b>{t("gained")}</b><br /><small>{known?.isAttention ? t("by attention, token by token") : t("by {name}, token by token", { name })}</small></>}>
          <div class="both">
            <Gained label={t("How much smaller the surprise of {name} is at each token", { name })} columns={columns.value} values={gains} scale={TALL / most} onPick={({ column }) => (chosen.value = column)}
              say={(place) => (place ? t("{token}: {gain} nats", { token: visible(tokens.value[place]), gain: signed(gains[place], 3) }) : first)} />
            <small class="count">{known?.isAttention ? t("{count} of {all} tokens are easier with attention", count) : t("{count} of {all} tokens are easier for {name}", count)}</small>
          </div>
        </Line>
        <Losses pair={pair} />
      </Figure>
      {pair.map((each, which) => (each.from !== from || !edits.length) && <Pairs of={each} said={next[which]} />)}
      {known && <Difference pair={pair} gain={known.gain} />}
      <Written pair={pair} />
    </section>
  );
}

/** The likeliest tokens after the chosen one. */
function expected({ from, values }: Reader, at: number) {
  if (!values.logits && !values[atPosition("logits", at)]) return [];
  const shares = softmax(rowOf(values, "logits", at));
  return largest(shares, EXPECTED).map((id) => ({ id, token: from.about.tokens[id], value: shares[id], after: number(shares[id]) }));
}

/** The tables that count, and where the two readers stand among them. */
function Losses({ pair }: { pair: readonly Reader[] }) {
  const [one, two] = pair.map(({ from }) => from.about);
  const counted = one.baselines;
  const marks = useMemo((): Mark[] => [
    ...(counted ?? []).map(({ order, loss }) => ({ name: t("{order}-gram", { order }), value: loss, isModel: false })),
    ...[one, two].map((about) => ({ name: about.name, value: about.loss!, isModel: true })),
  ], [counted, one, two, language.value]);
  if (one.loss === undefined || two.loss === undefined || !counted?.length || JSON.stringify(counted) !== JSON.stringify(two.baselines)) return null;
  return (
    <Line name={<><b>{t("test loss")}</b><br /><small>{t("nats per token, beside tables of n-grams that only counted")}</small></>}>
      <Ruler label={marks.map((each) => `${each.name} ${number(each.value, 3)}`).join(" · ")} marks={marks} width={Math.min(room.value, 980)} better={t("← better")} />
    </Line>
  );
}

/** What a reader says that sees the last token alone, where its numbers show it. */
function Pairs({ of, said }: { of: Reader; said: ReturnType<typeof expected> }) {
  const { about } = of.from;
  const { ids } = shown.value!;
  const at = position.value;
  if (mixes(about) || said.length < 2 || !isPairs(of, ids, at)) return null;
  const counted = about.baselines?.find(({ order }) => order === 2)?.loss;
  const guess = ({ id, token, value }: (typeof said)[number]) => <><Token id={id} /> <Live value={value} token={token} /></>;
  return (
    <p class="prose">
      {rich("Without attention, {name} is a table of pairs: after every {token} it says {first}, {second}, whatever stood before.", { name: about.name, token: <Token id={ids[at]} />, first: guess(said[0]), second: guess(said[1]) })}{" "}
      {about.loss !== undefined && counted !== undefined && rich("Its test loss is {loss}; that of counted pairs is {counted}.", { loss: <Live value={about.loss} digits={3} />, counted: <Live value={counted} digits={3} /> })}
    </p>
  );
}

/** What `vitral compare` measures. */
function Difference({ pair, gain: { mean, low, high } }: { pair: readonly Reader[]; gain: { mean: number; low: number; high: number } }) {
  if (!Number.isFinite(low) || !Number.isFinite(high)) return null;
  const [one, two] = pair.map(({ from }) => from.about.name);
  const [better, worse, least, most] = mean < 0 ? [two, one, -high, -low] : [one, two, low, high];
  const places = { better, worse, difference: number(Math.abs(mean), 3), low: number(least, 3), high: number(most, 3) };
  return (
    <p class="prose">
      {t(low * high > 0
        ? N("On the test text the loss of {better} is {difference} nats per token smaller than that of {worse}; the 95 % interval is {low} to {high}.")
        : N("On the test text the loss of {better} is {difference} nats per token smaller than that of {worse}, but the 95 % interval, {low} to {high}, contains 0: neither is shown to be better."), places)}
    </p>
  );
}

/** Both go on from the chosen token. */
function Written({ pair }: { pair: readonly Reader[] }) {
  return (
    <>
      <p class="controls">
        <button class="button" onClick={() => (isRunning.value ? pause() : (writes.value = made.value.length + more.value))}>{isRunning.value ? t("pause") : t("both write on")}</button>
        <span class="soft">{t("with the same random numbers, from the chosen token")}</span>
      </p>
      {made.value.length > 0 && pair.map((each) => (
        <div class="line wrote">
          <div class="line-name"><Name of={each} /></div>
          <div>{(each.from === shown.value!.from ? made : others).value.map(({ id, probability }) => <Piece id={id} strength={Math.max(FAINT, probability)} />)}</div>
        </div>
      ))}
    </>
  );
}
