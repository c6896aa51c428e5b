// Two readers of one sentence: whose surprise is smaller at each token, and whether one is a table of pairs.

import { reach } from "../marks/plain";
import type { About, Source, Tensor, Values } from "../source";
import { row } from "../rows";
import { ratings } from "../wanted";

export interface Reader {
  from: Source;
  values: Values;
  /** −ln p of each token; NaN for the first. */
  losses: Float64Array;
}

export const reader = (from: Source, values: Values, ids: readonly number[]): Reader => ({ from, values, losses: ratings(values, ids).losses });

/** Whether tokens reach those after them: through attention, or through a memory. */
export const mixes = ({ contributions }: About): boolean => contributions.some((part) => /\.(attn|recurrence)\.out$/.test(part));

/** In an order that does not depend on which of the two is taken apart: who mixes tokens, then whose test loss is smaller. */
export function ordered(one: Reader, other: Reader): [Reader, Reader] {
  const [a, b] = [one.from.about, other.from.about];
  const order = Number(mixes(b)) - Number(mixes(a)) || (a.loss ?? Infinity) - (b.loss ?? Infinity) || (a.name < b.name ? -1 : 1);
  return order < 0 ? [one, other] : [other, one];
}

/** The greatest difference of equal logits that rounding explains, relative to the largest. */
const ROUNDING = 1e-4;

/** Whether what follows the token at a place is the same wherever that token stands, which it does at least twice. */
export function isPairs({ values: { logits } }: { values: { logits?: Tensor } }, ids: readonly number[], at: number): boolean {
  const places = ids.flatMap((id, place) => (id === ids[at] ? [place] : []));
  if (!logits || places.length < 2) return false;
  const rows = places.map((place) => row(logits, 0, place));
  const most = reach(rows[0]);
  return rows.every((other) => Array.from(other).every((each, id) => Math.abs(each - rows[0][id]) <= ROUNDING * most));
}
