// Plain arithmetic for panes that show the model's numbers: which row, which token, in what order.

import type { Tensor } from "./source";

/** The row of the last axis at these indices of the others. */
export function row(value: Tensor, ...index: number[]): Float32Array | Float64Array {
  const width = value.shape[value.shape.length - 1];
  const start = index.reduce((place, each, axis) => place * value.shape[axis] + each, 0) * width;
  return value.data.subarray(start, start + width);
}

/** Places of the largest numbers, the largest first. */
export const largest = (cells: ArrayLike<number>, count: number): number[] =>
  Array.from(cells, (_, place) => place).sort((one, other) => cells[other] - cells[one] || one - other).slice(0, count);
