// A graph that Vitral exported (`vitral.core.graphs`), and its interpreter.

import { OPERATIONS, Value, isTensor } from "./operations";
import { Tensor, tensor } from "./tensors";

export type Argument = number | boolean | null | string | Argument[] | { at: number } | { number: string };

export interface Nodes {
  inputs: string[];
  constants: readonly unknown[];
  nodes: [operation: string, given: Argument[]][];
  outputs: Record<string, number>;
}

/** A graph that has its constants in it; a model's has them by name, see `page/compute/program.ts`. */
export interface Graph extends Nodes {
  shapes: number[][];
  constants: { shape: number[]; data: (number | string)[] }[];
}

export type Tensors = Record<string, Tensor>;
/** What becomes of a named value before the rest is computed from it. */
export type Edits = Record<string, ((value: Tensor) => Tensor) | undefined>;

const SPELLED: Record<string, number> = { inf: Infinity, "-inf": -Infinity, nan: NaN };

/** An argument with the values of this run in it. */
export function argument(given: Argument, values: Value[]): unknown {
  if (given === null || typeof given !== "object") return given;
  if (Array.isArray(given)) return given.map((each) => argument(each, values));
  return "at" in given ? values[given.at] : SPELLED[given.number];
}

/** The places that an argument refers to. */
export function placesIn(given: Argument): number[] {
  if (given === null || typeof given !== "object") return [];
  if (Array.isArray(given)) return given.flatMap(placesIn);
  return "at" in given ? [given.at] : [];
}

/** How a node is computed. */
export type Rule = (operation: string, given: unknown[], place: number) => Value;
export const byOperation: Rule = (operation, given) => OPERATIONS[operation](...given);

/** Computes into `values` those nodes that have no value yet: all of them, or the needed ones. */
export function compute(graph: Nodes, values: Value[], edits: Edits = {}, isNeeded?: (place: number) => boolean, rule = byOperation): void {
  const named = new Map(Object.entries(graph.outputs).map(([name, place]) => [place, name]));
  let place = graph.inputs.length + graph.constants.length - 1;
  for (const [operation, given] of graph.nodes) {
    if (values[++place] !== undefined || (isNeeded && !isNeeded(place))) continue;
    if (!(operation in OPERATIONS)) throw new Error(`the graph has an unknown operation: ${operation}`);
    const made = rule(operation, given.map((each) => argument(each, values)), place);
    const edit = edits[named.get(place) ?? ""];
    values[place] = edit && isTensor(made) ? edit(made) : made;
  }
}

/** The inputs of a graph in their order. */
export const inputsOf = (graph: Nodes, inputs: Tensors): Value[] =>
  graph.inputs.map((name) => {
    if (!inputs[name]) throw new Error(`the graph needs ${name}`);
    return inputs[name];
  });

/** All values of a graph: inputs, constants, nodes. */
export function evaluate(graph: Graph, inputs: Tensors, edits: Edits = {}): Value[] {
  const values = inputsOf(graph, inputs);
  for (const { shape, data } of graph.constants)
    values.push(tensor(shape, data.map((each) => (typeof each === "string" ? SPELLED[each] : +each))));
  compute(graph, values, edits);
  return values;
}

/** The named values of a graph. */
export function run(graph: Graph, inputs: Tensors, edits: Edits = {}): Tensors {
  const values = evaluate(graph, inputs, edits);
  return Object.fromEntries(Object.entries(graph.outputs).map(([name, place]) => [name, values[place] as Tensor]));
}
