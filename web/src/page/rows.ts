// Plain arithmetic for panes that show the model's numbers: which row, which token, in what order.

import { Tensor, Values, atPosition } from "./source";

/** The row of the last axis at these indices of the others. */
export function row(value: Tensor, ...index: number[]): Float32Array | Float64Array {
  const width = value.shape[value.shape.length - 1];
  const start = index.reduce((place, each, axis) => place * value.shape[axis] + each, 0) * width;
  return value.data.subarray(start, start + width);
}

/** The row of a value at a position: logits, a vector of the stream. */
export function rowOf(values: Values, name: string, position: number): Float32Array | Float64Array {
  const alone = values[atPosition(name, position)];
  return alone ? alone.data : row(values[name], 0, position);
}

/** Places of the largest numbers, the largest first. */
export function largest(cells: ArrayLike<number>, count: number): number[] {
  const found: number[] = [];
  for (let place = 0; place < cells.length; place++) {
    if (found.length === count && !(cells[place] > cells[found[count - 1]])) continue;
    let at = Math.min(found.length, count - 1);
    for (; at > 0 && cells[place] > cells[found[at - 1]]; at--) found[at] = found[at - 1];
    found[at] = place;
  }
  return found;
}
