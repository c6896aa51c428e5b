// What the person has chosen, as signals. Everything that a page shows is computed from these and from its source; the
// address's fragment holds them, so that an address shows the same again.

import { Signal, batch, computed, effect, signal } from "@preact/signals";
import { LANGUAGES, language, preferred, reasonOf } from "./words";
import { MOST_SEED } from "./decoding/draw";
import type { Sampling } from "./decoding/filters";
import { existing, readEdits } from "./edits";
import type { Spot } from "./numbers/opening";
import { About, Edit, RATED, Relation, Source, Tensor, Values, around, atPosition, knows, offset } from "./source";
import { ratingOf } from "./compute/readings";
import { isLarge, isPooled, later, rating, wanted } from "./wanted";

export const STEPS = ["scores", "scaled", "masked", "weights"] as const;
export type Step = (typeof STEPS)[number];
export type Theme = "auto" | "light" | "dark";

export const text = signal("");
/** The tokens of the text that the model does not see, by their places; of a model that fills gaps. */
export const hidden = signal<readonly number[]>([]);
/** What the encoder reads, of a model that has one. */
export const given = signal("");
/** What a run has answered to a source by itself; while it writes, what stands there instead. */
const answered = signal<{ to: string; text: string; by?: string }>({ to: "", text: "" });
/** Whether the sentence is the run's own answer to what it reads, and whether that is still to be written. */
export const isOwn = computed(() => Boolean(source.value?.about.source) && answered.value.to === given.value && answered.value.text === text.value);
const ownOf = (from: Source): Source => from.trained ?? from;
const isOwed = computed(() => isOwn.value && Boolean(source.value!.given?.length) && answered.value.by !== ownOf(source.value!).about.name);
/** The head whose map of the source is shown, BLOCK.HEAD; empty is the mean of all. */
export const crossed = signal("");
/** The place of the chosen token; -1 is the last one. */
export const chosen = signal(-1);
/** A choice among what a run has. One that this run does not have stays, for the run that the address or Back leads to. */
const among = (asked: Signal<number>, count: (about: About) => number) => ({
  get value(): number {
    const about = origin.value?.about;
    return Math.max(0, Math.min(asked.value, about ? count(about) - 1 : asked.value));
  },
  set value(to: number) {
    asked.value = to;
  },
});
const [askedBlock, askedHead, askedK, askedEdits] = [signal(0), signal(0), signal<number | null>(null), signal<Edit[]>([])];
export const block = among(askedBlock, ({ layers }) => layers);
export const head = among(askedHead, ({ heads }) => heads);
export const step = signal<Step>("weights");
/** The edits of values and heads that the run has. */
const applied = computed(() => {
  const [about, all] = [source.value?.about, askedEdits.value];
  const kept = about ? all.filter(({ at, heads }) => knows(about, at) && (heads ?? []).every((each) => each < about.heads)) : all;
  return kept.length === all.length ? all : kept;
});
export const edits = {
  get value(): Edit[] {
    return applied.value;
  },
  set value(to: Edit[]) {
    askedEdits.value = to;
  },
};
/** The step of attention that is worked through, 1 to `WORKED`, and the token whose key is compared; -1 is the one with the largest weight. */
export const WORKED = 6;
export const stage = signal(1);
export const compared = signal(-1);
/** The number of the query that can be changed; -1 is the one with the largest product. */
export const column = signal(-1);
export const temperature = signal(1);
/** The filters of the choice; null is off. */
export const topK = {
  get value(): number | null {
    return (askedK.value ?? 0) > (origin.value?.about.vocabulary ?? Infinity) ? null : askedK.value;
  },
  set value(to: number | null) {
    askedK.value = to;
  },
};
export const topP = signal<number | null>(null);
export const minP = signal<number | null>(null);
export const UNFILTERED: Sampling = { temperature: 1, top_k: null, top_p: null, min_p: null };
export const sampling = computed<Sampling>(() => ({ temperature: temperature.value, top_k: topK.value, top_p: topP.value, min_p: minP.value }));
/** The cells that were opened, each from the one before; empty: query times key at the largest weight of the chosen token. */
export const trail = signal<readonly Spot[]>([]);
/** The other sentence of the sweep; empty: zeroes; null: there is no sweep. */
export const sweepFrom = signal<string | null>(null);
/** The two tokens of the sweep; null: the likeliest. */
export const sweepPair = signal<readonly [number, number] | null>(null);
/** Whether the rows of the sweep are heads. */
export const sweepHeads = signal(false);
/** Terms that a sum shows at first, and those that it shows now. */
export const FEW = 8;
export const terms = signal(FEW);
/** Tokens whose keys are shown at first in the worked attention, and those that are shown now. */
export const answering = signal(FEW);
/** How figures show what they show: less the model before the edits, by what weights bring, sums in their order, one row of all heads. */
export const looks = { change: signal(false), length: signal(false), order: signal(false), row: signal(false) };
/** The two tokens that are compared; -1: the likeliest, and the likeliest of the others. */
export const rivals = signal<readonly number[]>([-1, -1]);
/** Whether the reader guesses where the head looks: nothing that tells is shown. */
export const guessing = signal(false);
/** What the page's random numbers begin with. */
export const seed = signal(1);
/** A random number that the person has set instead. */
export const ownNumber = signal<number | null>(null);
/** Tokens that the model has written behind the chosen one, and those that it writes at once. */
export const writes = signal(0);
export const AT_ONCE = 40;
export const more = signal(AT_ONCE);
/** Beams that look ahead, and how far they have grown. */
export const [BEAMS, MOST_BEAMS, MOST_AHEAD] = [3, 5, 8];
export const beams = signal(BEAMS);
export const ahead = signal(0);
/** Counts what was taken over from addresses. */
export const readings = signal(0);
export const theme = signal<Theme>("auto");
/** The step of the film's frame that is asked for; null is the trained model. */
export const frame = signal<number | null>(null);
/** The one figure that is shown, by its name; all if empty. */
export const figure = signal("");
/** The stop of the tour, by its place in the list, and whether what it waits for has happened; null: no tour. */
export const tour = signal<{ at: number; done: boolean } | null>(null);
export { language };

/** Where the next answer comes from; the panes read `origin`. */
export const source = signal<Source | null>(null);
/** The place of the run in the list: a server's, or of the two that a page carries. */
export const run = signal(0);
/** The place of the run that reads beside it; -1: the other one of two, else none. */
export const other = signal(-1);
/** The source of the run beside, and how it and the other differ, once that is known. */
export const beside = signal<Source | null>(null);
export const relation = signal<Relation | null>(null);

/** The run beside, or that of a frame as it was trained, if it has the same tokens: only then can both read one sentence. */
export const second = computed(() => {
  const next = beside.value ?? source.value?.trained ?? null;
  const [one, two] = [source.value?.about, next?.about];
  const isSame = one && two && one.name !== two.name && !one.task && !two.task && (["tokenizer", "specials", "sources"] as const).every((key) => JSON.stringify(one[key]) === JSON.stringify(two[key]));
  return isSame ? (next!.reads?.(source.value!.given, false) ?? next) : null;
});

/** Every source that an encoder-decoder is asked with is read beside the sentence; a mixed model fills gaps where there are some. */
effect(() => {
  const from = source.value;
  const about = from?.about;
  if (about?.source || about?.fills) source.value = from!.reads!(about.source && from!.encode(given.value, true).ids.slice(0, about.source.context), hasGap.value);
});

/** Lets the model answer what it reads, in place of what is written. */
export function answer(to: string): void {
  batch(() => {
    [given.value, text.value, chosen.value] = [to, "", -1];
    answered.value = { to, text: "" };
  });
}
effect(() => {
  if (isOwed.value) void writesItself(source.value!, answered.value);
});

/** The likeliest token each time, of the model as it was trained: the address tells nothing but the source. */
async function writesItself(from: Source, asked: { to: string }): Promise<void> {
  const { source: encoder, context } = from.about;
  const made = from.encode("").ids.slice();
  const draws = { sampling: { ...UNFILTERED, temperature: 0 }, numbers: Array<number>(context - made.length).fill(0), prompt: made.length, edits: [] };
  try {
    for await (const { id } of made.length ? ownOf(from).reads!(from.given, false).next(made.slice(), draws) : []) {
      if (source.peek() !== from || answered.peek() !== asked || !isOwn.peek()) return;
      if (id === encoder!.closes) break;
      made.push(id);
    }
    const to = from.decode(made);
    batch(() => {
      [held.value, text.value] = [made, to];
      answered.value = { to: asked.to, text: to, by: ownOf(from).about.name };
    });
  } catch (error) {
    fault.value = reasonOf(error);
  }
}

export interface Shown {
  /** The run that the values are of. */
  from: Source;
  ids: number[];
  /** The tokens before some were hidden. */
  truth: readonly number[];
  /** Tokens before these, which do not fit into the context. */
  cropped: number;
  /** The values of the sentence, and those without the edits. */
  values: Values;
  compared: Values | null;
  edits: Edit[];
  /** The token that the values are of, where they are not of all. */
  at: number | null;
  /** The other reader of the sentence, whose model is as it was trained, and how it rates the tokens. */
  beside: { from: Source; values: Values } | null;
  /** The run's stream in tokens from all over its vocabulary: by it, panes order their numbers alike in every sentence. */
  face: Values;
}

/** What the panes show. */
export const shown = signal<Shown | null>(null);
export const fault = signal("");
/** The run that is shown; while nothing is, the one that is asked. All that is drawn is of this run. */
export const origin = computed(() => shown.value?.from ?? source.value);

/** Tokens that were chosen one by one, while they are those of the text: the tokenizer may cut it differently. */
export const held = signal<number[] | null>(null);
const isHeld = (from: Source | null): boolean => Boolean(from && held.value?.length && held.value.every((id) => id < from.about.vocabulary) && from.decode(held.value) === text.value);

export const encoded = computed(() => {
  const from = source.value;
  if (isHeld(from)) return { ids: held.value!, unseen: [] };
  return from?.encode(text.value) ?? { ids: [], unseen: [] };
});
/** Whether the sentence has a gap that the run can fill. */
const hasGap = computed(() => {
  const [fills, { ids }] = [source.value?.about.fills, encoded.value];
  return fills !== undefined && ids.some((id, place) => id === fills.mask || hidden.value.includes(place));
});
/** The tokens that fit into the context, the last ones, between those that the model puts around a text. */
const framed = computed(() => {
  const [about, all] = [source.value?.about, encoded.value.ids];
  const { before, after } = about ? around(about) : { before: [], after: [] };
  const most = Math.min(about?.context ?? 0, second.value?.about.context ?? Infinity) - before.length - after.length;
  const left = Math.max(0, all.length - most);
  const truth = all.length ? [...before, ...all.slice(left), ...after] : [];
  return { left, before: before.length, end: truth.length - after.length, truth };
});
/** The tokens that the model reads. */
export const ids = computed(() => {
  const [{ left, before, truth }, about] = [framed.value, source.value?.about];
  return about?.task === "gaps" ? truth.map((id, at) => (hidden.value.includes(at - before + left) ? about.fills!.mask : id)) : truth;
});
/** Tokens that do not fit. */
export const cropped = computed(() => framed.value.left);
/** The place of the chosen token, of those that are shown. */
export const position = computed(() => shown.value?.at ?? within(origin.value, shown.value?.ids ?? []));

/** The places of the gaps. */
export const gapsIn = ({ task, fills }: About, ids: readonly number[]): number[] => (task === "gaps" ? ids.flatMap((id, place) => (id === fills!.mask ? [place] : [])) : []);

/** The gap at the chosen token, or the one that is predicted there. */
export const gapAt = (place: number): number | undefined => [place, place + offset(origin.value!.about)].find((at) => gapsIn(origin.value!.about, shown.value!.ids).includes(at));

/** The place of the chosen token; where nobody has chosen, where the first gap is predicted, else the last. */
function within(from: Source | null, ids: readonly number[]): number {
  if (chosen.value >= 0 && chosen.value < ids.length) return chosen.value;
  const [gap] = from ? gapsIn(from.about, ids) : [];
  return gap === undefined ? ids.length - 1 : Math.max(0, gap - offset(from!.about));
}

/** Whether the token at a place is one of the text. */
export const inText = (place: number): boolean => place >= framed.value.before && place < framed.value.end;
const placeInText = (place: number): number => place - framed.value.before + framed.value.left;

/** Hides a token of the sentence that is shown, or shows it again. */
export function hide(place: number): void {
  const [at, mask] = [placeInText(place), source.value?.about.fills?.mask];
  if (mask === undefined || !inText(place) || encoded.value.ids[at] === mask) return;
  chosen.value = -1;
  hidden.value = hidden.value.includes(at) ? hidden.value.filter((each) => each !== at) : [...hidden.value, at];
}

/** Puts a token in the place of a gap, and chooses it. */
export function fillIn(place: number, id: number): void {
  const at = placeInText(place);
  batch(() => {
    held.value = encoded.value.ids.map((each, where) => (where === at ? id : each));
    text.value = source.value!.decode(held.value);
    hidden.value = hidden.value.filter((each) => each !== at);
  });
  chosen.value = at + framed.value.before - framed.value.left; // around a text without gaps may stand other tokens
}

/** Takes over what is typed: what is hidden before the first change stays so. */
export function type(typed: string): void {
  const old = encoded.value.ids;
  batch(() => {
    [text.value, chosen.value] = [typed, -1];
    hidden.value = hidden.value.filter((place) => old.slice(0, place + 1).every((id, at) => id === encoded.value.ids[at]));
  });
}

/** The place that is asked for, where values are asked for of one token alone. */
const place = computed(() => {
  const about = source.value?.about;
  return about && isLarge(about, ids.value.length) ? within(source.value, ids.value) : null;
});

/** The names whose values the page shows. */
export const names = computed(() => {
  const about = source.value?.about;
  const time = ids.value.length;
  return about ? wanted(about, time, place.value ?? 0, place.value === null ? 0 : Math.min(askedBlock.value, about.layers - 1), isPooled(about, time) ? Math.min(askedHead.value, about.heads - 1) : 0) : [];
});

let asked = 0;
/** Milliseconds after an answer, until what can wait is asked for. */
const LEISURE = 800;

/** Computes the values anew; an answer that has been overtaken is dropped. */
export async function refresh(): Promise<void> {
  const from = source.value;
  const [sentence, truth, wanted, at, left, reader] = [ids.value, framed.value.truth, names.value, place.value, cropped.value, second.value];
  // A number that was set at a position counts while the sentence is so long.
  const changes = edits.value.some((each) => each.columns) ? edits.value.flatMap((each) => (each.columns ? existing([each], sentence.length) : [each])) : edits.value;
  const ratings = reader && rating(reader.about, sentence.length, within(from, sentence));
  const [ask, isWriting] = [++asked, isOwed.value];
  if (!from || !sentence.length || from.given?.length === 0) {
    batch(() => ((shown.value = null), (fault.value = encoded.value.fault ?? "")));
    return;
  }
  if (isWriting) return; // the answer before it stands until its own is there
  try {
    let trouble = "";
    const rated = reader?.trace(sentence, ratings!, []).catch((error: unknown) => ((trouble = reasonOf(error)), null));
    const [values, face] = await Promise.all([from.trace(sentence, wanted, changes), faceOf(from)]);
    if (ask !== asked) return; // what an older question goes on to ask would overtake the newer one's answer
    const compared = changes.length ? await from.trace(sentence, wanted, []) : null;
    const theirs = (await rated) ?? null;
    if (ask !== asked) return;
    const next = reader && theirs && { from: reader, values: theirs };
    batch(() => ((shown.value = { from, ids: sentence, truth, cropped: left, values, compared, edits: changes, at, face, beside: next }), (fault.value = trouble)));
    await pause(LEISURE);
    const more = later(from.about, sentence.length);
    const [whole, before] = [await gathered(from, ask, more, changes), changes.length ? await gathered(from, ask, more, []) : {}];
    if (ask === asked && more.length) shown.value = { ...shown.value!, values: { ...values, ...whole }, compared: compared && { ...compared, ...before } };
  } catch (error) {
    if (ask !== asked) return;
    // Nothing stays of the sentence, the changes or the run before.
    batch(() => ((shown.value = null), (fault.value = reasonOf(error))));
  }
}

/** Tokens of a face. */
const MOST_FACE = 24;
let faces: { of: string; values: Promise<Values> } | null = null;

/** The same for one checkpoint, whatever is shown of it, beside whatever source. */
function faceOf(from: Source): Promise<Values> {
  const { name, step, context, vocabulary, stream } = from.about;
  const of = JSON.stringify([name, step]);
  if (faces?.of !== of) {
    const count = Math.min(context, vocabulary, MOST_FACE);
    const values = (from.reads?.([0], false) ?? from).trace(Array.from({ length: count }, (_, place) => Math.floor((place * vocabulary) / count)), stream, []);
    const own = (faces = { of, values });
    values.catch(() => faces === own && (faces = null));
  }
  return faces!.values;
}

export const pause = (milliseconds = 0) => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** Values of the sentence that is shown, name by name, so that a keystroke waits for one of them at most. */
async function gathered(from: Source, ask: number, more: readonly string[], changes: readonly Edit[]): Promise<Values> {
  const found: Values = {};
  for (const name of more) {
    await pause();
    if (ask !== asked) return found;
    Object.assign(found, name === RATED ? { [name]: await hiding(shown.value!, ask, changes) } : await from.trace(shown.value!.ids, [name], changes));
  }
  return found;
}

/** How a model that fills gaps rates each token, hidden in its turn; NaN where nobody knows it. */
async function hiding({ from, ids, truth }: Shown, ask: number, changes: readonly Edit[]): Promise<Tensor> {
  const { mask, before, after, ahead } = from.about.fills!;
  const data = new Float64Array(2 * ids.length).fill(NaN);
  for (let at = before.length; at < ids.length - after.length && ask === asked; at++) {
    if (truth[at] === mask) continue;
    const name = atPosition("logits", at - ahead);
    data.set(ratingOf((await from.trace(ids.map((id, place) => (place === at ? mask : id)), [name], changes))[name].data, truth[at]), 2 * at);
    await pause();
  }
  return { shape: [1, ids.length, 2], data };
}

/** Cells on the way to the one that is open, in an address. */
const MOST_OPENED = 64;
const MOST = 1e6;
const DONE = "done";
const DEFAULTS = { hide: "", cross: "", d: "", terms: String(FEW), few: String(FEW), long: "0", more: String(AT_ONCE), beam: `${BEAMS}.0`, rather: "-1.-1", a: "", n: "0", v: "-1", p: "-1", b: "0", h: "0", s: "weights", t: "1", k: "", q: "", m: "", r: "1", u: "", e: "[]", i: "", l: "", c: "auto", f: "", o: "", y: "", z: "", g: "", w: "1", j: "-1", number: "-1" };

/** The fragment of the address. */
export function written(): string {
  const now: Record<string, string> = {
    ...(source.value?.about.source && isOwn.value ? {} : { text: text.value }),
    hide: hidden.value.join("."),
    ...(source.value?.about.source ? { source: given.value, cross: crossed.value } : {}),
    a: String(frame.value ?? ""),
    n: String(run.value),
    v: String(other.value),
    p: String(chosen.value),
    b: String(askedBlock.value),
    h: String(askedHead.value),
    s: step.value,
    t: String(temperature.value),
    k: String(askedK.value ?? ""),
    q: String(topP.value ?? ""),
    m: String(minP.value ?? ""),
    r: String(seed.value),
    u: String(ownNumber.value ?? ""),
    e: JSON.stringify(askedEdits.value),
    i: ownCut(),
    l: language.value === preferred(source.value?.about.language) ? "" : language.value,
    c: theme.value,
    d: Object.entries(looks).filter(([, each]) => each.value).map(([name]) => name).join(" "),
    terms: String(terms.value),
    few: String(answering.value),
    long: String(writes.value),
    more: String(more.value),
    beam: `${beams.value}.${ahead.value}`,
    rather: rivals.value.join("."),
    f: figure.value,
    g: tour.value ? [tour.value.at + 1, ...(tour.value.done ? [DONE] : [])].join(".") : "",
    w: String(stage.value),
    j: String(compared.value),
    number: String(column.value),
    o: trail.value.map(({ name, index, path }) => [name, index.join("."), path.join(".")].join(":")).join(" "),
    ...(sweepFrom.value === null ? {} : { x: sweepFrom.value, y: (sweepPair.value ?? []).join("."), z: sweepHeads.value ? "head" : "" }),
  };
  const kept = Object.entries(now).filter(([key, value]) => value !== (DEFAULTS as Record<string, string>)[key]);
  return kept.map(([key, value]) => `${key}=${encodeURIComponent(wellFormed(value))}`).join("&");
}

/** The keys by which two fragments differ. */
export function changes(one: string, other: string): string[] {
  const [before, after] = [new URLSearchParams(one), new URLSearchParams(other)];
  return [...new Set([...before.keys(), ...after.keys()])].filter((key) => before.get(key) !== after.get(key));
}

/** The tokens, where they are not those that the tokenizer makes of the text. */
function ownCut(): string {
  const { value: from } = source;
  const own = isHeld(from) ? held.value!.join(".") : "";
  return own === from?.encode(text.value).ids.join(".") ? "" : own;
}

/** Whole numbers that a fragment joins by points, each at least so large; none if one is none. */
function numbers(told: string | null, least = 0): number[] {
  const found = told ? told.split(".").map(Number) : [];
  return found.every((each) => Number.isInteger(each) && each >= least) ? found : [];
}

/** The text without lone surrogates, which no address can hold. */
export const wellFormed = (given: string): string => given.replace(/\p{Surrogate}/gu, "\ufffd");

/** What a page of a model that only fills gaps hides of a passage: the first token from its middle on that is no space. */
export function hiddenIn(passage: string): number[] {
  const from = source.value;
  if (from?.about.fills?.ahead !== 0) return [];
  const { ids } = from.encode(passage);
  return [ids.findIndex((id, place) => 2 * place >= ids.length && from.decode([id]).trim())].filter((at) => at >= 0);
}

/** Takes over what a fragment says; where it says nothing, or something wrong, all is as on a page that opens. */
export function read(fragment: string): void {
  const found = new URLSearchParams(fragment.replace(/^#/, "").replace(/\+/g, "%2B"));
  const about = source.value?.about;
  const whole = (key: string, least: number, most: number, otherwise: number): number => {
    const value = Number(found.get(key) ?? otherwise);
    return Number.isInteger(value) && value >= least && value <= most ? value : otherwise;
  };
  batch(() => {
    const opening = found.has("text") ? undefined : about?.openings?.[0];
    const passage = found.has("source") ? "" : (about?.passages[0] ?? "");
    text.value = found.get("text") ?? passage;
    hidden.value = found.has("text") ? numbers(found.get("hide")) : opening ? hiddenIn(text.value) : [];
    given.value = found.get("source") ?? about?.sources?.[0] ?? "";
    crossed.value = /^\d+\.\d+$/.test(found.get("cross") ?? "") ? found.get("cross")! : "";
    run.value = whole("n", 0, MOST, 0);
    other.value = whole("v", -1, MOST, -1);
    frame.value = found.get("a") ? whole("a", 0, Infinity, 0) : null;
    held.value = numbers(found.get("i"));
    chosen.value = whole("p", -1, MOST, -1);
    block.value = whole("b", 0, MOST, opening?.block ?? 0);
    head.value = whole("h", 0, MOST, opening?.head ?? 0);
    const named = found.get("s") as Step;
    step.value = STEPS.includes(named) ? named : "weights";
    const heat = Number(found.get("t") ?? 1);
    temperature.value = heat >= 0 && heat <= 10 ? heat : 1;
    const share = (key: string): number | null => {
      const value = Number(found.get(key) || NaN);
      return value >= 0 && value <= 1 ? value : null;
    };
    topK.value = whole("k", 1, MOST, 0) || null;
    topP.value = share("q") || null;
    minP.value = share("m");
    seed.value = whole("r", 0, MOST_SEED, 1);
    const own = share("u");
    ownNumber.value = own === 1 ? null : own;
    edits.value = editsOf(found.get("e"));
    const code = found.get("l") || preferred(about?.language);
    if (code in LANGUAGES) language.value = code;
    stage.value = whole("w", 1, WORKED, 1);
    compared.value = whole("j", -1, MOST, -1);
    column.value = whole("number", -1, MOST, -1);
    figure.value = (found.get("f") ?? opening?.figure ?? "").replace(/[^a-z-]/g, "");
    trail.value = spotsOf(found.get("o") ?? "");
    sweepFrom.value = found.get("x");
    const [one, two] = numbers(found.get("y"));
    sweepPair.value = two === undefined || one === two ? null : [one, two];
    sweepHeads.value = found.get("z") === "head";
    const [stop, done] = (found.get("g") ?? "").split(".");
    tour.value = /^[1-9]\d{0,2}$/.test(stop) ? { at: Number(stop) - 1, done: done === DONE } : null;
    const colours = found.get("c") as Theme;
    theme.value = ["light", "dark"].includes(colours) ? colours : "auto";
    const on = (found.get("d") ?? "").split(" ");
    for (const [name, each] of Object.entries(looks)) each.value = on.includes(name);
    terms.value = whole("terms", FEW, MOST, FEW);
    answering.value = whole("few", FEW, MOST, FEW);
    writes.value = whole("long", 0, MOST, 0);
    more.value = whole("more", 1, MOST, AT_ONCE);
    const [wide = BEAMS, far = 0] = numbers(found.get("beam"));
    [beams.value, ahead.value] = wide >= 1 && wide <= MOST_BEAMS && far <= MOST_AHEAD ? [wide, far] : [BEAMS, 0];
    readings.value++;
    if (about?.source && !found.has("text") && !passage) answer(given.value);
    const pair = numbers(found.get("rather"), -1);
    rivals.value = pair.length === 2 ? pair : [-1, -1];
  });
}

/** Cells as an address writes them, NAME:INDEX:PATH; those that a sentence does not have are never opened. */
function spotsOf(told: string): Spot[] {
  const places = (text: string | undefined) => (text ? text.split(".").map(Number) : []);
  const spots = told.split(" ").filter(Boolean).map((each): Spot => {
    const [name, index, path] = each.split(":");
    return { name, index: places(index), path: places(path) };
  });
  return spots.every(({ index, path }) => [...index, ...path].every((each) => Number.isInteger(each) && each >= 0)) ? spots.slice(0, MOST_OPENED) : [];
}

function editsOf(told: string | null): Edit[] {
  try {
    return readEdits(JSON.parse(told ?? "[]")) ?? [];
  } catch {
    return [];
  }
}

/** Whether an edit switches something off: zero everywhere. */
export const isZero = (each: Edit): boolean => each.do === "zero" && each.positions === "all" && !each.columns;
const zeroes = (each: Edit, at: string, which?: number): boolean => each.at === at && isZero(each) && (which === undefined ? !each.heads : Boolean(each.heads?.includes(which)));

/** Whether a part is switched off. */
export const isOff = (at: string, which?: number, among = edits.value): boolean => among.some((each) => zeroes(each, at, which));

/** Whether a part brings nothing of any token: it is switched off, or all heads of its attention are. */
export function isSilent(part: string, heads: number, among: readonly Edit[]): boolean {
  const z = part.replace(/attn\.out$/, "attn.z");
  const all = Array.from({ length: z === part ? 0 : heads }, (_, which) => which);
  return [part, z].some((at) => among.some((each) => zeroes(each, at))) || (all.length > 0 && all.every((which) => among.some((each) => zeroes(each, z, which))));
}

/** Switches a part off, or on again: a value, or one head of it. */
export function toggle(at: string, which?: number): void {
  // What is still shown may be another run than the one that is asked already.
  const about = source.value?.about;
  if (about && (!knows(about, at) || (which ?? 0) >= about.heads)) return;
  if (isOff(at, which)) {
    edits.value = edits.value.flatMap((each) => {
      const others = zeroes(each, at, which) ? (each.heads ?? []).filter((head) => head !== which) : null;
      return others === null ? [each] : others.length ? [{ ...each, heads: others }] : [];
    });
    return;
  }
  edits.value = [...edits.value, { at, ...(which === undefined ? {} : { heads: [which] }), positions: "all", do: "zero" }];
}
