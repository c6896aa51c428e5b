// Tensors in row-major order; true is 1, false is 0. The precision is a property of a tensor: what is computed from
// float32 numbers is float32, with sums in float64; what is computed from float64 numbers alone is float64.

export type Numbers = Float64Array | Float32Array;

export interface Tensor {
  readonly shape: readonly number[];
  readonly data: Numbers;
}

export const tensor = (shape: readonly number[], data: ArrayLike<number>): Tensor => ({
  shape,
  data: data instanceof Float64Array || data instanceof Float32Array ? data : Float64Array.from(data),
});

/** Room for the results of a computation with these tensors. */
export function room(length: number, ...given: Tensor[]): Numbers {
  for (const each of given) if (each.data instanceof Float32Array) return new Float32Array(length);
  return new Float64Array(length);
}

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
  if (!found.length) return found;
  const last = shape.length - 1;
  const [width, step] = last < 0 ? [1, 0] : [shape[last], steps[last]];
  const index = new Array(shape.length).fill(0);
  let row = start;
  for (let place = 0; place < found.length; ) {
    for (let column = 0, at = row; column < width; column++, at += step) found[place++] = at;
    for (let axis = last - 1; axis >= 0; axis--) {
      row += steps[axis];
      if (++index[axis] < shape[axis]) break;
      row -= steps[axis] * shape[axis];
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
export function taken(from: Tensor, shape: readonly number[], at: ArrayLike<number>): Tensor {
  const data = room(at.length, from);
  for (let place = 0; place < data.length; place++) data[place] = from.data[at[place]];
  return { shape, data };
}

/** Groups of the cells that differ along these axes only (null: all): the axes, where each begins, its cells from there. */
export function groups(shape: readonly number[], dims: number[] | null): [number[], Int32Array, Int32Array] {
  const all = shape.map((_, axis) => axis);
  const axes = dims?.length ? dims.map((dim) => axisOf(dim, shape.length)) : all;
  const steps = strides(shape);
  const along = (some: number[]) => places(some.map((axis) => shape[axis]), some.map((axis) => steps[axis]));
  return [axes, along(all.filter((axis) => !axes.includes(axis))), along(axes)];
}

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
