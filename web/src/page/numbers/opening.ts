// Any cell opened: the arithmetic that made it, read from the model's graph; every number in it can be opened again.

import { Expression, Partly, Reader, inner, worth } from "../../arithmetic";
import { indexOf, placeOf, size, tensor } from "../../tensors";
import type { ModelGraph } from "../compute/program";
import type { Edit, Tensor, Values } from "../source";
import { lazyValues } from "./shapes";

/** What a source gives so that cells can be opened: the graph, and its constants by name. */
export interface Anatomy {
  graph: ModelGraph;
  constants: Readonly<Record<string, Tensor>>;
  /** Fetches numbers of constants that are not here yet: places by name. */
  bring?(missing: Readonly<Record<string, number[]>>): Promise<void>;
}

/** A cell by its name; `path` leads to a part of its arithmetic, from expression to expression. */
export interface Spot {
  name: string;
  index: readonly number[];
  path: readonly number[];
}

export interface Opened {
  spot: Spot;
  value: number;
  /** A value of the model, a parameter (which nothing makes), or an input. */
  is: "activation" | "parameter" | "input";
  /** Null where only the value is known. */
  expression: Expression | null;
  /** Whether an edit has set this value, so that the arithmetic gives the number before it. */
  edited: boolean;
  /** Numbers that must be fetched before this is whole. */
  missing: Readonly<Record<string, number[]>>;
}

export type Cell = Extract<Expression, { kind: "cell" }>;
export type Part = Extract<Expression, { kind: "part" }>;

/** A constant of which some numbers are here. */
export class Remote implements Partly {
  private readonly here = new Map<number, number>();
  readonly missing = new Set<number>();

  constructor(readonly shape: readonly number[]) {}

  get data(): Float64Array {
    throw new Error("only some of these numbers are here");
  }

  at(cell: number): number {
    const found = this.here.get(cell);
    if (found === undefined) this.missing.add(cell);
    return found ?? NaN;
  }

  learn(cell: number, value: number): void {
    this.here.set(cell, value);
    this.missing.delete(cell);
  }
}

/** The numbers of one sentence, ready to be opened. */
export class Sheet {
  private readonly reader: Reader;
  private readonly names: Set<string>;

  constructor(private readonly anatomy: Anatomy, ids: readonly number[], private readonly values: Values, private readonly edits: readonly Edit[]) {
    const { graph, constants } = anatomy;
    const tokens = tensor([1, ids.length], Float64Array.from(ids));
    const given = [...graph.inputs.map(() => tokens), ...graph.constants.map(({ name }) => ({ ...whole(constants[name]) }))];
    this.names = new Set(Object.keys(graph.outputs));
    this.reader = new Reader(graph, lazyValues(graph, given, values), true, new Set(edits.map((each) => each.at)));
  }

  /** Whether there is such a cell. */
  has({ name, index }: Pick<Spot, "name" | "index">): boolean {
    const shape = this.shape(name);
    return shape !== null && shape.length === index.length && index.every((each, axis) => Number.isInteger(each) && each >= 0 && each < shape[axis]);
  }

  private shape(name: string): readonly number[] | null {
    return (this.names.has(name) ? this.values[name] : this.anatomy.constants[name])?.shape ?? null;
  }

  /** Opens a cell, or a part of its arithmetic; null if there is none. */
  open(spot: Spot): Opened | null {
    if (!this.has(spot)) return null;
    const { name, index, path } = spot;
    if (!this.names.has(name)) {
      const constant = this.anatomy.constants[name];
      const place = placeOf(constant.shape, index);
      const value = constant instanceof Remote ? constant.at(place) : constant.data[place];
      return { spot, value, is: "parameter", expression: null, edited: false, missing: this.missing() };
    }
    const place = placeOf(this.values[name].shape, index);
    let found = this.reader.read(name, place);
    let value = this.values[name].data[place];
    for (const step of path) {
      if (found?.kind === "part") found = found.inside;
      const next = found && inner(found)[step];
      if (!next) return null;
      [found, value] = [next, worth(next)];
    }
    if (found?.kind === "part") found = found.inside;
    const edited = !path.length && this.edits.some((each) => each.at === name) && !isNear(found ? worth(found) : value, value);
    return { spot, value, is: "activation", expression: found, edited, missing: this.missing() };
  }

  private missing(): Record<string, number[]> {
    const all = Object.entries(this.anatomy.constants).flatMap(([name, each]): [string, number[]][] =>
      each instanceof Remote && each.missing.size ? [[name, [...each.missing]]] : [],
    );
    return Object.fromEntries(all);
  }
}

/** A constant with an identity of its own, so that the reader knows its place. */
const whole = (constant: Tensor): Tensor =>
  constant instanceof Remote ? Object.assign(Object.create(constant) as Remote, {}) : { shape: constant.shape, data: constant.data };

const isNear = (one: number, other: number): boolean => Object.is(one, other) || Math.abs(one - other) <= 1e-4 * Math.max(1, Math.abs(other));

/** A number that can be opened, inside of an expression, and the steps that lead to it. */
export interface Way {
  expression: Expression;
  path: number[];
}

/** The numbers of an expression that can be opened: its cells and parts, as people read them. */
export function openable(expression: Expression, path: number[] = []): Way[] {
  if (expression.kind === "cell" || expression.kind === "part") return [{ expression, path }];
  return inner(expression).flatMap((each, step) => openable(each, [...path, step]));
}

/** Where a number leads: a cell to itself, a part to a deeper place of what is open. */
export const leads = (from: Spot, way: Way): Spot =>
  way.expression.kind === "cell"
    ? { name: way.expression.name, index: way.expression.index, path: [] }
    : { ...from, path: [...from.path, ...way.path] };

export { indexOf, size };
