// The draw: one number u of 0 … 1 on the probabilities laid side by side in the order of the vocabulary, as
// `vitral.decoding.choose`; and where the page has its numbers from.

/** Where each token's share begins and ends, of a total of 1. */
export function shares(probabilities: ArrayLike<number>): { begin: Float64Array; end: Float64Array } {
  const end = new Float64Array(probabilities.length);
  let sum = 0;
  for (let id = 0; id < end.length; id++) end[id] = sum += probabilities[id];
  const begin = new Float64Array(end.length);
  for (let id = 0; id < end.length; id++) [begin[id], end[id]] = [id ? end[id - 1] : 0, end[id] / sum];
  return { begin, end };
}

/** The first token at which the sum of probabilities exceeds u times their total; one of probability 0 never is. */
export function choose(probabilities: ArrayLike<number>, u: number): number {
  let total = 0;
  for (let id = 0; id < probabilities.length; id++) total += probabilities[id];
  let [sum, last] = [0, 0];
  for (let id = 0; id < probabilities.length; id++) {
    if (probabilities[id] > 0) last = id;
    if ((sum += probabilities[id]) > u * total) return id;
  }
  return last;
}

/** The greatest seed. */
export const MOST_SEED = 2 ** 32 - 1;
const STEP = 0x6d2b79f5;

/**
 * The number of 0 … 1 for the t-th token under a seed: the t-th number of the generator mulberry32, t = 0, 1, …
 *
 * It is a function of seed and t alone, so equal seeds give equal texts. PyTorch and NumPy have other generators: the
 * same seed is another text in `vitral generate`.
 */
export function uniform(seed: number, t: number): number {
  let state = (seed + Math.imul(t + 1, STEP)) | 0;
  state = Math.imul(state ^ (state >>> 15), state | 1);
  state ^= state + Math.imul(state ^ (state >>> 7), state | 61);
  return ((state ^ (state >>> 14)) >>> 0) / 2 ** 32;
}
