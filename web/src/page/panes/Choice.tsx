// What comes next: logits, the filters one by one, the draw, and a text that goes on.

import { useLayoutEffect, useMemo } from "preact/hooks";
import { BarList, Listed } from "../marks/bars";
import { Rod } from "../marks/rod";
import { Sieve } from "../marks/sieve";
import { visible } from "../marks/colour";
import { MOST_SEED, choose, shares } from "../decoding/draw";
import { Filter, Filtered, descending, filtered } from "../decoding/filters";
import { back, before as seen, branch, branches, nextNumber, settle } from "../decoding/session";
import { show } from "../numbers/opened";
import { largest, rowOf } from "../rows";
import { ahead, beams, edits, given, ids, minP, ownNumber, position, sampling, seed, shown, source, origin, temperature, text, topK, topP, writes } from "../state";
import { number, plural, rich, t } from "../words";
import { Ahead, GoingOn } from "./Continuation";
import { Figure } from "./Figure";
import { gutter, narrow, width } from "./layout";
import { Live, Token, command } from "./pieces";
import { counts } from "./Sentence";

const MOST_ROWS = 8;
/** Where the slider of top-k ends; behind its end everything is kept. */
const MOST_K = 50;
/** Room for what a filter did, at its right. */
const NOTE = 250;
/** Tokens that a sentence names. */
const NAMED = 6;

export function Choice() {
  const { about } = origin.value!;
  const { values, compared } = shown.value!;
  const at = position.value;
  const logits = useMemo(() => rowOf(values, "logits", at), [values, at]);
  const steps = useMemo(() => filtered(logits, sampling.value, about.specials), [logits, sampling.value, about]);
  const others = useMemo(() => compared && filtered(rowOf(compared, "logits", at), sampling.value, about.specials), [compared, at, sampling.value, about]);
  useLayoutEffect(() => settle(about.name, about.step, given.value, text.value, at, edits.value, sampling.value, seed.value, ownNumber.value),
    [about, given.value, text.value, at, edits.value, sampling.value, seed.value, ownNumber.value, shown.value, ids.value, source.value, writes.value, ahead.value, beams.value]);
  const last = steps[steps.length - 1];
  const u = nextNumber();
  const drawn = choose(last.probabilities, u);
  const before = others && others[others.length - 1].probabilities;
  const thin = useMemo(() => [before ?? steps[0].probabilities], [before, steps]);
  const rod = t("All tokens side by side in the order of the vocabulary, each as wide as its probability. Move u with the arrow keys.");
  const room = width.value - gutter.value;
  return (
    <section class="choice" aria-labelledby="choice">
      <div class="choice-top">
        <div class="prose">
          <h2 id="choice">{t("Then it draws.")}</h2>
          <p>
            {rich("The model ends with {count} logits, a score for each token, and softmax makes probabilities of them. The settings change these one after another; then a random number u falls on what is left. With {u} the next token is {token}.", {
              count: number(about.vocabulary, 0),
              u: <span class="live">u = {number(u, 3)}</span>,
              token: <Token id={drawn} />,
            })}
          </p>
          <Counted />
          <p>
            {t("Choose a token to go on with it, drawn or not.")}{" "}
            <button class="said" onClick={() => show("logits", [0, at, drawn])}>{rich("open the logit of {token}", { token: <Token id={drawn} /> })}</button>
          </p>
          {branches.value.length > 0 && (
            <p>
              <button class="button" onClick={back}>
                ↶ {plural(branches.value.length, "take the branch back", "take the last of {n} branches back")}
              </button>
            </p>
          )}
        </div>
        <Candidates steps={steps} before={before} width={narrow.value ? width.value : Math.min(540, room - 450)} />
      </div>
      <Ladder steps={steps} />
      <h3 class="prose" id="draw">{t("One number decides")}</h3>
      <Figure id="draw" label={rod} command={generated()}
        caption={
          <>
            {t("All tokens side by side in the order of the vocabulary; u falls on one of them. Drag it.")} <Share probabilities={last.probabilities} id={drawn} />{" "}
            {before ? t("The thin rod has the probabilities of the unchanged model.") : t("The thin rod has the model's own probabilities, before temperature and filters.")}{" "}
            {t("The number for the n-th token is the n-th of the generator mulberry32 that begins with the seed: equal seeds give equal texts on this page. PyTorch's generator is another; there the same seed is another text.")}
          </>
        }>
        <div class="line">
          <div class="line-name" />
          <Rod
            label={rod}
            tokens={about.tokens}
            shares={last.probabilities}
            others={thin}
            u={u}
            onDraw={(value) => (ownNumber.value = value)}
            width={room}
            say={(value, id) => t("u = {u}: {token}", { u: number(value, 3), token: visible(about.tokens[id]) })}
          />
        </div>
        <p class="controls">
          <button class="button" onClick={() => branch([drawn])}>
            {rich("write {token}", { token: <Token id={drawn} /> })}
          </button>
          <label>
            {t("seed")}{" "}
            <input type="number" min="0" max={MOST_SEED} step="1" value={seed.value} onChange={(event) => {
              const given = event.currentTarget.valueAsNumber;
              if (Number.isInteger(given) && given >= 0 && given <= MOST_SEED) [seed.value, ownNumber.value] = [given, null];
              event.currentTarget.value = String(seed.value);
            }} />
          </label>
          {ownNumber.value !== null && (
            <button class="button" onClick={() => (ownNumber.value = null)}>
              {t("the seed's number again")}
            </button>
          )}
        </p>
      </Figure>
      <GoingOn />
      <Ahead />
    </section>
  );
}

const MOST_COUNTED = 3;

/** What comes next by the table of n-grams, which only counted. */
function Counted() {
  const guesses = useMemo(() => counts.value?.guesses(seen(), MOST_COUNTED) ?? [], [counts.value, shown.value, position.value]);
  const { tokens } = origin.value!.about;
  if (!guesses.length) return null;
  return (
    <p>
      {rich("A {order}-gram table counted on the training text says {guesses}.", {
        order: String(counts.value!.order),
        guesses: guesses.map(({ id, probability }, place) => <>{place > 0 && ", "}<Token id={id} /> <Live value={probability} token={tokens[id]} /></>),
      })}
    </p>
  );
}

/** The command that draws with these settings. */
function generated(): string {
  const settings = [
    temperature.value === 1 ? "" : ` --temperature ${temperature.value}`,
    topK.value === null ? "" : ` --top-k ${topK.value}`,
    topP.value === null ? "" : ` --top-p ${topP.value}`,
    minP.value === null ? "" : ` --min-p ${minP.value}`,
  ];
  return command("generate", "--prompt") + settings.join("");
}

function Share({ probabilities, id }: { probabilities: Float64Array; id: number }) {
  const { begin, end } = shares(probabilities);
  return (
    <>
      {rich("{token} lies from {begin} to {end}.", { token: <Token id={id} />, begin: number(begin[id], 3), end: number(end[id], 3) })}
    </>
  );
}

/** The most probable tokens, by the model's logits, with what the settings made of them. */
function Candidates({ steps, before, width }: { steps: Filtered[]; before: Float64Array | null; width: number }) {
  const { tokens } = origin.value!.about;
  const [first, last] = [steps[0], steps[steps.length - 1]];
  const shownIds = largest(first.logits, MOST_ROWS);
  const rows: Listed[] = shownIds.map((id) => ({
    token: tokens[id],
    value: last.probabilities[id],
    before: number(first.logits[id], 2),
    after: number(last.probabilities[id], 3),
    tick: before ? before[id] : first.probabilities[id],
    faint: last.probabilities[id] === 0,
  }));
  const label = t("The most probable next tokens. Enter goes on with one of them.");
  return (
    <Figure id="candidates" label={label} command={generated()}
      caption={<>{t("Logit, and probability after the settings.")} {before ? t("The tick: the unchanged model.") : t("The tick: before the settings.")}</>}>
      <BarList
        label={label}
        rows={rows}
        width={Math.max(200, width - 30)}
        say={(at) => t("{token}: logit {logit}, probability {probability}", { token: visible(rows[at].token), logit: rows[at].before!, probability: rows[at].after })}
        onPick={({ row: at }) => branch([shownIds[at]])}
      />
    </Figure>
  );
}

const ORDER: Filter[] = ["temperature", "top_k", "top_p", "min_p"];

/** The settings one under the other; beside each what it did. */
function Ladder({ steps }: { steps: Filtered[] }) {
  const { tokens } = origin.value!.about;
  const room = narrow.value ? width.value : width.value - gutter.value - NOTE;
  const order = useMemo(() => descending(steps[0].logits), [steps]);
  const none = new Set<number>();
  const say = (probabilities: Float64Array, cut: ReadonlySet<number>) => (id: number) =>
    cut.has(id)
      ? t("{token}: {probability}, cut", { token: visible(tokens[id]), probability: number(probabilities[id], 3) })
      : t("{token}: {probability}", { token: visible(tokens[id]), probability: number(probabilities[id], 3) });
  return (
    <Figure id="filters" label={t("What temperature and filters do to the probabilities, one after another.")} command={generated()}
      caption={t("The most probable token comes first here; grey are those too thin to draw. Each row begins with what the row before it left.")}>
      <div class="rung">
        <span class="name">{t("softmax of the logits")}</span>
        <Sieve label={t("The model's own probabilities, the most probable token first.")} tokens={tokens} shares={steps[0].probabilities} order={order} cut={none} width={room} say={say(steps[0].probabilities, none)} />
        <span class="note" />
      </div>
      {ORDER.map((filter, at) => {
        const step = steps[at + 1];
        const cut = new Set(step.cut);
        const isHeat = filter === "temperature" && temperature.value > 0;
        const shownShares = isHeat ? step.probabilities : steps[at].probabilities;
        return (
          <div class={step.isOff ? "rung off" : "rung"}>
            <Setting filter={filter} />
            {step.isOff ? <span class="pass">{would(filter)}</span> : (
              <Sieve label={did(step)} tokens={tokens} shares={shownShares} order={order} cut={cut} width={room} say={say(shownShares, cut)} />
            )}
            <span class="note" role="status">{step.isOff ? "" : did(step)}</span>
          </div>
        );
      })}
    </Figure>
  );
}

/** What a step that is off would do. */
function would(filter: Filter): string {
  switch (filter) {
    case "temperature":
      return t("1 changes nothing; less makes the probable more probable, 0 leaves only the first");
    case "top_k":
      return t("off; it would keep the k most probable tokens");
    case "top_p":
      return t("off; it would keep the fewest tokens that have the probability p together");
    case "min_p":
      return t("off; it would cut tokens that are less than p times as probable as the first");
  }
}

/** What a step did, as a sentence. */
function did({ filter, cut, left }: Filtered): string {
  const { tokens } = origin.value!.about;
  if (filter === "temperature" && temperature.value > 0)
    return temperature.value < 1 ? t("Every logit is divided by the temperature: what is probable gets more probable.") : t("Every logit is divided by the temperature: what is improbable gets less improbable.");
  if (!cut.length) return t("Cuts nothing.");
  const which = cut.slice(0, NAMED).map((id) => `“${visible(tokens[id])}”`).join(" ") + (cut.length > NAMED ? " …" : "");
  return plural(cut.length, "Cuts {which}. The rest ({left}) is scaled up to 1.", "Cuts {n} tokens, {which}. The rest ({left}) is scaled up to 1.", { which, left: number(left, 4) });
}

function Setting({ filter }: { filter: Filter }) {
  const { vocabulary } = origin.value!.about;
  const most = Math.min(MOST_K, vocabulary);
  switch (filter) {
    case "temperature":
      return <Slider name={t("temperature")} told={number(temperature.value)} min={0} max={2} step={0.05} value={temperature.value} set={(value) => (temperature.value = value)} />;
    case "top_k":
      return (
        <Slider name={t("top k")} told={topK.value === null ? t("off") : number(topK.value, 0)} min={1} max={most} step={1} value={topK.value ?? most}
          set={(value) => (topK.value = value === most ? null : value)} />
      );
    case "top_p":
      return (
        <Slider name={t("top p")} told={topP.value === null ? t("off") : number(topP.value)} min={0.05} max={1} step={0.05} value={topP.value ?? 1}
          set={(value) => (topP.value = value === 1 ? null : value)} />
      );
    case "min_p":
      return (
        <Slider name={t("min p")} told={minP.value === null ? t("off") : number(minP.value)} min={0} max={1} step={0.01} value={minP.value ?? 0}
          set={(value) => (minP.value = value === 0 ? null : value)} />
      );
  }
}

interface SliderProps { name: string; told: string; min: number; max: number; step: number; value: number; set(value: number): void }

function Slider({ name, told, min, max, step, value, set }: SliderProps) {
  return (
    <label class="name">
      <span>
        {name} <b>{told}</b>
      </span>
      <input type="range" aria-valuetext={told} min={min} max={max} step={step} value={value} onInput={(event) => set(Number(event.currentTarget.value))} />
    </label>
  );
}
