// From logits to the probabilities of the next token, as `vitral.decoding.sampling`: the same filters in the same
// order, the same ties. A filter sets what it cuts to -Infinity.

/** The settings of `vitral.decoding.Sampling` that the page offers; null is a filter that is off. */
export interface Sampling {
  temperature: number;
  top_k: number | null;
  top_p: number | null;
  min_p: number | null;
}

export const PLAIN: Sampling = { temperature: 1, top_k: null, top_p: null, min_p: null };

export type Filter = "temperature" | "top_k" | "top_p" | "min_p";

/** What one step of the choice made of the logits. */
export interface Filtered {
  /** The step; null is the beginning: the model's logits, without tokens that are never chosen. */
  filter: Filter | null;
  /** Whether the settings leave this step out. */
  isOff: boolean;
  logits: Float64Array;
  probabilities: Float64Array;
  /** The tokens that this step cut, the most probable first. */
  cut: number[];
  /** The share of the probability before this step that what it kept had; the temperature only cuts at 0. */
  left: number;
}

/** A mass that should equal top_p must not fall below it by the rounding of its sum. */
const ROUNDING = 1e-12;

const most = (logits: ArrayLike<number>): number => {
  let largest = -Infinity;
  for (let id = 0; id < logits.length; id++) if (logits[id] > largest) largest = logits[id];
  return largest;
};

/** Probabilities of logits; one of -Infinity has none. */
export function softmax(logits: ArrayLike<number>): Float64Array {
  const largest = most(logits);
  const made = Float64Array.from(logits, (each) => Math.exp(each - largest));
  let sum = 0;
  for (const each of made) sum += each;
  return made.map((each) => each / sum);
}

/** Token ids by falling logit; equal ones by id. */
export const descending = (logits: ArrayLike<number>): number[] =>
  Array.from(logits, (_, id) => id).sort((one, other) =>
    logits[one] === logits[other] ? one - other : logits[other] > logits[one] ? 1 : -1,
  );

/** Without tokens that are never chosen. */
export function forbid(logits: ArrayLike<number>, tokens: readonly number[]): Float64Array {
  const made = Float64Array.from(logits);
  for (const token of tokens) made[token] = -Infinity;
  return made;
}

/** Divided by a temperature above 0, after a shift that makes the largest logit 0. */
export function applyTemperature(logits: Float64Array, temperature: number): Float64Array {
  const largest = most(logits);
  return logits.map((each) => (temperature === 1 ? each - largest : (each - largest) / temperature));
}

function keep(logits: Float64Array, kept: Iterable<number>): Float64Array {
  const made = new Float64Array(logits.length).fill(-Infinity);
  for (const id of kept) made[id] = logits[id];
  return made;
}

/** The k most probable tokens; ties go to the lower ids. */
export const keepTopK = (logits: Float64Array, k: number): Float64Array => keep(logits, descending(logits).slice(0, k));

/** The fewest tokens whose probability is p together; at least one. */
export function keepTopP(logits: Float64Array, p: number): Float64Array {
  if (p === 1) return logits;
  const order = descending(logits);
  const masses = softmax(Float64Array.from(order, (id) => logits[id]));
  let [before, count] = [0, 0];
  while (count < order.length && (count === 0 || before < p * (1 - ROUNDING))) before += masses[count++];
  return keep(logits, order.slice(0, count));
}

/** Those that have at least p times the probability of the most probable one. */
export function keepMinP(logits: Float64Array, p: number): Float64Array {
  const largest = most(logits);
  return logits.map((each) => (Math.exp(each - largest) < p * (1 - ROUNDING) ? -Infinity : each));
}

const RULES: Record<Filter, (logits: Float64Array, sampling: Sampling) => Float64Array> = {
  temperature: (logits, { temperature }) => (temperature === 0 ? keepTopK(logits, 1) : applyTemperature(logits, temperature)),
  top_k: (logits, { top_k }) => (top_k === null ? logits : keepTopK(logits, top_k)),
  top_p: (logits, { top_p }) => (top_p === null ? logits : keepTopP(logits, top_p)),
  min_p: (logits, { min_p }) => (min_p === null ? logits : keepMinP(logits, min_p)),
};
export const FILTERS: readonly Filter[] = ["temperature", "top_k", "top_p", "min_p"];

/** Every step from the logits to the last probabilities, those that are off too. */
export function filtered(logits: ArrayLike<number>, sampling: Sampling, forbidden: readonly number[] = []): Filtered[] {
  const first = forbid(logits, forbidden);
  let now: Filtered = { filter: null, isOff: false, logits: first, probabilities: softmax(first), cut: [], left: 1 };
  const steps = [now];
  for (const filter of FILTERS) {
    const before = now;
    const made = RULES[filter](before.logits, sampling);
    const isOff = filter === "temperature" ? sampling.temperature === 1 : sampling[filter] === null;
    const cut = descending(before.logits).filter((id) => before.logits[id] > -Infinity && made[id] === -Infinity);
    let left = 0;
    made.forEach((each, id) => (left += each > -Infinity ? before.probabilities[id] : 0));
    now = { filter, isOff, logits: made, probabilities: softmax(made), cut, left: cut.length ? left : 1 };
    steps.push(now);
  }
  return steps;
}

/** The probabilities of the next token after all filters. */
export function distribution(logits: ArrayLike<number>, sampling: Sampling, forbidden: readonly number[] = []): Float64Array {
  let now = forbid(logits, forbidden);
  for (const filter of FILTERS) now = RULES[filter](now, sampling);
  return softmax(now);
}

/** Probabilities at a temperature; at 0 the most probable token's is 1. */
export const probabilities = (logits: ArrayLike<number>, temperature: number): Float64Array =>
  distribution(logits, { ...PLAIN, temperature });
