// The arithmetic of one cell, read from the graph: from a named value back to the cells of other named values.

import { Nodes, argument } from "./graph";
import { MOVES, Move } from "./moves";
import { OPERATIONS, Value, isTensor } from "./operations";
import { Tensor, axisOf, broadcast, groups, indexOf, placeOf, strides, stretched } from "./tensors";

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
  | { kind: "apply"; name: string; given: Expression[]; value?: number }
  /** A number between two named values, with its own arithmetic: the mean of a norm, a projection before a rotation. */
  | { kind: "part"; name: "mean" | "variance" | "sum" | "largest"; value: number; inside: Expression };

/** Larger exponents are written less the largest of their row: e^20 is already 485,165,195. */
const MOST_EXPONENT = 20;
const MOST_CELLS = 4096;
const MOST_CELLS_WHOLE = 1 << 20;

const number = (value: number): Expression & { kind: "number" } => ({ kind: "number", value });
const sum = (terms: Expression[]): Expression => (terms.length === 1 ? terms[0] : { kind: "sum", terms });
const product = (...factors: Expression[]): Expression => ({ kind: "product", factors });
const fraction = (above: Expression, below: Expression): Expression => ({ kind: "fraction", above, below });
const apply = (name: string, ...given: Expression[]): Expression => ({ kind: "apply", name, given });

export function worth(expression: Expression): number {
  switch (expression.kind) {
    case "cell":
    case "number":
    case "part":
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
      return expression.value ?? FUNCTIONS[expression.name](...expression.given.map(worth));
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

/** A tensor that is not all here: one of its numbers. */
export interface Partly extends Tensor {
  at(cell: number): number;
}

export const valueAt = (tensor: Tensor, cell: number): number => ("at" in tensor ? (tensor as Partly).at(cell) : tensor.data[cell]);

/** Folds: their arithmetic is long, so inside of another it is one number that can be opened. */
const FOLDS: Record<string, "mean" | "sum" | "largest"> = {
  ...{ mm: "sum", addmm: "sum", bmm: "sum", sum: "sum", "sum.dim_IntList": "sum" },
  ...{ mean: "mean", "mean.dim": "mean", amax: "largest" },
};
const COPIES = ["clone", "alias"];

export class Reader {
  private readonly named: Map<number, string>;
  private readonly owners = new Map<Tensor, number>();
  private readonly moves = new Map<number, Move>();
  private known = new Map<string, Expression>();
  private first: number;
  private cells = 0;

  /**
   * `whole`: constants are cells by their names, folds inside of others are parts, and everything down to constants is
   * read; so that every number can be opened. `edited`: names whose values are not what the graph computes.
   */
  constructor(
    private readonly graph: Nodes,
    private readonly values: Value[],
    readonly whole = false,
    edited: ReadonlySet<string> = new Set(),
  ) {
    this.first = graph.inputs.length + graph.constants.length;
    this.named = new Map(graph.inputs.map((name, place) => [place, name]));
    for (const [name, place] of Object.entries(graph.outputs)) this.named.set(place, name);
    values.forEach((value, place) => isTensor(value) && this.owners.set(value, place));
    if (!whole) return;
    graph.constants.forEach((each, place) => {
      const { name } = each as { name?: string };
      if (name !== undefined) this.named.set(graph.inputs.length + place, name);
    });
    this.nameTwins(edited);
  }

  /** A node whose copy has a name, and a node that computes the same again, have that name too. */
  private nameTwins(edited: ReadonlySet<string>): void {
    const twins = new Map<string, number>();
    const same = this.values.map((_, place) => place);
    const told = (given: unknown): unknown => {
      if (Array.isArray(given)) return given.map(told);
      return given && typeof given === "object" && "at" in given ? { at: same[(given as { at: number }).at] } : given;
    };
    this.graph.nodes.forEach(([operation, given], node) => {
      const key = JSON.stringify([operation, told(given)]);
      const place = this.first + node;
      if (!this.named.has(place)) same[place] = twins.get(key) ?? place;
      if (!twins.has(key)) twins.set(key, place);
    });
    for (const [name, place] of Object.entries(this.graph.outputs)) {
      if (edited.has(name)) continue;
      const source = this.copied(place);
      if (source !== place && source >= this.first && !this.named.has(source)) this.named.set(source, name);
    }
    same.forEach((twin, place) => {
      const name = this.named.get(twin);
      if (name !== undefined && !this.named.has(place) && place >= this.first) this.named.set(place, name);
    });
  }

  /** The node that a named node is a copy of, if that has no name of its own; else the node itself. */
  private copied(place: number): number {
    const outputs = new Set(Object.values(this.graph.outputs));
    let source = place;
    while (source >= this.first && COPIES.includes(this.graph.nodes[source - this.first][0])) {
      const [before] = this.graph.nodes[source - this.first][1] as [{ at: number }];
      if (before.at < this.first || outputs.has(before.at)) break;
      source = before.at;
    }
    return source;
  }

  /** The arithmetic of a cell of a named value; `null` where only its value is known. */
  read(name: string, cell: number): Expression | null {
    this.cells = 0;
    this.known = new Map();
    const place = this.graph.outputs[name];
    const made = this.node(this.whole ? this.copied(place) : place, cell);
    return made?.kind === "part" ? made.inside : made;
  }

  /** The arithmetic of a cell of a node; `null` where only its value is known. */
  node(place: number, cell: number): Expression | null {
    if (++this.cells > (this.whole ? MOST_CELLS_WHOLE : MOST_CELLS)) return null;
    const [operation, given] = this.graph.nodes[place - this.first];
    if (operation === "getitem") return this.part(place, cell);
    const values = given.map((each) => argument(each, this.values));
    if (operation === "where.self") {
      const [condition, yes, no] = values as (Tensor | number)[];
      const shape = [condition, yes, no].reduce<readonly number[]>((all, each) => broadcast(all, isTensor(each) ? each.shape : []), []);
      return this.stretched(worth(this.stretched(condition, shape, cell)) ? yes : no, shape, cell);
    }
    if (operation in MOVES) {
      let move = this.moves.get(place);
      if (!move) this.moves.set(place, (move = MOVES[operation](...values)));
      return this.moved(move.inputs, move.from(cell));
    }
    const rule = RULES[operation] ?? (this.whole ? (CONDITIONS[operation] ?? cellwise(operation, values)) : undefined);
    return rule ? rule(this, values, cell, (this.values[place] as Tensor).shape) : null;
  }

  private moved(inputs: Tensor[], [input, place]: [number, number]): Expression {
    return this.cell(inputs[input], place);
  }

  /** A cell of a tensor: the cell of a named value, or the arithmetic of the node that made it. */
  cell(tensor: Tensor | number, cell: number): Expression {
    if (!isTensor(tensor)) return number(+tensor);
    const owner = this.owners.get(tensor);
    if (owner === undefined) return number(valueAt(tensor, cell));
    const name = this.named.get(owner);
    if (name !== undefined) {
      const known = this.graph.outputs[name];
      const value = valueAt(known === undefined ? tensor : (this.values[known] as Tensor), cell);
      return { kind: "cell", name, index: indexOf(tensor.shape, cell), value };
    }
    if (owner < this.first) return number(valueAt(tensor, cell));
    if (!this.whole) return this.node(owner, cell) ?? number(tensor.data[cell]);
    const key = `${owner}:${cell}`;
    const known = this.known.get(key);
    if (known) return known;
    let made = this.node(owner, cell) ?? number(tensor.data[cell]);
    const fold = FOLDS[this.graph.nodes[owner - this.first][0]];
    if (!hasCells(made)) made = number(worth(made));
    else if (fold) made = { kind: "part", name: fold, value: worth(made), inside: made };
    this.known.set(key, made);
    return made;
  }

  /** A cell of one of the results of an operation that has several. */
  private part(owner: number, cell: number): Expression | null {
    const [of, which] = this.graph.nodes[owner - this.first][1] as [{ at: number }, number];
    const [operation, given] = this.graph.nodes[of.at - this.first];
    const values = given.map((each) => argument(each, this.values));
    if (operation === "native_layer_norm" && which === 0) return layerNorm(this, values, cell);
    if (operation === "split_with_sizes") {
      let move = this.moves.get(owner);
      if (!move) {
        const [input, sizes, dim] = values as [Tensor, number[], number?];
        const start = sizes.slice(0, which).reduce((all, each) => all + each, 0);
        this.moves.set(owner, (move = MOVES["slice.Tensor"](input, dim ?? 0, start, start + sizes[which])));
      }
      return this.moved(move.inputs, move.from(cell));
    }
    return null;
  }

  /** The cell of an input that is stretched to `shape`. */
  stretched(tensor: Tensor | number, shape: readonly number[], cell: number): Expression {
    if (!isTensor(tensor)) return number(+tensor);
    const steps = stretched(tensor.shape, shape);
    return this.cell(tensor, indexOf(shape, cell).reduce((place, each, axis) => place + each * steps[axis], 0));
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
    const [, starts, inside] = groups(tensor.shape, dims);
    return Array.from(inside, (place) => this.cell(tensor, starts[cell] + place));
  }
}

/** Whether an expression has cells in it, not only numbers. */
export function hasCells(expression: Expression): boolean {
  return expression.kind === "cell" || (expression.kind === "part" ? hasCells(expression.inside) : inner(expression).some(hasCells));
}

/** The expressions that an expression is made of. */
export function inner(expression: Expression): Expression[] {
  switch (expression.kind) {
    case "sum":
      return expression.terms;
    case "product":
      return expression.factors;
    case "difference":
      return [expression.left, expression.right];
    case "fraction":
      return [expression.above, expression.below];
    case "root":
      return [expression.inside];
    case "power":
      return [expression.base, expression.exponent];
    case "exp":
      return [expression.exponent];
    case "apply":
      return expression.given;
    default:
      return [];
  }
}

/** An operation that is done cell by cell, of which no more is known than its name. */
function cellwise(operation: string, values: unknown[]): Rule | undefined {
  if (!CELLWISE.has(operation) || !values.some(isTensor)) return undefined;
  return (reader, given, cell, shape) => {
    const cells = given.map((each) => (isTensor(each) ? reader.stretched(each, shape, cell) : each));
    const plain = cells.map((each, place) => (isTensor(given[place]) ? { shape: [], data: Float64Array.of(worth(each)) } : each));
    const value = (OPERATIONS[operation](...plain) as Tensor).data[0];
    const name = operation === "gelu" && given[1] === "tanh" ? "gelu_tanh" : operation.replace(/\..*$/, "");
    return apply1(name, cells.filter((_, place) => isTensor(given[place])), value);
  };
}

const apply1 = (name: string, given: Expression[], value: number): Expression => ({ kind: "apply", name, given, value });

const CELLWISE = new Set([
  ...["abs", "acos", "asin", "atan", "atan2", "bitwise_and.Tensor", "bitwise_not", "bitwise_or.Tensor", "ceil", "clamp", "erf"],
  ...["expm1", "floor", "gelu", "isinf", "isnan", "leaky_relu", "log10", "log1p", "log2", "logical_and", "logical_not"],
  ...["logical_or", "logical_xor", "pow.Scalar", "pow.Tensor_Tensor", "remainder.Scalar", "remainder.Tensor", "round", "sign"],
  ...["tan", "trunc", "_to_copy", "div.Tensor_mode"],
  ...["eq", "ge", "gt", "le", "lt", "ne"].flatMap((each) => [`${each}.Scalar`, `${each}.Tensor`]),
]);

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
  const start = cell - (cell % width);
  const row = Array.from({ length: width }, (_, place) => reader.cell(input, start + place));
  const [mean, variance] = spread(row);
  const above: Expression = { kind: "difference", left: reader.cell(input, cell), right: reader.whole ? mean : number(mean.value) };
  const inside = reader.whole ? sum([variance, number(epsilon)]) : number(variance.value + epsilon);
  const quotient = fraction(above, { kind: "root", inside });
  const [scale, added] = [gain, shift].map((each) => each && reader.cell(each, cell % width));
  const scaled = scale && worth(scale) !== 1 ? product(scale, quotient) : quotient;
  return added && worth(added) !== 0 ? plus(scaled, added) : scaled;
}

type PartOf = Extract<Expression, { kind: "part" }>;

/** Mean and variance of numbers. */
function spread(row: Expression[]): [PartOf, PartOf] {
  const count = number(row.length);
  const middle = row.reduce((all, each) => all + worth(each), 0) / row.length;
  const mean: PartOf = { kind: "part", name: "mean", value: middle, inside: fraction(sum(row), count) };
  const squares = row.map((each) => power({ kind: "difference", left: each, right: mean }, number(2)));
  const value = row.reduce((all, each) => all + (worth(each) - middle) ** 2, 0) / row.length;
  return [mean, { kind: "part", name: "variance", value, inside: fraction(sum(squares), count) }];
}

const filled: Rule = (_, [, value]) => number(Number(value));

/** Conditions are known by their cells; no formula shows them, nor what is the same whatever its input is. */
const CONDITIONS: Record<string, Rule> = Object.fromEntries([
  ...["full_like", "fill.Scalar"].map((name): [string, Rule] => [name, filled]),
  ...["any", "any.dim", "any.dims"].map((name): [string, Rule] => [
    name,
    (reader: Reader, given: unknown[], cell: number) => {
      const [x, dims] = given as [Tensor, number | number[] | undefined];
      const axes = dims === undefined ? null : Array.isArray(dims) ? dims : [dims];
      return number(+reader.group(x, axes, cell).some((each) => worth(each) !== 0));
    },
  ]),
]);

const average: Rule = (reader, [x, dims = null], cell) => {
  const terms = reader.group(x, dims, cell);
  return fraction(sum(terms), number(terms.length));
};

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
  "mean.dim": average,
  mean: average,
  amax: (reader, [x, dims], cell) => apply("max", ...reader.group(x, dims, cell)),
};

/** The arithmetic of a cell of a named value; null where the page knows only the value. */
export function arithmetic(graph: Nodes, values: Value[], name: string, cell: number): Expression | null {
  return new Reader(graph, values).read(name, cell);
}
