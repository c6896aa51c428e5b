// A model's graph, ready to be computed again and again: what depends on the weights alone is computed once.

import { Argument, Edits, Nodes, Rule, Tensors, byOperation, compute, inputsOf, placesIn } from "../../graph";
import { Value } from "../../operations";
import { Tensor, room } from "../../tensors";

/** A graph whose constants are tensors by name. */
export interface ModelGraph extends Nodes {
  constants: { name: string; shape: number[] }[];
}

const row = (ids: readonly number[]): Tensor => ({ shape: [1, ids.length], data: Float32Array.from(ids) });
/** The inputs of a model's graph: a sentence, and what an encoder reads. */
export const sentence = (ids: readonly number[], given?: readonly number[]): Tensors => ({ tokens: row(ids), ...(given && { source: row(given) }) });

const MOST_PLANS = 32;

/** Operations whose rows depend on one row of one argument each and on weights: which argument it is. */
const BY_ROW: Record<string, number> = { mm: 0, addmm: 1, gelu: 0 };
/** How many results are kept of each such node, and how many numbers they may have together. */
const [LEAST_KEPT, MOST_KEPT, MOST_NUMBERS] = [2, 24, 2 ** 20];

interface Kept {
  rows: Tensor;
  made: Tensor;
}

/** How many of the first rows are equal. */
function same(one: Tensor, other: Tensor): number {
  const width = one.shape[one.shape.length - 1];
  if (other.shape[other.shape.length - 1] !== width) return 0;
  const [cells, others] = [one.data, other.data];
  let place = 0;
  for (const end = Math.min(cells.length, others.length); place < end && cells[place] === others[place]; ) place++;
  return Math.floor(place / width);
}

export class Program {
  private readonly known: Value[] = [];
  private readonly from: number[][];
  private readonly first: number;
  private readonly plans = new Map<string, Uint8Array>();
  private readonly kept = new Map<number, Kept[]>();

  constructor(readonly graph: ModelGraph, weights: Tensors) {
    this.first = graph.inputs.length + graph.constants.length;
    graph.constants.forEach(({ name }, place) => (this.known[graph.inputs.length + place] = weights[name]));
    this.from = graph.nodes.map(([, given]) => placesIn(given as Argument));
    this.fold();
  }

  /** The names that the graph has values for. */
  get names(): string[] {
    return Object.keys(this.graph.outputs);
  }

  private fold(): void {
    const named = new Set(Object.values(this.graph.outputs));
    const fixed = new Set<number>(this.graph.constants.map((_, place) => this.graph.inputs.length + place));
    this.from.forEach((places, node) => {
      const place = this.first + node;
      if (!named.has(place) && places.every((each) => fixed.has(each))) fixed.add(place);
    });
    compute(this.graph, this.known, {}, (place) => fixed.has(place));
  }

  /** The values of these names; what none of them needs is not computed. */
  run(inputs: Tensors, names: readonly string[], edits: Edits = {}): Tensors {
    const wanted = names.filter((name) => name in this.graph.outputs);
    const values = this.values(inputs, wanted, edits);
    return Object.fromEntries(wanted.map((name) => [name, this.valueOf(values, name)]));
  }

  /** Everything that these names need, to read values off and to go on from. */
  values(inputs: Tensors, names: readonly string[], edits: Edits = {}): Value[] {
    const values = this.known.slice();
    inputsOf(this.graph, inputs).forEach((input, place) => (values[place] = input));
    return this.completed(values, names, edits);
  }

  valueOf(values: readonly Value[], name: string): Tensor {
    return values[this.graph.outputs[name]] as Tensor;
  }

  /** What `values` are where one named value is another: what does not depend on it is not computed again. */
  changed(values: readonly Value[], at: string, to: Tensor, names: readonly string[]): Value[] {
    const moved = new Set([this.graph.outputs[at]]);
    this.from.forEach((places, node) => places.some((each) => moved.has(each)) && moved.add(this.first + node));
    const left = values.map((each, place) => (moved.has(place) ? undefined! : each));
    left[this.graph.outputs[at]] = to;
    return this.completed(left, names);
  }

  private completed(values: Value[], names: readonly string[], edits: Edits = {}): Value[] {
    const needed = this.needed(names);
    compute(this.graph, values, edits, (place) => needed[place] === 1, this.rule);
    return values;
  }

  /** A sentence that grows, or a part that is switched, leaves most rows as they were: equal rows have equal results. */
  private readonly rule: Rule = (operation, given, place) => {
    const which = BY_ROW[operation];
    const fixed = which !== undefined && this.from[place - this.first].every((each, at) => at === which || this.known[each] !== undefined);
    if (!fixed) return byOperation(operation, given, place);
    const rows = given[which] as Tensor;
    const kept = this.kept.get(place) ?? [];
    let [best, count] = [kept[0], 0];
    for (const each of kept) {
      const equal = same(rows, each.rows);
      if (equal > count) [best, count] = [each, equal];
    }
    const made = count ? continued(rows, best, count, (rest) => byOperation(operation, given.map((each, at) => (at === which ? rest : each)), place) as Tensor)
      : (byOperation(operation, given, place) as Tensor);
    const most = Math.min(MOST_KEPT, Math.max(LEAST_KEPT, Math.floor(MOST_NUMBERS / made.data.length)));
    this.kept.set(place, [{ rows, made }, ...kept.filter((each) => each.made !== made)].slice(0, most));
    return made;
  };

  /** For each place, whether a value of these names depends on it. */
  private needed(names: readonly string[]): Uint8Array {
    const key = names.join(" ");
    let needed = this.plans.get(key);
    if (needed) return needed;
    needed = new Uint8Array(this.first + this.graph.nodes.length);
    for (const name of names) needed[this.graph.outputs[name]] = 1;
    for (let node = this.graph.nodes.length - 1; node >= 0; node--)
      if (needed[this.first + node]) for (const each of this.from[node]) needed[each] = 1;
    if (this.plans.size >= MOST_PLANS) this.plans.clear();
    this.plans.set(key, needed);
    return needed;
  }
}

/** What `rule` makes of rows whose first `count` are those of `before`. */
function continued(rows: Tensor, before: Kept, count: number, rule: (rest: Tensor) => Tensor): Tensor {
  const [width, wide] = [rows, before.made].map(({ shape }) => shape[shape.length - 1]);
  const all = rows.data.length / width;
  if (count === all && before.rows.data.length === rows.data.length) return before.made;
  const data = room((rows.data.length / width) * wide, before.made);
  data.set(before.made.data.subarray(0, count * wide));
  if (count < all) data.set(rule({ shape: [all - count, width], data: rows.data.subarray(count * width) }).data, count * wide);
  return { shape: [...rows.shape.slice(0, -1), wide], data };
}
