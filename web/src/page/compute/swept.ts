// A sweep on a model's graph: each place patched or zeroed at each position, and only what depends on it computed again.

import { edited } from "../edits";
import type { Edit, Swept, Tell } from "../source";
import { Program, sentence } from "./program";

const LOGITS = "logits";

/** The edit that a cell of a sweep is. */
export function editOf({ ids, places, from, others }: Swept, cell: number): Edit {
  const { at, head } = places[Math.floor(cell / ids.length)];
  return { at, ...(head === undefined ? {} : { heads: [head] }), positions: [cell % ids.length], ...(others ? { do: "patch", from } : { do: "zero" }) };
}

/** The logit of one token less that of the other, at the last position. */
export function difference(logits: { shape: readonly number[]; data: ArrayLike<number> }, [one, other]: readonly [number, number]): number {
  const start = logits.data.length - logits.shape[logits.shape.length - 1];
  return logits.data[start + one] - logits.data[start + other];
}

/** Tells all differences, after each `piece` of milliseconds those that it has, as long as they are wanted. */
export async function swept(program: Program, asked: Swept, tell: Tell, isWanted: () => boolean, piece: number): Promise<void> {
  const { ids, others, pair, places, given } = asked;
  const names = [LOGITS, ...places.map(({ at }) => at)];
  const values = (of: readonly number[]) => program.values(sentence(of, given), names);
  const [own, theirs] = [values(ids), others && values(others)];
  let [began, made]: [number, number[]] = [-Infinity, []]; // the first one is told at once
  for (let cell = 0; cell < places.length * ids.length; cell++) {
    const edit = editOf(asked, cell);
    const value = edited(program.valueOf(own, edit.at), edit, theirs ? program.valueOf(theirs, edit.at) : undefined);
    made.push(difference(program.valueOf(program.changed(own, edit.at, value, [LOGITS]), LOGITS), pair));
    if (performance.now() - began < piece && cell + 1 < places.length * ids.length) continue;
    tell(cell + 1 - made.length, made);
    made = [];
    await new Promise((resolve) => setTimeout(resolve));
    if (!isWanted()) return;
    began = performance.now();
  }
}
