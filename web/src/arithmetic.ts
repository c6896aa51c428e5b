// The arithmetic of one cell, read from the graph: from a named value back to the cells of other named values.

import { Graph, argument } from "./graph";
import { MOVES } from "./moves";
import { Value, isTensor } from "./operations";
import { Tensor, axisOf, broadcast, indexOf, placeOf, places, strides, stretched } from "./tensors";

export type Expression =
  | { kind: "cell"; name: string; index: number[]; value: number }
  | { kind: "number"; value: number }
  | { kind: "sum"; terms: Expression[] }
  | { kind: "difference"; left: Expression; right: Expression }
  | { kind: "product"; factors: Expression[] }
  | { kind: "fraction"; above: Expression; below: Expression }
  | { kind: "root"; inside: Expression }
  | { kind: "power"; base: Expression; exponent: Expression }
  | { kind: "exp"; exponent: Expression }
  | { kind: "apply"; name: string; given: Expression[] };

/** Larger exponents are written less the largest of their row: e^20 is already 485,165,195. */
const MOST_EXPONENT = 20;
const MOST_CELLS = 4096;

const number = (value: number): Expression => ({ kind: "number", value });
const sum = (terms: Expression[]): Expression => (terms.length === 1 ? terms[0] : { kind: "sum", terms });
const product = (...factors: Expression[]): Expression => ({ kind: "product", factors });
const fraction = (above: Expression, below: Expression): Expression => ({ kind: "fraction", above, below });
const apply = (name: string, ...given: Expression[]): Expression => ({ kind: "apply", name, given });

export function worth(expression: Expression): number {
  switch (expression.kind) {
    case "cell":
    case "number":
      return expression.value;
    case "sum":
      return expression.terms.reduce((all, term) => all + worth(term), 0);
    case "difference":
      return worth(expression.left) - worth(expression.right);
    case "product":
      return expression.factors.reduce((all, factor) => all * worth(factor), 1);
    case "fraction":
      return worth(expression.above) / worth(expression.below);
    case "root":
      return Math.sqrt(worth(expression.inside));
    case "power":
      return worth(expression.base) ** worth(expression.exponent);
    case "exp":
      return Math.exp(worth(expression.exponent));
    case "apply":
      return FUNCTIONS[expression.name](...expression.given.map(worth));
  }
}

const FUNCTIONS: Record<string, (...given: number[]) => number> = {
  cos: Math.cos,
  log: Math.log,
  max: Math.max,
  min: Math.min,
  sin: Math.sin,
  sigmoid: (x) => 1 / (1 + Math.exp(-x)),
  tanh: Math.tanh,
};

class Reader {
  private readonly named: Map<number, string>;
  private readonly owners = new Map<Tensor, number>();
  private cells = 0;

  constructor(private readonly graph: Graph, private readonly values: Value[]) {
    this.named = new Map(graph.inputs.map((name, place) => [place, name]));
    for (const [name, place] of Object.entries(graph.outputs)) this.named.set(place, name);
    values.forEach((value, place) => isTensor(value) && this.owners.set(value, place));
  }

  private get first(): number {
    return this.graph.inputs.length + this.graph.constants.length;
  }

  /** The arithmetic of a cell of a node; `null` where only its value is known. */
  node(place: number, cell: number): Expression | null {
    if (++this.cells > MOST_CELLS) return null;
    const [operation, given] = this.graph.nodes[place - this.first];
    const values = given.map((each) => argument(each, this.values));
    if (operation === "where.self") {
      const [condition, yes, no] = values.map((each) => (isTensor(each) ? each : tensorOf(each as number)));
      const move = MOVES.where(condition, yes, no, broadcast(broadcast(condition.shape, yes.shape), no.shape));
      return this.moved(move.inputs, move.from(cell));
    }
    if (operation in MOVES) {
      const move = MOVES[operation](...values);
      return this.moved(move.inputs, move.from(cell));
    }
    const rule = RULES[operation];
    return rule ? rule(this, values, cell, (this.values[place] as Tensor).shape) : null;
  }

  private moved(inputs: Tensor[], [input, place]: [number, number]): Expression {
    return this.cell(inputs[input], place);
  }

  /** A cell of a tensor: the cell of a named value, or the arithmetic of the node that made it. */
  cell(tensor: Tensor | number, cell: number): Expression {
    if (!isTensor(tensor)) return number(+tensor);
    const owner = this.owners.get(tensor);
    const value = tensor.data[cell];
    if (owner === undefined) return number(value);
    const name = this.named.get(owner);
    if (name !== undefined) return { kind: "cell", name, index: indexOf(tensor.shape, cell), value };
    if (owner < this.first) return number(value);
    return (this.graph.nodes[owner - this.first][0] === "getitem" ? this.part(owner, cell) : this.node(owner, cell)) ?? number(value);
  }

  /** A cell of the first result of an operation that has several. */
  private part(owner: number, cell: number): Expression | null {
    const [of, which] = this.graph.nodes[owner - this.first][1] as [{ at: number }, number];
    const [operation, given] = this.graph.nodes[of.at - this.first];
    const values = given.map((each) => argument(each, this.values));
    if (operation === "native_layer_norm" && which === 0) return layerNorm(this, values, cell);
    if (operation === "split_with_sizes") {
      const [input, sizes, dim] = values as [Tensor, number[], number?];
      const start = sizes.slice(0, which).reduce((all, each) => all + each, 0);
      const move = MOVES["slice.Tensor"](input, dim ?? 0, start, start + sizes[which]);
      return this.moved(move.inputs, move.from(cell));
    }
    return null;
  }

  /** The cell of an input that is stretched to `shape`. */
  stretched(tensor: Tensor | number, shape: readonly number[], cell: number): Expression {
    return isTensor(tensor) ? this.cell(tensor, places(shape, stretched(tensor.shape, shape))[cell]) : number(+tensor);
  }

  /** The cells of a row along an axis through a cell. */
  row(tensor: Tensor, dim: number, cell: number): Expression[] {
    const axis = axisOf(dim, tensor.shape.length);
    const step = strides(tensor.shape)[axis];
    const start = cell - indexOf(tensor.shape, cell)[axis] * step;
    return Array.from({ length: tensor.shape[axis] }, (_, place) => this.cell(tensor, start + place * step));
  }

  /** The cells of an input that are folded into one cell of the result. */
  group(tensor: Tensor, dims: number[] | null, cell: number): Expression[] {
    const rank = tensor.shape.length;
    const axes = dims?.length ? dims.map((dim) => axisOf(dim, rank)) : tensor.shape.map((_, axis) => axis);
    const rest = tensor.shape.map((_, axis) => axis).filter((axis) => !axes.includes(axis));
    const steps = strides(tensor.shape);
    const start = places(rest.map((axis) => tensor.shape[axis]), rest.map((axis) => steps[axis]))[cell];
    const inside = places(axes.map((axis) => tensor.shape[axis]), axes.map((axis) => steps[axis]), start);
    return Array.from(inside, (place) => this.cell(tensor, place));
  }
}

const tensorOf = (value: number): Tensor => ({ shape: [], data: Float64Array.of(+value) });

// eslint-disable-next-line @typescript-eslint/no-explicit-any
type Rule = (reader: Reader, given: any[], cell: number, shape: readonly number[]) => Expression | null;

const both = (join: (left: Expression, right: Expression) => Expression): Rule => (reader, [x, y], cell, shape) =>
  join(reader.stretched(x, shape, cell), reader.stretched(y, shape, cell));
const one = (wrap: (inside: Expression) => Expression): Rule => (reader, [x], cell) => wrap(reader.cell(x, cell));

function times(left: Expression, right: Expression): Expression {
  const factors = [left, right].flatMap((each) => (each.kind === "product" ? each.factors : [each]));
  const others = factors.filter((each) => !(each.kind === "number" && each.value === 1));
  return others.length === 1 ? others[0] : product(...(others.length ? others : [number(1)]));
}

function plus(left: Expression, right: Expression): Expression {
  return sum([left, right].flatMap((each) => (each.kind === "sum" ? each.terms : [each])));
}

const power = (base: Expression, exponent: Expression): Expression =>
  exponent.kind === "number" && exponent.value === 1 ? base : { kind: "power", base, exponent };

/** A row of one matrix and a column of another, term by term; terms in which a weight is 0 are left out. */
function dot(reader: Reader, left: Tensor, right: Tensor, row: number, column: number, starts: [number, number]): Expression {
  const inner = left.shape[left.shape.length - 1];
  const width = right.shape[right.shape.length - 1];
  const terms = Array.from({ length: inner }, (_, place) =>
    times(reader.cell(left, starts[0] + row * inner + place), reader.cell(right, starts[1] + place * width + column)),
  );
  return sum(terms);
}

const mm = (reader: Reader, left: Tensor, right: Tensor, cell: number): Expression => {
  const width = right.shape[1];
  return dot(reader, left, right, Math.floor(cell / width), cell % width, [0, 0]);
};

/** What is taken away from an exponent; the same from all leaves a softmax as it is. */
function taken(each: Expression): Expression | null {
  if (each.kind === "fraction") return taken(each.above);
  return each.kind === "difference" ? each.right : null;
}

function without(each: Expression): Expression {
  if (each.kind === "fraction") return fraction(without(each.above), each.below);
  return each.kind === "difference" ? each.left : each;
}

/** e to a power; of a logarithm, the number itself, or its root or power. */
function exponential(exponent: Expression): Expression {
  if (exponent.kind === "apply" && exponent.name === "log") return exponent.given[0];
  if (exponent.kind === "fraction" && exponent.above.kind === "apply" && exponent.above.name === "log")
    return power(exponent.above.given[0], fraction(number(1), exponent.below));
  return { kind: "exp", exponent };
}

function softmax(reader: Reader, input: Tensor, dim: number, cell: number): Expression {
  let seen = reader.row(input, dim, cell).filter((each) => worth(each) !== -Infinity);
  let own = reader.cell(input, cell);
  if (!seen.length || worth(own) === -Infinity) return number(0);
  const shifts = new Set(seen.map((each) => JSON.stringify(taken(each))));
  if (shifts.size === 1 && taken(own)) [seen, own] = [seen.map(without), without(own)];
  const values = seen.map(worth);
  const largest = Math.max(...values.map(Math.abs)) > MOST_EXPONENT ? Math.max(...values) : 0;
  const raised = (each: Expression): Expression =>
    exponential(largest === 0 ? each : { kind: "difference", left: each, right: number(largest) });
  return fraction(raised(own), sum(seen.map(raised)));
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any
function layerNorm(reader: Reader, [input, shape, gain, shift, epsilon]: any[], cell: number): Expression {
  const width = (shape as number[]).reduce((all, each) => all * each, 1);
  const row = Array.from(input.data.slice(cell - (cell % width), cell - (cell % width) + width) as Float64Array);
  const mean = row.reduce((all, each) => all + each, 0) / width;
  const variance = row.reduce((all, each) => all + (each - mean) ** 2, 0) / width;
  const quotient = fraction(
    { kind: "difference", left: reader.cell(input, cell), right: number(mean) },
    { kind: "root", inside: number(variance + epsilon) },
  );
  const scaled = gain && gain.data[cell % width] !== 1 ? product(reader.cell(gain, cell % width), quotient) : quotient;
  return shift && shift.data[cell % width] !== 0 ? plus(scaled, reader.cell(shift, cell % width)) : scaled;
}

const RULES: Record<string, Rule> = {
  "add.Tensor": (reader, [x, y, alpha = 1], cell, shape) =>
    plus(reader.stretched(x, shape, cell), times(number(alpha), reader.stretched(y, shape, cell))),
  "add.Scalar": both(plus),
  "sub.Tensor": both((left, right) => ({ kind: "difference", left, right })),
  "sub.Scalar": both((left, right) => ({ kind: "difference", left, right })),
  "mul.Tensor": both(times),
  "mul.Scalar": both(times),
  "div.Tensor": both(fraction),
  "div.Scalar": both(fraction),
  maximum: both((left, right) => apply("max", left, right)),
  minimum: both((left, right) => apply("min", left, right)),
  "pow.Tensor_Scalar": (reader, [x, exponent], cell) => power(reader.cell(x, cell), number(exponent)),
  neg: one((inside) => times(number(-1), inside)),
  exp: one(exponential),
  log: one((inside) => apply("log", inside)),
  sqrt: one((inside) => ({ kind: "root", inside })),
  rsqrt: one((inside) => fraction(number(1), { kind: "root", inside })),
  reciprocal: one((inside) => fraction(number(1), inside)),
  relu: one((inside) => apply("max", number(0), inside)),
  sigmoid: one((inside) => apply("sigmoid", inside)),
  tanh: one((inside) => apply("tanh", inside)),
  sin: one((inside) => apply("sin", inside)),
  cos: one((inside) => apply("cos", inside)),
  mm: (reader, [x, y], cell) => mm(reader, x, y, cell),
  addmm: (reader, [z, x, y], cell, shape) => plus(mm(reader, x, y, cell), reader.stretched(z, shape, cell)),
  bmm: (reader, [x, y], cell, shape) => {
    const [batch, row, column] = indexOf(shape, cell);
    const starts = [x, y].map((each: Tensor) => placeOf(each.shape, [batch, 0, 0])) as [number, number];
    return dot(reader, x, y, row, column, starts);
  },
  _softmax: (reader, [x, dim], cell) => softmax(reader, x, dim, cell),
  _log_softmax: (reader, [x, dim], cell) => apply("log", softmax(reader, x, dim, cell)),
  "sum.dim_IntList": (reader, [x, dims], cell) => sum(reader.group(x, dims, cell)),
  sum: (reader, [x], cell) => sum(reader.group(x, null, cell)),
  "mean.dim": (reader, [x, dims], cell) => {
    const terms = reader.group(x, dims, cell);
    return fraction(sum(terms), number(terms.length));
  },
  mean: (reader, [x], cell) => {
    const terms = reader.group(x, null, cell);
    return fraction(sum(terms), number(terms.length));
  },
  amax: (reader, [x, dims], cell) => apply("max", ...reader.group(x, dims, cell)),
};

/** The arithmetic of a cell of a named value; null where the page knows only the value. */
export function arithmetic(graph: Graph, values: Value[], name: string, cell: number): Expression | null {
  return new Reader(graph, values).node(graph.outputs[name], cell);
}
