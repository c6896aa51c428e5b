// What panes read off the values of a sentence: surprise, lengths, shares of attention, and what each part contributes.

import { About, LENS, Tensor, Values } from "../source";
import { row, rowOf } from "../rows";

export type Cells = ArrayLike<number>;

export interface Surprise {
  /** −ln p of each token, after those before it; NaN for the first. */
  losses: Float64Array;
  /** Its place among all tokens, 1 the most probable; 0 for the first. */
  ranks: Int32Array;
}

export function surprise(logits: Tensor, ids: readonly number[]): Surprise {
  const losses = new Float64Array(ids.length).fill(NaN);
  const ranks = new Int32Array(ids.length);
  for (let place = 1; place < ids.length; place++) [losses[place], ranks[place]] = ratingOf(row(logits, place - 1), ids[place]);
  return { losses, ranks };
}

/** −ln p of a token by a row of logits, and its place among all. */
export function ratingOf(row: Cells, token: number): [number, number] {
  const own = row[token];
  let [most, above, sum] = [-Infinity, 0, 0];
  for (let id = 0; id < row.length; id++) {
    most = Math.max(most, row[id]);
    if (row[id] > own || (row[id] === own && id < token)) above++;
  }
  for (let id = 0; id < row.length; id++) sum += Math.exp(row[id] - most);
  return [most + Math.log(sum) - own, above + 1];
}

/** The mean of what is a number. */
export function mean(values: Cells): number {
  let [sum, count] = [0, 0];
  for (let place = 0; place < values.length; place++) if (!Number.isNaN(values[place])) [sum, count] = [sum + values[place], count + 1];
  return sum / count;
}

/** The most probable token of every row of logits, and its probability. */
export function readOff(logits: Tensor): { ids: Int32Array; shares: Float64Array } {
  const width = logits.shape[logits.shape.length - 1];
  const count = logits.data.length / width;
  const [ids, shares] = [new Int32Array(count), new Float64Array(count)];
  for (let place = 0; place < count; place++) {
    const shown = row(logits, place);
    let best = 0;
    for (let id = 1; id < width; id++) if (shown[id] > shown[best]) best = id;
    let sum = 0;
    for (let id = 0; id < width; id++) sum += Math.exp(shown[id] - shown[best]);
    ids[place] = best;
    shares[place] = 1 / sum;
  }
  return { ids, shares };
}

/** The Euclidean length of the vector at a position. */
export function lengthAt(values: Values, name: string, position: number): number {
  let sum = 0;
  for (const each of rowOf(values, name, position)) sum += each * each;
  return Math.sqrt(sum);
}

/** The mean over the heads of weights [1, heads, time, source]: [time × source]. */
export function meanOfHeads({ shape, data }: Tensor): Float64Array {
  const [, heads, time, source] = shape;
  const made = new Float64Array(time * source);
  for (let head = 0; head < heads; head++) for (let place = 0; place < made.length; place++) made[place] += data[head * made.length + place] / heads;
  return made;
}

/** One head's numbers; where `masked` is −∞ there is no number, nor where a weight is 0 and the mask is not known. */
export function headMap(value: Tensor, isWeights: boolean, masked: Tensor | undefined, head: number): Float64Array {
  const size = value.shape[2] * value.shape[3];
  const made = Float64Array.from(value.data.subarray(head * size, (head + 1) * size));
  for (let place = 0; place < size; place++) if (masked ? masked.data[head * size + place] === -Infinity : isWeights && made[place] === 0) made[place] = NaN;
  return made;
}

/**
 * How long what each token brings through a head is: ‖W v‖, [source], for its values v [1, key-value heads, source, width] and
 * the head's part of W [d_model, heads · width], what mixes the heads.
 */
export function brought({ shape: [, groups, count, width], data }: Tensor, mixer: Tensor, head: number): Float64Array {
  const [tall, wide] = mixer.shape;
  const own = Math.floor((head * width * groups) / wide) * count;
  return Float64Array.from({ length: count }, (_, source) => {
    let squares = 0;
    for (let row = 0; row < tall; row++) {
      let sum = 0;
      for (let at = 0; at < width; at++) sum += mixer.data[row * wide + head * width + at] * data[(own + source) * width + at];
      squares += sum * sum;
    }
    return Math.sqrt(squares);
  });
}

/** Weights [time × source] times the length of what each source brings, as shares of their row. */
export function byLength(weights: Float64Array, lengths: ArrayLike<number>): Float64Array {
  const count = lengths.length;
  const made = weights.map((each, place) => each * lengths[place % count]);
  for (let start = 0; start < made.length; start += count) {
    const row = made.subarray(start, start + count);
    const total = row.reduce((sum, each) => sum + (each || 0), 0) || 1;
    row.forEach((each, place) => (row[place] = each / total));
  }
  return made;
}

/** One minus the other. */
export const differences = (one: Cells, other: Cells): Float64Array => Float64Array.from(one, (each, place) => each - other[place]);

// ------------------------------------------------------------------------------------------------------ token A rather than B

export interface Contribution {
  /** Of the stream's parts; null: the biases of the final norm and of the head. */
  name: string | null;
  value: number;
}

export interface Attribution {
  /** "parts": what each part of the stream contributes with the final norm's scale held; "steps": how the lens moves at each point. */
  kind: "parts" | "steps";
  terms: Contribution[];
  /** The logit of one token less that of the other. */
  total: number;
}

/** How a final norm divides: by the root of the variance or of the mean square; 1 without a norm. */
function scaleOf(about: About, vector: Cells): number {
  const model = about.model as { norm?: string; norm_type?: string; norm_epsilon?: number | null; final_norm?: boolean | null };
  if (!(model.final_norm ?? model.norm === "pre")) return 1;
  let [sum, squares] = [0, 0];
  for (let place = 0; place < vector.length; place++) [sum, squares] = [sum + vector[place], squares + vector[place] ** 2];
  const centre = model.norm_type === "rmsnorm" ? 0 : sum / vector.length;
  let spread = 0;
  for (let place = 0; place < vector.length; place++) spread += (vector[place] - centre) ** 2;
  return Math.sqrt(spread / vector.length + (model.norm_epsilon ?? 1e-5));
}

/** Whether the last stream is the sum of its parts, as it is unless a norm lies in between. */
function isSum(values: Values, about: About, position: number): boolean {
  const last = rowOf(values, about.stream[about.stream.length - 1], position);
  const parts = ["embed", ...about.contributions].map((name) => rowOf(values, name, position));
  let [wrong, most] = [0, 0];
  for (let place = 0; place < last.length; place++) {
    const sum = parts.reduce((all, part) => all + part[place], 0);
    wrong = Math.max(wrong, Math.abs(sum - last[place]));
    most = Math.max(most, Math.abs(last[place]));
  }
  return wrong <= 1e-3 * most;
}

/**
 * What the parts of the stream say of one token rather than another, at a position.
 *
 * The lens reads v as D(v) = c + a(v) / s(v): a is linear, s is the norm's own scale of v, c comes from biases. With the scale s of
 * the last stream held, a part contributes a(v) / s = (D(v) − c) s(v) / s; these and c sum to the difference of the logits.
 * c is what the sum of all parts leaves. Where the stream is no such sum, the steps of the lens are told, which sum as well.
 */
export function attribution(values: Values, about: About, position: number, one: number, other: number): Attribution {
  const difference = (name: string) => {
    const row = rowOf(values, LENS + name, position);
    return row[one] - row[other];
  };
  const last = about.stream[about.stream.length - 1];
  const total = difference(last);
  const parts = ["embed", ...about.contributions];
  if (parts.some((name) => !rowOf(values, LENS + name, position)) || !isSum(values, about, position)) {
    const terms = about.stream.map((name, place) => ({ name, value: difference(name) - (place ? difference(about.stream[place - 1]) : 0) }));
    return { kind: "steps", terms, total };
  }
  const held = scaleOf(about, rowOf(values, last, position));
  const read = parts.map((name) => ({ name, scale: scaleOf(about, rowOf(values, name, position)), value: difference(name) }));
  const scales = read.reduce((sum, { scale }) => sum + scale, 0);
  const bias = (read.reduce((sum, { scale, value }) => sum + scale * value, 0) - held * total) / (scales - held);
  const terms: Contribution[] = read.map(({ name, scale, value }) => ({ name, value: ((value - bias) * scale) / held }));
  return { kind: "parts", terms: [...terms, { name: null, value: bias }], total };
}

/** −ln of the probabilities of tokens; the first is of none. */
export const surprisals = (shares: readonly number[]): Float64Array => Float64Array.from(shares, (each, place) => (place ? -Math.log(each) : NaN));
