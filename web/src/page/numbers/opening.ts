// Any cell opened: the arithmetic that made it, read from the model's graph; every number in it can be opened again.

import { Expression, Partly, Reader, inner, valueAt, worth } from "../../arithmetic";
import { indexOf, placeOf, size } from "../../tensors";
import { ModelGraph, sentence } from "../compute/program";
import { Edit, LENS, Tensor, Values, atPosition, ofHead } from "../source";
import { lazyValues } from "./shapes";

/** What a source gives so that cells can be opened: the graph, and its constants by name. */
export interface Anatomy {
  graph: ModelGraph;
  /** A vector of the stream → `norm`, `logits`: what opens `lens.NAME` and `norm.NAME`. */
  lens?: ModelGraph;
  constants: Readonly<Record<string, Tensor>>;
  /** What an encoder reads. */
  given?: readonly number[];
  /** Fetches numbers of constants that are not here yet: their places by name, null for all of them. */
  bring?(missing: Missing): Promise<void>;
}

export type Missing = Readonly<Record<string, number[] | null>>;

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
}

/** What has to be fetched before a cell can be opened: numbers of constants, and values of the sentence. */
export interface Needed {
  constants: Missing;
  values: string[];
}

export type Cell = Extract<Expression, { kind: "cell" }>;
export type Part = Extract<Expression, { kind: "part" }>;

/** What the final norm makes of a stream, as the lens reads it. */
export const NORM = "norm.";
/** The stream that a name of the lens is read off. */
export const streamOf = (name: string): string | undefined => /^(?:lens|norm)\.(.*)/.exec(name)?.[1];

/** Numbers that are not here are asked for whole. */
class NotHere extends Error {}

/** A tensor of which some numbers are here. */
export class Remote implements Partly {
  private readonly here = new Map<number, number>();
  private readonly missing = new Set<number>();
  /** All numbers, and whether an operation needs them all. */
  private readonly all: { numbers?: Tensor["data"]; isWanted?: boolean } = {};

  constructor(readonly shape: readonly number[]) {}

  get data(): Tensor["data"] {
    if (this.all.numbers) return this.all.numbers;
    this.all.isWanted = true;
    throw new NotHere();
  }

  at(cell: number): number {
    const found = this.all.numbers ? this.all.numbers[cell] : this.here.get(cell);
    if (found === undefined) this.missing.add(cell);
    return found ?? NaN;
  }

  /** Places that were asked for and are not here, null for all of them; undefined if nothing lacks. */
  get lacks(): number[] | null | undefined {
    if (this.all.isWanted) return null;
    return this.missing.size ? [...this.missing] : undefined;
  }

  /** Takes in the numbers at these places, or all. */
  learn(cells: readonly number[] | null, values: Tensor["data"]): void {
    if (cells === null) [this.all.numbers, this.all.isWanted] = [values, false];
    else cells.forEach((cell, place) => this.here.set(cell, values[place]));
    for (const cell of cells ?? this.missing) this.missing.delete(cell);
  }

  /** The same numbers with an identity of its own, so that the reader knows its place. */
  twin(): Remote {
    return Object.create(this) as Remote;
  }
}

/** The named values of one graph. */
interface Read {
  reader: Reader;
  names: Readonly<Record<string, Tensor>>;
}

/** The numbers of one sentence, ready to be opened. */
export class Sheet {
  private readonly model: Read;
  private readonly lenses: Record<string, Read> = {};
  /** Values of the sentence that nobody has asked for yet; those of one position by their names. */
  private readonly absent: Record<string, Remote> = {};
  private readonly lacking = new Set<string>();

  constructor(private readonly anatomy: Anatomy, ids: readonly number[], private readonly values: Values, private readonly edits: readonly Edit[]) {
    const inputs = sentence(ids, anatomy.given);
    const byHead = new Set(Object.keys(values).map((name) => name.replace(/#.*/, "")));
    this.model = this.computed(anatomy.graph, (name) => inputs[name], (name, shape) =>
      values[name] ?? (byHead.has(name) ? this.pieces(name, shape(), ofHead) : (this.absent[name] = new Remote(shape()))));
  }

  private computed(graph: ModelGraph, input: (name: string) => Tensor, named: Parameters<typeof lazyValues>[2]): Read {
    const given = [...graph.inputs.map(input), ...graph.constants.map(({ name }) => twin(this.anatomy.constants[name]))];
    const all = lazyValues(graph, given, named);
    const names = Object.fromEntries(Object.entries(graph.outputs).map(([name, place]) => [name, all[place] as Tensor]));
    return { names, reader: new Reader(graph, all, true, new Set(this.edits.map((each) => each.at))) };
  }

  /** What a name is read from: the model, or the lens over a stream. */
  private of(name: string): Read {
    const [stream, { lens, constants }, { names }] = [streamOf(name), this.anatomy, this.model];
    if (!lens || !stream || name in constants || String(names[stream]?.shape) !== String(names.embed.shape)) return this.model;
    const outputs = Object.fromEntries(Object.entries(lens.outputs).map(([own, place]) => [(own === "norm" ? NORM : LENS) + stream, place]));
    const named = (own: string, shape: () => readonly number[]) => (own.startsWith(NORM) ? undefined : (this.values[own] ?? this.pieces(own, shape(), atPosition)));
    return (this.lenses[stream] ??= this.computed({ ...lens, inputs: [stream], outputs }, () => names[stream], named));
  }

  /** A value that is here piece by piece: by positions, or by heads. */
  private pieces(name: string, shape: readonly number[], key: typeof atPosition): Partly {
    const { values, lacking } = this;
    const each = size(shape.slice(2));
    const lacks = (what: string) => (values[what] ? values[what].data : void lacking.add(what));
    return {
      shape,
      at: (cell) => lacks(key(name, Math.floor(cell / each)))?.[cell % each] ?? NaN,
      get data(): Tensor["data"] {
        lacks(name);
        throw new NotHere();
      },
    };
  }

  /** Whether there is such a cell. */
  has({ name, index }: Pick<Spot, "name" | "index">): boolean {
    const shape = (this.of(name).names[name] ?? this.anatomy.constants[name])?.shape;
    return shape?.length === index.length && index.every((each, axis) => Number.isInteger(each) && each >= 0 && each < shape[axis]);
  }

  /** Opens a cell, or a part of its arithmetic; null if there is none. With numbers missing it is not whole: see `needed`. */
  open(spot: Spot): Opened | null {
    if (!this.has(spot)) return null;
    try {
      return this.read(spot);
    } catch (error) {
      if (error instanceof NotHere) return null;
      throw error;
    }
  }

  /** What the last opening lacked; null if nothing. */
  needed(): Needed | null {
    const values = [...Object.keys(this.absent).filter((name) => this.absent[name].lacks !== undefined), ...this.lacking];
    const constants: Record<string, number[] | null> = {};
    for (const [name, each] of Object.entries(this.anatomy.constants))
      if (each instanceof Remote && each.lacks !== undefined) constants[name] = each.lacks;
    return values.length || Object.keys(constants).length ? { values, constants } : null;
  }

  private read(spot: Spot): Opened | null {
    const { name, index, path } = spot;
    const { names, reader } = this.of(name);
    if (!(name in names)) {
      const constant = this.anatomy.constants[name];
      return { spot, value: valueAt(constant, placeOf(constant.shape, index)), is: "parameter", expression: null, edited: false };
    }
    const place = placeOf(names[name].shape, index);
    let found = reader.read(name, place);
    let value = valueAt(names[name], place);
    for (const step of path) {
      if (found?.kind === "part") found = found.inside;
      const next = found && inner(found)[step];
      if (!next) return null;
      [found, value] = [next, worth(next)];
    }
    if (found?.kind === "part") found = found.inside;
    const edited = !path.length && this.edits.some((each) => each.at === name) && !isNear(found ? worth(found) : value, value);
    return { spot, value, is: "activation", expression: found, edited };
  }
}

/** A constant with an identity of its own. */
const twin = (constant: Tensor): Tensor => (constant instanceof Remote ? constant.twin() : { shape: constant.shape, data: constant.data });

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
