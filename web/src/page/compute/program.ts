// A model's graph, ready to be computed again and again: what depends on the weights alone is computed once.

import { Argument, Edits, Nodes, Tensors, compute, inputsOf, placesIn } from "../../graph";
import { Value } from "../../operations";
import { Tensor } from "../../tensors";

/** A graph whose constants are tensors by name. */
export interface ModelGraph extends Nodes {
  constants: { name: string; shape: number[] }[];
}

const MOST_PLANS = 32;

export class Program {
  private readonly known: Value[] = [];
  private readonly from: number[][];
  private readonly first: number;
  private readonly plans = new Map<string, Uint8Array>();

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
    const values = this.known.slice();
    inputsOf(this.graph, inputs).forEach((input, place) => (values[place] = input));
    const wanted = names.filter((name) => name in this.graph.outputs);
    const needed = this.needed(wanted);
    compute(this.graph, values, edits, (place) => needed[place] === 1);
    return Object.fromEntries(wanted.map((name) => [name, values[this.graph.outputs[name]] as Tensor]));
  }

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
