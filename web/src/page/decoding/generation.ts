// Generation token by token: which tokens the model sees, and the draw of the next one.

import { choose } from "./draw";
import { Sampling, distribution } from "./filters";

/** What the next token is drawn from, and what it became. */
export interface Drawn {
  id: number;
  /** The model's logits that it was drawn from. */
  logits: Float32Array | Float64Array;
}

/** Where what the model sees begins after `total` tokens, of which so many are the prompt: as `vitral.decoding.Reader`. */
export function windowStart(prompt: number, total: number, context: number): number {
  let begin = Math.max(0, prompt - context);
  for (let length = prompt + 1; length <= total; length++)
    if (length - begin > context) begin = length - Math.max(1, Math.floor(context / 2));
  return begin;
}

/** One token for each number from 0 to below 1, each after those before it; nothing is computed before it is asked for. */
export function* generated(
  ids: readonly number[],
  logitsOf: (ids: readonly number[]) => Drawn["logits"],
  sampling: Sampling,
  numbers: Iterable<number>,
  forbidden: readonly number[] = [],
): Generator<Drawn> {
  const all = [...ids];
  for (const u of numbers) {
    const logits = logitsOf(all);
    const id = choose(distribution(logits, sampling, forbidden), u);
    yield { id, logits };
    all.push(id);
  }
}
