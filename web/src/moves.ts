// Operations that only move cells: each cell of the result is a cell of one of the inputs. A move answers with the
// result's shape and, for each of its cells, the number of the input and the place in it. The arithmetic of a cell
// follows the same moves backwards.

import { Numbers, Tensor, axisOf, broadcast, indexOf, placeOf, places, room, size, stretched, strides, taken } from "./tensors";

export interface Move {
  shape: readonly number[];
  inputs: Tensor[];
  from: (cell: number) => [input: number, place: number];
  /** Where the cells of the only input go, if that is known for all of them at once; "same": they stay in order. */
  readonly places?: Int32Array | "same";
  /** All cells at once, where that is faster than one after another. */
  whole?: () => Numbers;
}

/** Cells at regular steps; where all of them go is only worked out if it is asked for. */
const at = (input: Tensor, shape: readonly number[], steps: readonly number[], start = 0): Move => ({
  shape,
  inputs: [input],
  from: (cell) => [0, indexOf(shape, cell).reduce((place, each, axis) => place + each * steps[axis], start)],
  get places() {
    return places(shape, steps, start);
  },
});

const same = (input: Tensor, shape: readonly number[]): Move => ({
  shape,
  inputs: [input],
  from: (cell) => [0, cell],
  places: "same",
});

const without = (shape: readonly number[], axes: number[]): number[] => shape.filter((_, axis) => !axes.includes(axis));

function slice(input: Tensor, dim = 0, start: number | null = 0, end: number | null = null, step = 1): Move {
  const axis = axisOf(dim, input.shape.length);
  const all = input.shape[axis];
  const bound = (place: number) => Math.min(Math.max(place < 0 ? place + all : place, 0), all);
  const first = bound(start ?? 0);
  const length = Math.max(0, Math.ceil((bound(end ?? all) - first) / step));
  const shape = input.shape.map((each, place) => (place === axis ? length : each));
  const steps = strides(input.shape);
  if (step === 1 && size(shape.slice(0, axis)) === 1) {
    const start = first * steps[axis];
    return { shape, inputs: [input], from: (cell) => [0, start + cell], whole: () => input.data.subarray(start, start + size(shape)) };
  }
  return at(input, shape, steps.map((each, place) => (place === axis ? each * step : each)), first * steps[axis]);
}

/** Cells of `source` written into `input`: by the place of each that is written, the place that it comes from. */
const over = (input: Tensor, source: Tensor, from: Map<number, number>): Move => ({
  shape: input.shape,
  inputs: [input, source],
  from: (cell) => {
    const found = from.get(cell);
    return found === undefined ? [0, cell] : [1, found];
  },
});

/** The cells of `source` written into `input` at the places where `slice` would read. */
function written(input: Tensor, source: Tensor, target: Move): Move {
  const from = new Map<number, number>();
  for (let cell = 0; cell < size(target.shape); cell++) from.set(target.from(cell)[1], cell);
  return over(input, source, from);
}

/** The cells of `input` for those of `shape`, by a rule for each index. */
const mapped = (input: Tensor, shape: readonly number[], rule: (each: number, axis: number, cell: number) => number): Move => ({
  shape,
  inputs: [input],
  from: (cell) => [0, placeOf(input.shape, indexOf(shape, cell).map((each, axis) => rule(each, axis, cell)))],
});

const select = (input: Tensor, dim: number, index: number): Move => {
  const axis = axisOf(dim, input.shape.length);
  const steps = strides(input.shape);
  const start = axisOf(index, input.shape[axis]) * steps[axis];
  return at(input, without(input.shape, [axis]), without(steps, [axis]), start);
};

function cat(inputs: Tensor[], dim = 0): Move {
  const kept = inputs.filter((each) => each.shape.length > 1 || size(each.shape) > 0);
  const axis = axisOf(dim, kept[0].shape.length);
  const shape = [...kept[0].shape];
  shape[axis] = kept.reduce((all, each) => all + each.shape[axis], 0);
  return {
    shape,
    inputs: kept,
    whole: () => {
      const data = room(size(shape), ...kept);
      const widths = kept.map((each) => size(each.shape.slice(axis)));
      for (let to = 0, row = 0; to < data.length; row++)
        kept.forEach(({ data: cells }, which) => {
          data.set(cells.subarray(row * widths[which], (row + 1) * widths[which]), to);
          to += widths[which];
        });
      return data;
    },
    from: (cell) => {
      const index = indexOf(shape, cell);
      let input = 0;
      while (index[axis] >= kept[input].shape[axis]) index[axis] -= kept[input++].shape[axis];
      return [input, placeOf(kept[input].shape, index)];
    },
  };
}

function permute(input: Tensor, dims: number[]): Move {
  const order = dims.map((dim) => axisOf(dim, input.shape.length));
  const long = order.filter((axis) => input.shape[axis] !== 1);
  if (long.every((axis, place) => place === 0 || axis > long[place - 1])) return same(input, order.map((axis) => input.shape[axis]));
  const steps = strides(input.shape);
  return at(input, order.map((axis) => input.shape[axis]), order.map((axis) => steps[axis]));
}

function view(input: Tensor, sizes: number[]): Move {
  const rest = size(input.shape) / sizes.reduce((all, each) => (each === -1 ? all : all * each), 1);
  return same(input, sizes.map((each) => (each === -1 ? rest : each)));
}

function expand(input: Tensor, sizes: number[]): Move {
  const more = sizes.length - input.shape.length;
  const shape = sizes.map((each, axis) => (each === -1 ? input.shape[axis - more] : each));
  if (size(shape) === size(input.shape)) return same(input, shape);
  return at(input, shape, stretched(input.shape, shape));
}

function repeat(input: Tensor, times: number[]): Move {
  const own = [...new Array(times.length - input.shape.length).fill(1), ...input.shape];
  const shape = own.map((each, axis) => each * times[axis]);
  return mapped({ shape: own, data: input.data }, shape, (each, axis) => each % own[axis]);
}

function flip(input: Tensor, dims: number[]): Move {
  const axes = dims.map((dim) => axisOf(dim, input.shape.length));
  return mapped(input, input.shape, (each, axis) => (axes.includes(axis) ? input.shape[axis] - 1 - each : each));
}

/** Cells of `input` by tensors of indices, one for each of the first axes; null keeps an axis. */
function index(input: Tensor, by: (Tensor | null)[]): Move {
  const first = by.findIndex((each) => each !== null);
  const used = by.flatMap((each, axis) => (each === null ? [] : [axis]));
  const common = used.reduce<readonly number[]>((shape, axis) => broadcast(shape, by[axis]!.shape), []);
  const lookups = new Map(used.map((axis) => [axis, places(common, stretched(by[axis]!.shape, common))]));
  const together = used.every((axis, place) => axis === used[0] + place);
  const kept = input.shape.map((_, axis) => axis).filter((axis) => !used.includes(axis));
  const before = together ? kept.filter((axis) => axis < first) : [];
  const after = kept.filter((axis) => !before.includes(axis));
  const shape = [...before.map((axis) => input.shape[axis]), ...common, ...after.map((axis) => input.shape[axis])];
  const rows = by.length === 1 ? by[0]! : null;
  const width = size(input.shape.slice(1));
  const whole = () => {
    const data = room(size(shape), input);
    rows!.data.forEach((row: number, at: number) => {
      const start = axisOf(row, input.shape[0]) * width;
      data.set(input.data.subarray(start, start + width), at * width);
    });
    return data;
  };
  return {
    shape,
    inputs: [input],
    ...(rows && { whole }),
    from: (cell) => {
      const here = indexOf(shape, cell);
      const place = placeOf(common, here.slice(before.length, before.length + common.length));
      const source = input.shape.map((length, axis) => {
        const lookup = lookups.get(axis);
        if (lookup) return axisOf(by[axis]!.data[lookup[place]], length);
        const early = before.indexOf(axis);
        return early >= 0 ? here[early] : here[before.length + common.length + after.indexOf(axis)];
      });
      return [0, placeOf(input.shape, source)];
    },
  };
}

function gather(input: Tensor, dim: number, by: Tensor): Move {
  const axis = axisOf(dim, input.shape.length);
  return mapped(input, by.shape, (each, place, cell) => (place === axis ? by.data[cell] : each));
}

function scatter(input: Tensor, dim: number, by: Tensor, source: Tensor): Move {
  const axis = axisOf(dim, input.shape.length);
  const from = new Map<number, number>();
  for (let cell = 0; cell < by.data.length; cell++) {
    const index = indexOf(by.shape, cell);
    const place = source.shape.length === 0 ? 0 : placeOf(source.shape, index);
    index[axis] = by.data[cell];
    from.set(placeOf(input.shape, index), place);
  }
  return over(input, source, from);
}

function pad(input: Tensor, by: number[], fill: Tensor): Move {
  const axes = input.shape.length;
  const before = (axis: number) => by[2 * (axes - 1 - axis)] ?? 0;
  const shape = input.shape.map((each, axis) => each + before(axis) + (by[2 * (axes - 1 - axis) + 1] ?? 0));
  return {
    shape,
    inputs: [input, fill],
    from: (cell) => {
      const index = indexOf(shape, cell).map((each, axis) => each - before(axis));
      const inside = index.every((each, axis) => each >= 0 && each < input.shape[axis]);
      return inside ? [0, placeOf(input.shape, index)] : [1, 0];
    },
  };
}

/** The branch that each cell takes. */
function where(condition: Tensor, yes: Tensor, no: Tensor, shape: readonly number[]): Move {
  const [which, left, right] = [condition, yes, no].map((each) => places(shape, stretched(each.shape, shape)));
  return {
    shape,
    inputs: [yes, no],
    whole: () => {
      const data = room(which.length, yes, no);
      for (let cell = 0; cell < data.length; cell++) data[cell] = condition.data[which[cell]] ? yes.data[left[cell]] : no.data[right[cell]];
      return data;
    },
    from: (cell) => (condition.data[which[cell]] ? [0, left[cell]] : [1, right[cell]]),
  };
}

export const number = (value: number): Tensor => ({ shape: [], data: Float64Array.of(value) });

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Arguments = any[];

export const MOVES: Record<string, (...given: Arguments) => Move> = {
  clone: (input: Tensor) => same(input, input.shape),
  alias: (input: Tensor) => same(input, input.shape),
  copy: (_: Tensor, source: Tensor) => same(source, source.shape),
  view,
  permute,
  expand,
  repeat,
  flip,
  cat,
  gather,
  where,
  "slice.Tensor": slice,
  "select.int": select,
  "squeeze.dim": (input: Tensor, dim: number) => squeeze(input, [dim]),
  "squeeze.dims": squeeze,
  unsqueeze: (input: Tensor, dim: number) => {
    const shape = [...input.shape];
    shape.splice(axisOf(dim, shape.length + 1), 0, 1);
    return same(input, shape);
  },
  embedding: (table: Tensor, by: Tensor) => index(table, [by]),
  "index.Tensor": index,
  index_select: (input: Tensor, dim: number, by: Tensor) => {
    const axis = axisOf(dim, input.shape.length);
    return index(input, [...new Array(axis).fill(null), by]);
  },
  "scatter.src": scatter,
  "scatter.value": (input: Tensor, dim: number, by: Tensor, value: number) => scatter(input, dim, by, number(value)),
  slice_scatter: (input: Tensor, source: Tensor, ...place: Arguments) => written(input, source, slice(input, ...place)),
  select_scatter: (input: Tensor, source: Tensor, dim: number, index: number) =>
    written(input, source, select(input, dim, index)),
  constant_pad_nd: (input: Tensor, by: number[], fill = 0) => pad(input, by, number(fill)),
};

function squeeze(input: Tensor, dims: number[]): Move {
  const axes = dims.map((dim) => axisOf(dim, input.shape.length)).filter((axis) => input.shape[axis] === 1);
  return same(input, without(input.shape, axes));
}

export function moved(move: Move): Tensor {
  const [input] = move.inputs;
  const { places } = move; // may be worked out only now
  if (places === "same") return { shape: move.shape, data: input.data };
  if (places) return taken(input, move.shape, places);
  if (move.whole) return { shape: move.shape, data: move.whole() };
  const data = room(size(move.shape), ...move.inputs);
  for (let cell = 0; cell < data.length; cell++) {
    const [input, place] = move.from(cell);
    data[cell] = move.inputs[input].data[place];
  }
  return { shape: move.shape, data };
}
