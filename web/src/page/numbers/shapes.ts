// The shape of each value of a graph for a sentence of some length, without computing the values.

import type { Nodes } from "../../graph";
import { argument } from "../../graph";
import { MOVES } from "../../moves";
import { OPERATIONS, Value, isTensor } from "../../operations";
import { Tensor, axisOf, broadcast } from "../../tensors";

/** A value that is computed when its numbers are asked for, and never before. */
export class Lazy implements Tensor {
  private made: Tensor | undefined;

  constructor(readonly shape: readonly number[], private readonly make: () => Tensor) {}

  get data() {
    return (this.made ??= this.make()).data;
  }
}

type Shape = readonly number[];
type Given = any[];

const folded = ([x, dims, keep = false]: Given): Shape => {
  const axes = (dims as number[] | null)?.length ? (dims as number[]).map((dim) => axisOf(dim, x.shape.length)) : x.shape.map((_: number, axis: number) => axis);
  return keep ? x.shape.map((each: number, axis: number) => (axes.includes(axis) ? 1 : each)) : x.shape.filter((_: number, axis: number) => !axes.includes(axis));
};
const stretched = (given: Given): Shape => given.reduce<Shape>((all, each) => broadcast(all, isTensor(each) ? each.shape : []), []);
const own = ([x]: Given): Shape => x.shape;

const SHAPES: Record<string, (given: Given) => Shape> = {
  mm: ([x, y]) => [x.shape[0], y.shape[1]],
  addmm: ([, x, y]) => [x.shape[0], y.shape[1]],
  bmm: ([x, y]) => [x.shape[0], x.shape[1], y.shape[2]],
  lstm: own,
  cumsum: own,
  _softmax: own,
  _log_softmax: own,
  sum: () => [],
  mean: () => [],
  any: () => [],
  "sum.dim_IntList": folded,
  "mean.dim": folded,
  amax: folded,
  amin: folded,
  "any.dims": folded,
  "any.dim": ([x, dim, keep]) => folded([x, [dim], keep]),
  "prod.dim_int": ([x, dim, keep]) => folded([x, [dim], keep]),
  full: ([shape]) => shape,
  "empty.memory_format": ([shape]) => shape,
};
/** Operations that make lengths, or tensors of whole numbers as small as a sentence: they are computed. */
const COMPUTED = ["sym_size.int", "add", "sub", "mul", "floordiv", "mod", "arange.start_step", "scalar_tensor"];
const SEVERAL: Record<string, (given: Given) => Shape[]> = {
  native_layer_norm: ([x, shape]) => {
    const rest = x.shape.map((each: number, axis: number) => (axis < x.shape.length - shape.length ? each : 1));
    return [x.shape, rest, rest];
  },
  split_with_sizes: ([x, sizes, dim = 0]) =>
    sizes.map((size: number) => x.shape.map((each: number, axis: number) => (axis === axisOf(dim, x.shape.length) ? size : each))),
};
const KNOWN_OTHERWISE = ["sort", "sort.stable", "topk", "max.dim", "min.dim", "argmax", "argmin", "var.correction"];

/**
 * All values of a graph in the order of their places, none of them computed.
 *
 * `given`: the inputs and the constants in their order; `named`: what stands for a value that has a name, if anything does.
 */
export function lazyValues(graph: Nodes, given: readonly Tensor[], named: (name: string, shape: () => Shape) => Tensor | undefined): Value[] {
  const values: Value[] = [...given];
  const names = new Map(Object.entries(graph.outputs).map(([name, place]) => [place, name]));
  for (const [operation, written] of graph.nodes) {
    const place = values.length;
    const made = () => unknown(operation, written.map((each) => argument(each, values)));
    const name = names.get(place);
    const known = name === undefined ? undefined : named(name, () => (made() as Tensor).shape);
    // A tensor with an identity of its own; what is only partly here says itself which numbers it lacks.
    values.push(!known ? made() : "at" in known ? known : new Lazy(known.shape, () => known));
  }
  return values;
}

function unknown(operation: string, given: Given): Value {
  const compute = () => OPERATIONS[operation](...given);
  if (COMPUTED.includes(operation)) return compute();
  if (operation === "getitem") {
    const [of, which] = given as [Tensor[], number];
    return new Lazy(of[which].shape, () => of[which]);
  }
  if (operation in SEVERAL) {
    let all: Tensor[] | undefined;
    return SEVERAL[operation](given).map((shape, which) => new Lazy(shape, () => (all ??= compute() as Tensor[])[which]));
  }
  if (KNOWN_OTHERWISE.includes(operation)) return compute();
  const shape = operation in SHAPES ? SHAPES[operation](given) : operation in MOVES ? MOVES[operation](...given).shape : stretched(given);
  return new Lazy(shape, () => compute() as Tensor);
}
