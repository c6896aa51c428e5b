// How it learned: the losses by step, and the run's weights at some of them. A chosen frame is shown by the whole page.

import { useEffect, useRef, useState } from "preact/hooks";
import { choose, isWatched, reading, stops } from "../film";
import { visible } from "../marks/colour";
import { Learning, columnsOf } from "../marks/learning";
import { frame, origin, position } from "../state";
import { N, Sentence, number, rich, t } from "../words";
import { Figure, Line } from "./Figure";
import { narrow, room } from "./layout";
import { Live, Token } from "./pieces";

/** Milliseconds that a frame stays when the film plays. */
const PACE = 900;
const WIDEST = 1080;
/** Half of a slider's thumb, about. */
const THUMB = 8;
/** The curves' height, and the names of the rows with their places. */
const TALL = 260;
const NAMES: [Sentence, number][] = [[N("loss, in nats"), -4], [N("after the step"), TALL], [N("next token"), TALL + 38], [N("probability"), TALL + 79], [N("loss on the sentence"), TALL + 100]];
/** The least strength with which a token is still seen as one. */
const FAINT = 0.12;

/** While a frame is shown: which, and the way back. */
export function Framed() {
  const { step, trained, film } = origin.value!.about;
  if (trained === undefined) return null;
  const to = (by: number, name: string) => {
    const next = stops.value[stops.value.indexOf(step) + by];
    return next !== undefined && <button onClick={() => choose(next)}>{name}</button>;
  };
  return (
    <div class="edits">
      <span role="status">{t("This is the model after step {step} of {steps}.", { step, steps: film!.last })}</span>{" "}
      {to(-1, t("earlier"))}{to(1, t("later"))}
      <button onClick={() => (frame.value = null)}>{t("return to the trained model")}</button>
    </div>
  );
}

export function Film() {
  const { about } = origin.value!;
  const { film, trained = about.step } = about;
  const node = useRef<HTMLElement>(null);
  const [isPlaying, setPlaying] = useState(false);
  const all = stops.value;
  const has = film !== undefined && !about.task;
  const [at, last] = [all.indexOf(about.step), all.length - 1];
  useEffect(() => {
    const observer = new IntersectionObserver(([{ isIntersecting }]) => (isWatched.value = isIntersecting), { rootMargin: "300px" });
    if (node.current) observer.observe(node.current);
    return () => observer.disconnect();
  }, [has]);
  useEffect(() => {
    if (at === last) setPlaying(false);
    const next = isPlaying && at < last ? setTimeout(() => choose(all[at + 1]), PACE) : 0;
    return () => clearTimeout(next);
  }, [isPlaying, at, all, last]);
  if (!film || !has) return null;
  const told = all.map((step) => reading(step, position.value));
  const width = Math.min(room.value, WIDEST);
  const [first, second] = columnsOf(all.length, width);
  const wide = second - first;
  const say = (stop: number) => {
    const [step, one] = [t(all[stop] === trained ? N("step {step}, the trained model") : N("step {step}"), { step: all[stop] }), told[stop]];
    return one ? t("{step}: {token} comes next with {share}; loss on the sentence {loss}", { step, token: visible(about.tokens[one.id]), share: number(one.share), loss: number(one.loss) }) : step;
  };
  const label = t("How it learned");
  return (
    <section class="film" aria-labelledby="film" ref={node}>
      <div class="prose">
        <h2 id="film">{label}</h2>
        <p>{t("The run has kept its weights {n} times. Choose a step: the whole page shows the model as it was then.", { n: all.length })}</p>
        <Learnt all={all} told={told} end={all.indexOf(trained)} />
      </div>
      <Figure id="film" label={label} caption={<>
        {t("Loss of single training batches and on the validation split; under each step the token that the model then found likeliest after the chosen one. The weights of a frame are rounded to float16.")}{" "}
        {about.baselines && t("Dotted: tables of n-grams, on the test split.")}
      </>}>
        <Line name={!narrow.value && <div class="flow-names">{NAMES.map(([name, top]) => <span class="flow-name" style={{ top: `${top}px` }}>{t(name)}</span>)}</div>}>
          <Learning label={label} stops={all} training={{ name: t("training"), curve: film.training }} validation={{ name: t("validation"), curve: film.validation }}
            lines={(about.baselines ?? []).map(({ order, loss }) => ({ loss, name: t("{n}-gram {loss}", { n: order, loss: number(loss) }) }))}
            said={told.map((one) => one && { pane: { token: about.tokens[one.id], strength: FAINT + (1 - FAINT) * one.share }, notes: [one.share, one.loss].map((each) => (Number.isNaN(each) ? "" : number(each))) })}
            chosen={at} width={width} height={narrow.value ? 200 : TALL} say={say} onPick={({ column }) => choose(all[column])} />
          <div class="film-slider" style={{ marginLeft: `${first + wide / 2 - THUMB}px`, width: `${last * wide + 2 * THUMB}px` }}>
            <input type="range" min="0" max={last} step="1" value={at} aria-label={t("The step whose weights the page shows")} aria-valuetext={say(at)}
              onInput={(event) => { setPlaying(false); choose(all[Number(event.currentTarget.value)]); }} />
          </div>
        </Line>
      </Figure>
      <p class="controls">
        <button class="button" onClick={() => { if (!isPlaying && at === last) choose(all[0]); setPlaying(!isPlaying); }}>{isPlaying ? t("pause") : t("play the film")}</button>
      </p>
    </section>
  );
}

/** Since when the model has said what it says in the end, at the trained model's stop; nothing while that is computed. */
function Learnt({ all, told, end }: { all: number[]; told: ReturnType<typeof reading>[]; end: number }) {
  const { tokens } = origin.value!.about;
  const said = told.slice(0, end + 1);
  if (said.some((one) => !one)) return null;
  const [first, last] = [said[0]!, said[end]!];
  const since = said.reduce((from, one, at) => (one!.id === last.id ? from : at + 1), 0);
  const share = ({ share, id }: typeof last) => <Live value={share} token={tokens[id]} />;
  return (
    <p>
      {rich("After the chosen token the trained model expects {token}, with {share}.", { token: <Token id={last.id} />, share: share(last) })}{" "}
      {since ? rich(since < end ? N("It has done so from step {step} on; at first it expected {token}, with {share}.") : N("At first it expected {token}, with {share}."), { step: number(all[since], 0), token: <Token id={first.id} />, share: share(first) }) : t("It has done so from the beginning.")}
    </p>
  );
}
