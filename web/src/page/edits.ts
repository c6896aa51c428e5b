// Edits as functions of a named value, as `vitral.core.edits` defines them.

import type { Edits } from "../graph";
import type { Tensor } from "../tensors";
import type { Edit } from "./source";

const RULES: Partial<Record<Edit["do"], (edit: Edit) => (value: number) => number>> = {
  zero: () => () => 0,
  scale: (edit) => (value) => value * (edit.factor ?? 1),
  set: (edit) => () => edit.value ?? 0,
};

/** The cells of a value that an edit is about: of its heads, if it names any, at its positions. */
function edited(value: Tensor, edit: Edit): Tensor {
  const rule = RULES[edit.do]?.(edit);
  if (!rule) throw new Error(`an edit that is not known: ${edit.do}`);
  const { shape } = value;
  const data = value.data.slice();
  const [time, width] = [shape[shape.length - 2], shape[shape.length - 1]];
  const heads = shape.length === 4 ? shape[1] : 1;
  const positions = edit.positions === "all" ? Array.from({ length: time }, (_, place) => place) : edit.positions;
  for (let head = 0; head < heads; head++) {
    if (edit.heads && !edit.heads.includes(head)) continue;
    for (const position of positions)
      if (position < time)
        for (let cell = (head * time + position) * width, end = cell + width; cell < end; cell++) data[cell] = rule(data[cell]);
  }
  return { shape, data };
}

/** The edits of each name, one after another. */
export function editing(edits: readonly Edit[]): Edits {
  const made: Edits = {};
  for (const edit of edits) {
    const before = made[edit.at];
    made[edit.at] = (value) => edited(before ? before(value) : value, edit);
  }
  return made;
}
