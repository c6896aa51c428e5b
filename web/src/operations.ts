// PyTorch's core operations that compute, in float64. Names and arguments are those of ATen.

import { MOVES, moved, number } from "./moves";
import { Tensor, axisOf, broadcast, placeOf, places, size, stretched, strides, tensor } from "./tensors";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Given = any;
/** A number is the length of an axis. */
export type Value = Tensor | Tensor[] | number;
type Operation = (...given: Given[]) => Value;

export const isTensor = (value: unknown): value is Tensor => typeof value === "object" && value !== null && "data" in value;
const asTensor = (value: Tensor | number): Tensor => (isTensor(value) ? value : number(+value));

// Cell by cell.

const each = (input: Tensor, rule: (cell: number) => number): Tensor => tensor(input.shape, input.data.map(rule));

function pairs(left: Tensor | number, right: Tensor | number, rule: (one: number, other: number) => number): Tensor {
  const [a, b] = [asTensor(left), asTensor(right)];
  const shape = broadcast(a.shape, b.shape);
  const [at, by] = [a, b].map((input) => places(shape, stretched(input.shape, shape)));
  return tensor(shape, Float64Array.from({ length: at.length }, (_, cell) => rule(a.data[at[cell]], b.data[by[cell]])));
}

const TERMS = 400;

/** The error function to float64: a series of terms of one sign. */
export function erf(x: number): number {
  const size = Math.abs(x);
  if (size > 6) return Math.sign(x);
  let term = x;
  let sum = x;
  for (let n = 1; n < TERMS && Math.abs(term) > Math.abs(sum) * 1e-17; n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

const gelu = (x: number) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));
const geluTanh = (x: number) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
/** Remainder with the sign of the divisor, as in Python. */
const remainder = (x: number, y: number) => x - y * Math.floor(x / y);
/** To the nearest whole number; halves to the even one. */
export const rounded = (x: number) => (Math.abs(x % 1) === 0.5 ? 2 * Math.round(x / 2) : Math.round(x));
const power = (x: number, y: number) => (x === 1 || y === 0 ? 1 : x ** y);
const larger = (x: number, y: number) => (Number.isNaN(x) || Number.isNaN(y) ? NaN : x > y ? x : y);
const smaller = (x: number, y: number) => -larger(-x, -y);

const UNARY: Record<string, (x: number) => number> = {
  abs: Math.abs,
  acos: Math.acos,
  asin: Math.asin,
  atan: Math.atan,
  bitwise_not: (x) => +!x,
  ceil: Math.ceil,
  cos: Math.cos,
  erf,
  exp: Math.exp,
  expm1: Math.expm1,
  floor: Math.floor,
  isinf: (x) => +(Math.abs(x) === Infinity),
  isnan: (x) => +Number.isNaN(x),
  log: Math.log,
  log10: Math.log10,
  log1p: Math.log1p,
  log2: Math.log2,
  logical_not: (x) => +!x,
  neg: (x) => -x,
  reciprocal: (x) => 1 / x,
  relu: (x) => larger(x, 0),
  round: rounded,
  rsqrt: (x) => 1 / Math.sqrt(x),
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  sign: (x) => +(x > 0) - +(x < 0),
  sin: Math.sin,
  sqrt: Math.sqrt,
  tan: Math.tan,
  tanh: Math.tanh,
  trunc: Math.trunc,
};

const BINARY: Record<string, (x: number, y: number) => number> = {
  atan2: Math.atan2,
  "bitwise_and.Tensor": (x, y) => x & y,
  "bitwise_or.Tensor": (x, y) => x | y,
  "div.Scalar": (x, y) => x / y,
  "div.Tensor": (x, y) => x / y,
  "eq.Scalar": (x, y) => +(x === y),
  "eq.Tensor": (x, y) => +(x === y),
  "ge.Scalar": (x, y) => +(x >= y),
  "ge.Tensor": (x, y) => +(x >= y),
  "gt.Scalar": (x, y) => +(x > y),
  "gt.Tensor": (x, y) => +(x > y),
  "le.Scalar": (x, y) => +(x <= y),
  "le.Tensor": (x, y) => +(x <= y),
  logical_and: (x, y) => +(!!x && !!y),
  logical_or: (x, y) => +(!!x || !!y),
  logical_xor: (x, y) => +(!x !== !y),
  "lt.Scalar": (x, y) => +(x < y),
  "lt.Tensor": (x, y) => +(x < y),
  maximum: larger,
  minimum: smaller,
  "mul.Scalar": (x, y) => x * y,
  "mul.Tensor": (x, y) => x * y,
  "ne.Scalar": (x, y) => +(x !== y),
  "ne.Tensor": (x, y) => +(x !== y),
  "pow.Scalar": power,
  "pow.Tensor_Scalar": power,
  "pow.Tensor_Tensor": power,
  "remainder.Scalar": remainder,
  "remainder.Tensor": remainder,
};

// Along axes.

/** A number for each group of cells that differ along these axes only. */
function folded(input: Tensor, dims: number[] | null, keep: boolean, rule: (cells: Float64Array) => number): Tensor {
  const rank = input.shape.length;
  const axes = dims === null || dims.length === 0 ? input.shape.map((_, axis) => axis) : dims.map((dim) => axisOf(dim, rank));
  const steps = strides(input.shape);
  const rest = input.shape.map((_, axis) => axis).filter((axis) => !axes.includes(axis));
  const starts = places(rest.map((axis) => input.shape[axis]), rest.map((axis) => steps[axis]));
  const inside = places(axes.map((axis) => input.shape[axis]), axes.map((axis) => steps[axis]));
  const cells = new Float64Array(inside.length);
  const data = Float64Array.from(starts, (start) => {
    for (let place = 0; place < cells.length; place++) cells[place] = input.data[start + inside[place]];
    return rule(cells);
  });
  const shape = keep ? input.shape.map((length, axis) => (axes.includes(axis) ? 1 : length)) : rest.map((axis) => input.shape[axis]);
  return tensor(shape, data);
}

/** A row for each row along one axis. */
function rows(input: Tensor, dim: number, length: number, rule: (cells: Float64Array) => ArrayLike<number>): Tensor {
  if (!input.shape.length) return tensor([], Float64Array.from(rule(input.data)));
  const axis = axisOf(dim, input.shape.length);
  const shape = input.shape.map((each, place) => (place === axis ? length : each));
  const [from, to] = [strides(input.shape), strides(shape)];
  const others = (all: readonly number[]) => all.filter((_, place) => place !== axis);
  const [starts, targets] = [places(others(input.shape), others(from)), places(others(shape), others(to))];
  const data = new Float64Array(size(shape));
  const cells = new Float64Array(input.shape[axis]);
  for (let row = 0; row < starts.length; row++) {
    for (let place = 0; place < cells.length; place++) cells[place] = input.data[starts[row] + place * from[axis]];
    const made = rule(cells);
    for (let place = 0; place < length; place++) data[targets[row] + place * to[axis]] = made[place];
  }
  return tensor(shape, data);
}

const total = (cells: ArrayLike<number>): number => Array.prototype.reduce.call(cells, ((all: number, each: number) => all + each) as never, 0 as never) as unknown as number;
const most = (cells: Float64Array): number => cells.reduce(larger, -Infinity);
const least = (cells: Float64Array): number => cells.reduce(smaller, Infinity);
const mean = (cells: Float64Array): number => total(cells) / cells.length;
const spread = (cells: Float64Array, correction: number): number => {
  const middle = mean(cells);
  return total(cells.map((cell) => (cell - middle) ** 2)) / (cells.length - correction);
};
const placeOfFirst = (cells: Float64Array, value: number): number =>
  cells.findIndex((cell) => cell === value || (Number.isNaN(cell) && Number.isNaN(value)));

function softmax(cells: Float64Array): Float64Array {
  const largest = most(cells);
  const powers = cells.map((cell) => Math.exp(cell - largest));
  const sum = total(powers);
  return powers.map((each) => each / sum);
}

function logSoftmax(cells: Float64Array): Float64Array {
  const largest = most(cells);
  const sum = Math.log(total(cells.map((cell) => Math.exp(cell - largest))));
  return cells.map((cell) => cell - largest - sum);
}

/** Places in order of their numbers; equal numbers stay in order. */
function order(cells: Float64Array, descending: boolean): number[] {
  return Array.from(cells, (_, place) => place).sort((one, other) =>
    descending ? cells[other] - cells[one] || one - other : cells[one] - cells[other] || one - other,
  );
}

function sorted(input: Tensor, dim: number, length: number, descending: boolean): Tensor[] {
  const row = (rule: (cells: Float64Array) => ArrayLike<number>) => rows(input, dim, length, rule);
  return [
    row((cells) => order(cells, descending).slice(0, length).map((place) => cells[place])),
    row((cells) => order(cells, descending).slice(0, length)),
  ];
}

const extreme = (pick: (cells: Float64Array) => number) => (input: Tensor, dim: number, keep = false) => [
  folded(input, [dim], keep, pick),
  folded(input, [dim], keep, (cells) => placeOfFirst(cells, pick(cells))),
];

function layerNorm(input: Tensor, shape: number[], gain: Tensor | null, shift: Tensor | null, epsilon: number): Tensor[] {
  const width = size(shape);
  const groups = tensor([input.data.length / width, width], input.data);
  const [means, scales] = [
    folded(groups, [1], true, mean),
    folded(groups, [1], true, (cells) => 1 / Math.sqrt(spread(cells, 0) + epsilon)),
  ];
  const data = input.data.map((cell, place) => {
    const [row, column] = [Math.floor(place / width), place % width];
    const made = (cell - means.data[row]) * scales.data[row] * (gain ? gain.data[column] : 1);
    return made + (shift ? shift.data[column] : 0);
  });
  const rest = input.shape.map((length, axis) => (axis < input.shape.length - shape.length ? length : 1));
  return [tensor(input.shape, data), tensor(rest, means.data), tensor(rest, scales.data)];
}

/** Products of matrices, one for each index of the leading axis. */
function products(left: Tensor, right: Tensor): Tensor {
  const [count, height, inner] = left.shape;
  const width = right.shape[2];
  const data = new Float64Array(count * height * width);
  for (let batch = 0; batch < count; batch++)
    for (let row = 0; row < height; row++)
      for (let place = 0; place < inner; place++) {
        const factor = left.data[(batch * height + row) * inner + place];
        const [from, to] = [(batch * inner + place) * width, (batch * height + row) * width];
        for (let column = 0; column < width; column++) data[to + column] += factor * right.data[from + column];
      }
  return tensor([count, height, width], data);
}

function matrix(left: Tensor, right: Tensor): Tensor {
  const made = products(tensor([1, ...left.shape], left.data), tensor([1, ...right.shape], right.data));
  return tensor(made.shape.slice(1), made.data);
}

const filled = (shape: readonly number[], value: number): Tensor => tensor(shape, new Float64Array(size(shape)).fill(value));

const counted = (start: number, end: number, step = 1): Tensor => {
  const length = Math.max(0, Math.ceil((end - start) / step));
  return tensor([length], Array.from({ length }, (_, place) => start + place * step));
};

function split(input: Tensor, sizes: number[], dim = 0): Tensor[] {
  let start = 0;
  return sizes.map((each) => moved(MOVES["slice.Tensor"](input, dim, start, (start += each))));
}

/** The hidden states of one LSTM layer that starts with zeros, [batch, time, width]; gates as PyTorch stacks them. */
function lstm(input: Tensor, [inward, onward, ...shifts]: Tensor[]): Tensor {
  const [batch, time, from] = input.shape;
  const width = onward.shape[1];
  const data = new Float64Array(batch * time * width);
  const squash = (x: number) => 1 / (1 + Math.exp(-x));
  for (let row = 0; row < batch; row++) {
    const cell = new Float64Array(width);
    for (let step = 0; step < time; step++) {
      const [at, to] = [(row * time + step) * from, (row * time + step) * width];
      const gates = Float64Array.from({ length: 4 * width }, (_, gate) => {
        let sum = shifts.reduce((all, shift) => all + shift.data[gate], 0);
        for (let place = 0; place < from; place++) sum += inward.data[gate * from + place] * input.data[at + place];
        for (let place = 0; step && place < width; place++) sum += onward.data[gate * width + place] * data[to - width + place];
        return sum;
      });
      for (let place = 0; place < width; place++) {
        const [enter, forget, candidate, leave] = [0, 1, 2, 3].map((gate) => gates[gate * width + place]);
        cell[place] = squash(forget) * cell[place] + squash(enter) * Math.tanh(candidate);
        data[to + place] = squash(leave) * Math.tanh(cell[place]);
      }
    }
  }
  return tensor([batch, time, width], data);
}

const any = (cells: Float64Array) => +cells.some((cell) => cell !== 0);

const COMPUTED: Record<string, Operation> = {
  "add.Tensor": (x, y, alpha = 1) => pairs(x, y, (a, b) => a + alpha * b),
  "add.Scalar": (x, y, alpha = 1) => pairs(x, y, (a, b) => a + alpha * b),
  "sub.Tensor": (x, y, alpha = 1) => pairs(x, y, (a, b) => a - alpha * b),
  "sub.Scalar": (x, y, alpha = 1) => pairs(x, y, (a, b) => a - alpha * b),
  addmm: (z, x, y, beta = 1, alpha = 1) => pairs(z, matrix(x, y), (a, b) => beta * a + alpha * b),
  amax: (x, dims, keep = false) => folded(x, dims, keep, most),
  amin: (x, dims, keep = false) => folded(x, dims, keep, least),
  any: (x) => folded(x, null, false, any),
  "any.dim": (x, dim, keep = false) => folded(x, [dim], keep, any),
  "any.dims": (x, dims, keep = false) => folded(x, dims, keep, any),
  "arange.start_step": counted,
  argmax: (x, dim = null, keep = false) => folded(x, dim === null ? null : [dim], keep, (cells) => placeOfFirst(cells, most(cells))),
  argmin: (x, dim = null, keep = false) => folded(x, dim === null ? null : [dim], keep, (cells) => placeOfFirst(cells, least(cells))),
  bmm: products,
  clamp: (x, low = null, high = null) => each(x, (cell) => smaller(high ?? Infinity, larger(low ?? -Infinity, cell))),
  cumsum: (x, dim) => rows(x, dim, x.shape[axisOf(dim, x.shape.length)], (cells) => {
    let sum = 0;
    return cells.map((cell) => (sum += cell));
  }),
  "div.Tensor_mode": (x, y, mode) => pairs(x, y, (a, b) => (mode === "floor" ? Math.floor(a / b) : mode === "trunc" ? Math.trunc(a / b) : a / b)),
  "empty.memory_format": (shape) => filled(shape, 0),
  "fill.Scalar": (x, value) => filled(x.shape, value),
  full: (shape, value) => filled(shape, +value),
  full_like: (x, value) => filled(x.shape, +value),
  gelu: (x, form = "none") => each(x, form === "tanh" ? geluTanh : gelu),
  leaky_relu: (x, slope = 0.01) => each(x, (cell) => (cell > 0 ? cell : slope * cell)),
  "max.dim": extreme(most),
  "min.dim": extreme(least),
  mean: (x) => folded(x, null, false, mean),
  "mean.dim": (x, dims, keep = false) => folded(x, dims, keep, mean),
  mm: matrix,
  native_layer_norm: layerNorm,
  "prod.dim_int": (x, dim, keep = false) => folded(x, [dim], keep, (cells) => cells.reduce((all, cell) => all * cell, 1)),
  scalar_tensor: (value) => number(+value),
  sort: (x, dim = -1, descending = false) => sorted(x, dim, x.shape[axisOf(dim, x.shape.length)], descending),
  "sort.stable": (x, _stable, dim = -1, descending = false) => sorted(x, dim, x.shape[axisOf(dim, x.shape.length)], descending),
  split_with_sizes: split,
  sum: (x) => folded(x, null, false, total),
  "sum.dim_IntList": (x, dims, keep = false) => folded(x, dims, keep, total),
  topk: (x, length, dim = -1, largest = true) => sorted(x, dim, length, largest),
  "var.correction": (x, dims = null, correction = 1, keep = false) => folded(x, dims, keep, (cells) => spread(cells, correction ?? 1)),
  "where.self": (c, x, y) => {
    const [yes, no] = [asTensor(x), asTensor(y)];
    return moved(MOVES.where(c, yes, no, broadcast(broadcast(c.shape, yes.shape), no.shape)));
  },
  _log_softmax: (x, dim) => rows(x, dim, x.shape[axisOf(dim, x.shape.length)] ?? 1, logSoftmax),
  _softmax: (x, dim) => rows(x, dim, x.shape[axisOf(dim, x.shape.length)] ?? 1, softmax),
  _to_copy: (x, kind) => each(x, kind === "bool" ? (cell) => +(cell !== 0) : Math.trunc),
  getitem: (x, place) => x[place],
  lstm,
  "sym_size.int": (x, dim) => x.shape[axisOf(dim, x.shape.length)],
  add: (x, y) => x + y,
  sub: (x, y) => x - y,
  mul: (x, y) => x * y,
  floordiv: (x, y) => Math.floor(x / y),
  mod: remainder,
};

const { where: _where, ...NAMED } = MOVES;

export const OPERATIONS: Record<string, Operation> = {
  ...Object.fromEntries(Object.entries(UNARY).map(([name, rule]) => [name, (x: Tensor) => each(asTensor(x), rule)])),
  ...Object.fromEntries(Object.entries(BINARY).map(([name, rule]) => [name, (x: Tensor, y: Tensor) => pairs(x, y, rule)])),
  ...Object.fromEntries(Object.entries(NAMED).map(([name, rule]) => [name, (...given: Given[]) => moved(rule(...given))])),
  ...COMPUTED,
};

export { placeOf };
