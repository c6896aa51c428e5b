// PyTorch's core operations that compute. Names and arguments are those of ATen.

import { erf } from "./erf";
import { MOVES, moved, number } from "./moves";
import { matrix, products } from "./products";
import { Tensor, axisOf, broadcast, groups, placeOf, places, room, size, stretched, strides, tensor } from "./tensors";

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Given = any;
/** A number is the length of an axis. */
export type Value = Tensor | Tensor[] | number;
type Operation = (...given: Given[]) => Value;

export const isTensor = (value: unknown): value is Tensor => typeof value === "object" && value !== null && "data" in value;
const asTensor = (value: Tensor | number): Tensor => (isTensor(value) ? value : number(+value));

// Cell by cell.

function each(input: Tensor, rule: (cell: number) => number): Tensor {
  const { shape, data } = input;
  const made = room(data.length, input);
  for (let cell = 0; cell < made.length; cell++) made[cell] = rule(data[cell]);
  return { shape, data: made };
}

const isSame = (one: readonly number[], other: readonly number[]): boolean =>
  one.length === other.length && one.every((length, axis) => length === other[axis]);

/** Whether `end` is the end of `shape`: a tensor of it is repeated in whole. */
const isEnd = (end: readonly number[], shape: readonly number[]): boolean =>
  end.length <= shape.length && isSame(end, shape.slice(shape.length - end.length));

function pairs(left: Tensor | number, right: Tensor | number, rule: (one: number, other: number) => number): Tensor {
  const [a, b] = [asTensor(left), asTensor(right)];
  const shape = broadcast(a.shape, b.shape);
  const [one, other] = [a.data, b.data];
  const data = room(size(shape), a, b);
  if (one.length === data.length && isEnd(b.shape, shape)) {
    const width = other.length;
    for (let start = 0; start < data.length; start += width)
      for (let cell = 0; cell < width; cell++) data[start + cell] = rule(one[start + cell], other[cell]);
    return { shape, data };
  }
  const [at, by] = [a, b].map((input) => places(shape, stretched(input.shape, shape)));
  for (let cell = 0; cell < data.length; cell++) data[cell] = rule(one[at[cell]], other[by[cell]]);
  return { shape, data };
}

/** As `pairs` for a + factor · b, the operation of residual streams and biases. */
function added(left: Tensor | number, right: Tensor | number, factor = 1): Tensor {
  const [a, b] = [asTensor(left), asTensor(right)];
  if (a.data.length < b.data.length || !isEnd(b.shape, a.shape)) return pairs(a, b, (x, y) => x + factor * y);
  const [one, other] = [a.data, b.data];
  const [data, width] = [room(one.length, a, b), other.length];
  for (let start = 0; start < data.length; start += width)
    for (let cell = 0; cell < width; cell++) data[start + cell] = one[start + cell] + factor * other[cell];
  return { shape: a.shape, data };
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
  logical_and: (x, y) => +(!!x && !!y),
  logical_or: (x, y) => +(!!x || !!y),
  logical_xor: (x, y) => +(!x !== !y),
  maximum: larger,
  minimum: smaller,
  "pow.Scalar": power,
  "pow.Tensor_Scalar": power,
  "pow.Tensor_Tensor": power,
};

/** Those with a number or a tensor on the right. */
const EITHER: typeof BINARY = {
  div: (x, y) => x / y,
  eq: (x, y) => +(x === y),
  ge: (x, y) => +(x >= y),
  gt: (x, y) => +(x > y),
  le: (x, y) => +(x <= y),
  lt: (x, y) => +(x < y),
  mul: (x, y) => x * y,
  ne: (x, y) => +(x !== y),
  remainder,
};
for (const [name, rule] of Object.entries(EITHER)) BINARY[`${name}.Scalar`] = BINARY[`${name}.Tensor`] = rule;

// Along axes.

/** A number for each group of cells that differ along these axes only. */
function folded(input: Tensor, dims: number[] | null, keep: boolean, rule: (cells: Float64Array) => number): Tensor {
  const [axes, starts, inside] = groups(input.shape, dims);
  const cells = new Float64Array(inside.length);
  const data = room(starts.length, input);
  for (let row = 0; row < starts.length; row++) {
    for (let place = 0; place < cells.length; place++) cells[place] = input.data[starts[row] + inside[place]];
    data[row] = rule(cells);
  }
  const shape = input.shape.map((length, axis) => (axes.includes(axis) ? 1 : length));
  return tensor(keep ? shape : input.shape.filter((_, axis) => !axes.includes(axis)), data);
}

/** A row for each row along one axis. */
function rows(input: Tensor, dim: number, length: number, rule: (cells: Float64Array) => ArrayLike<number>): Tensor {
  if (!input.shape.length) return number(rule(Float64Array.from(input.data))[0]);
  const axis = axisOf(dim, input.shape.length);
  const shape = input.shape.map((each, place) => (place === axis ? length : each));
  const [from, to] = [strides(input.shape), strides(shape)];
  const others = (all: readonly number[]) => all.filter((_, place) => place !== axis);
  const [starts, targets] = [places(others(input.shape), others(from)), places(others(shape), others(to))];
  const data = room(size(shape), input);
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

/** In place. */
function softmax(cells: Float64Array): Float64Array {
  let largest = -Infinity;
  for (let place = 0; place < cells.length; place++) largest = larger(cells[place], largest);
  let sum = 0;
  for (let place = 0; place < cells.length; place++) sum += cells[place] = Math.exp(cells[place] - largest);
  for (let place = 0; place < cells.length; place++) cells[place] /= sum;
  return cells;
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
  const count = input.data.length / width;
  const [data, means, scales] = [input.data.length, count, count].map((length) => room(length, input));
  for (let row = 0; row < count; row++) {
    const start = row * width;
    let middle = 0;
    for (let cell = start; cell < start + width; cell++) middle += input.data[cell];
    middle /= width;
    let variance = 0;
    for (let cell = start; cell < start + width; cell++) variance += (input.data[cell] - middle) ** 2;
    const scale = 1 / Math.sqrt(variance / width + epsilon);
    means[row] = middle;
    scales[row] = scale;
    for (let column = 0; column < width; column++) {
      const made = (input.data[start + column] - middle) * scale * (gain ? gain.data[column] : 1);
      data[start + column] = made + (shift ? shift.data[column] : 0);
    }
  }
  const rest = input.shape.map((length, axis) => (axis < input.shape.length - shape.length ? length : 1));
  return [tensor(input.shape, data), tensor(rest, means), tensor(rest, scales)];
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
  const data = room(batch * time * width, input, inward);
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
  "add.Tensor": added,
  "add.Scalar": added,
  "sub.Tensor": (x, y, alpha = 1) => pairs(x, y, (a, b) => a - alpha * b),
  "sub.Scalar": (x, y, alpha = 1) => pairs(x, y, (a, b) => a - alpha * b),
  addmm: (z, x, y, beta = 1, alpha = 1) => (beta === 1 && alpha === 1 ? added(matrix(x, y), z) : pairs(z, matrix(x, y), (a, b) => beta * a + alpha * b)),
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

export { erf, placeOf };
