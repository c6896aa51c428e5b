// Tensors of float64 numbers in row-major order; true is 1, false is 0.

export interface Tensor {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

export const tensor = (shape: readonly number[], data: ArrayLike<number>): Tensor => ({
  shape,
  data: data instanceof Float64Array ? data : Float64Array.from(data),
});

export const size = (shape: readonly number[]): number => shape.reduce((all, each) => all * each, 1);

export function strides(shape: readonly number[]): number[] {
  const steps: number[] = [];
  let step = 1;
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    steps[axis] = step;
    step *= shape[axis];
  }
  return steps;
}

/** An axis counted from the end if it is negative. */
export const axisOf = (axis: number, rank: number): number => (axis < 0 ? axis + rank : axis);

/** The shape of two tensors that are computed with each other. */
export function broadcast(left: readonly number[], right: readonly number[]): number[] {
  const rank = Math.max(left.length, right.length);
  return Array.from({ length: rank }, (_, axis) => {
    const one = left[left.length - rank + axis] ?? 1;
    return one === 1 ? (right[right.length - rank + axis] ?? 1) : one;
  });
}

/** For each cell of `shape`, in order, the place in a tensor with these steps along its axes. */
export function places(shape: readonly number[], steps: readonly number[], start = 0): Int32Array {
  const found = new Int32Array(size(shape));
  const index = new Array(shape.length).fill(0);
  let at = start;
  for (let place = 0; place < found.length; place++) {
    found[place] = at;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      at += steps[axis];
      if (++index[axis] < shape[axis]) break;
      at -= steps[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return found;
}

/** The steps through a tensor that is repeated to fill `shape`. */
export function stretched(own: readonly number[], shape: readonly number[]): number[] {
  const steps = strides(own);
  const more = shape.length - own.length;
  return shape.map((_, axis) => (axis < more || own[axis - more] === 1 ? 0 : steps[axis - more]));
}

/** A tensor whose cells are those of `from` at these places. */
export const taken = (from: Tensor, shape: readonly number[], at: ArrayLike<number>): Tensor =>
  tensor(shape, Float64Array.from({ length: at.length }, (_, place) => from.data[at[place]]));

/** The place of a cell. */
export const placeOf = (shape: readonly number[], index: readonly number[]): number =>
  index.reduce((place, each, axis) => place * shape[axis] + each, 0);

/** The cell at a place. */
export function indexOf(shape: readonly number[], place: number): number[] {
  const index: number[] = [];
  for (let axis = shape.length - 1; axis >= 0; axis--) {
    index[axis] = place % shape[axis];
    place = Math.floor(place / shape[axis]);
  }
  return index;
}
