// The source of a page that carries its model: the run's own graph, computed here, after comparing it with PyTorch.

import { Program, ModelGraph, sentence } from "./compute/program";
import { Background } from "./compute/background";
import { StepGraph, Steps } from "./compute/cached";
import { swept } from "./compute/swept";
import { Drawn, generated } from "./decoding/generation";
import { bytesOf, sha256 } from "./bytes";
import { Others, editing } from "./edits";
import { EMPTY } from "./marks/colour";
import type { Anatomy } from "./numbers/opening";
import { readOff, surprise } from "./compute/readings";
import { frameOf } from "./film";
import { About, Draws, Edit, Encoded, LENS, RATED, READ, Relation, Source, Swept, Tell, Values, atPosition, placed } from "./source";
import { Tensor, tensor } from "../tensors";
import { Tokens, opened, tokenizerOf, written } from "./tokens";
import { t } from "./words";

/** What a page must have, by the ids of its elements; `vitral.page.document` writes them. */
export const PARTS = ["about", "words", "tour", "graph", "weights", "checks", "truth"] as const;
/** What a page has of a run with a film. */
const FILM = "film";
/** Ends the ids of the parts of the model beside, where the page has one. */
const BESIDE = "-2";
/** The parts that not every page has. */
export const MORE = [FILM, ...[...PARTS.filter((part) => !["words", "tour"].includes(part)), FILM].map((part) => part + BESIDE), "relation"];
export type Part = (typeof PARTS)[number];
export type Parts = Record<Part | "seal", string> & Record<string, string>;

/** The weights at other steps. */
interface Film {
  /** The constants that are trained. */
  constants: string[];
  /** Their numbers as float16, one after another, and the logits after the first sentence of the checks. */
  frames: { step: number; weights: string; logits: number[] }[];
}

interface Stored {
  name: string;
  shape: number[];
  kind: "float32" | "int32" | "bool";
  start: number;
  sha256: string;
}

interface Graphs {
  model: ModelGraph;
  lens: ModelGraph;
  /** Null where the model keeps nothing of earlier tokens. */
  step: StepGraph | null;
  /** Of a mixed model: the one that fills gaps, whose positions see each other. */
  both?: ModelGraph | null;
  constants: Stored[];
}

interface Check {
  text: string;
  ids: number[];
  source?: number[];
  /** So many positions at the end have been kept; 0: all of them. */
  last: number;
  /** Whether a mixed model has read it as a sentence with gaps. */
  gaps?: boolean;
  values: { name: string; shape: number[]; start: number }[];
}

/** Why a page refuses to draw. */
export type Refusal =
  | { kind: "missing"; part: string }
  | { kind: "damaged"; part: string; tensor?: string }
  | { kind: "unable"; reason: string }
  | { kind: "differs"; sentence: string; name: string; found: number; expected: number };

export class Refused extends Error {
  constructor(readonly reason: Refusal) {
    super(reason.kind);
  }
}

/** The greatest difference from PyTorch that float32 explains, relative to the largest number of the value. */
const TOLERANCE = 1e-4;
/** Milliseconds of a sweep between which the page can answer. */
const PIECE = 12;

/** Compares every part with the seal; a damaged tensor is named. */
async function unseal(parts: Parts): Promise<void> {
  const encoder = new TextEncoder();
  const seal = parsed<Record<string, string>>(parts, "seal");
  for (const part of new Set([...PARTS, ...Object.keys(seal)])) {
    if (!parts[part]) throw new Refused({ kind: "missing", part });
    const found = await sha256(encoder.encode(parts[part]!));
    if (found === seal[part]) continue;
    throw new Refused({ kind: "damaged", part, tensor: part.startsWith("weights") ? await damaged(parts, part.slice("weights".length)) : undefined });
  }
}

/** The first tensor whose bytes are not those that were written, if it can be found. */
async function damaged(parts: Parts, which: string): Promise<string | undefined> {
  try {
    const bytes = bytesOf(parts[`weights${which}`]);
    for (const each of (JSON.parse(parts[`graph${which}`]) as Graphs).constants)
      if ((await sha256(bytes.slice(each.start, each.start + length(each)))) !== each.sha256) return each.name;
  } catch {
    // Which tensor it is cannot be told; that the part is damaged is known.
  }
  return undefined;
}

const size = (shape: readonly number[]): number => shape.reduce((all, each) => all * each, 1);
const length = ({ shape, kind }: Stored): number => size(shape) * (kind === "bool" ? 1 : 4);

function parsed<Kind>(parts: Parts, part: string): Kind {
  try {
    return JSON.parse(parts[part]!) as Kind;
  } catch {
    throw new Refused({ kind: parts[part] ? "damaged" : "missing", part });
  }
}

/** What the page says of a model; of the one beside, it has what differs from the first, null where that has more. */
function aboutOf(parts: Parts, which: string): About {
  const first = parsed<About>(parts, "about");
  const own = which ? { ...first, ...parsed<Partial<About>>(parts, `about${which}`) } : first;
  const about = Object.fromEntries(Object.entries(own).filter(([, value]) => value !== null)) as unknown as About;
  return about.fills ? { ...about, tokens: about.tokens.map((token, id) => (id === about.fills!.mask ? EMPTY : token)) } : about;
}

function stored(bytes: Uint8Array<ArrayBuffer>, each: Stored): Tensor {
  if (each.kind === "float32") return { shape: each.shape, data: new Float32Array(bytes.buffer, each.start, size(each.shape)) };
  const from = each.kind === "bool" ? bytes.subarray(each.start) : new Int32Array(bytes.buffer, each.start, size(each.shape));
  return { shape: each.shape, data: Float32Array.from(from.subarray(0, size(each.shape))) };
}

/** The numbers of bytes in float16. */
function halves(bytes: Uint8Array<ArrayBuffer>): Float32Array {
  return Float32Array.from(new Uint16Array(bytes.buffer), (word) => {
    const [power, rest] = [(word >> 10) & 31, word & 1023];
    return (word >> 15 ? -1 : 1) * (power ? 2 ** (power - 25) * (1024 + rest) : 2 ** -24 * rest);
  });
}

/** Frames stay made up to so many numbers together; two of them always do. */
const MOST_MADE = 2 ** 24;

export class Carried implements Source {
  /** The other model of the page, and how the two differ. */
  beside?: Carried;
  relation?: Relation;
  private readonly model: Program;
  private readonly lens: Program;
  private steps: Steps;
  private patches?: { key: string; others: Others };
  private readonly background: { made?: Background } = {};
  given?: readonly number[];
  /** The film of the run, the sentence that its frames are compared on, and those that are made. */
  private film?: Film;
  private checked?: Check;
  private readonly made = new Map<number, Carried>();
  /** A mixed model as it continues a text, and as it fills gaps. */
  private readonly ways: Carried[] = [];

  private constructor(
    readonly about: About,
    private readonly graphs: Graphs,
    private readonly weights: Record<string, Tensor>,
    private readonly tokens: Tokens,
    /** Of a frame: the run with its own weights. */
    readonly trained?: Carried,
  ) {
    this.model = new Program(graphs.model, weights);
    this.lens = new Program(graphs.lens, weights);
    this.steps = this.growing();
    this.given = about.source && tokens.encode(about.sources![0]).ids;
    this.ways[0] = this;
  }

  private growing(): Steps {
    return new Steps(this.model, this.graphs.step, this.weights, this.about.context, (edits) => this.others(edits), this.given);
  }

  /** Beside another source, or with gaps: all but what was computed of sentences is the same. */
  reads(given: readonly number[] | undefined, gaps: boolean): Carried {
    const { both } = this.graphs;
    if (both) {
      // The kinds of heads, and the tables of n-grams, are of a sentence that goes on.
      const other = () => ({ about: { ...this.about, task: "gaps", kinds: undefined, counts: undefined }, model: new Program(both, this.weights), patches: undefined });
      return (this.ways[+gaps] ??= Object.assign(Object.create(Carried.prototype), this, other()));
    }
    if (!this.given || String(given) === String(this.given)) return this;
    const made: Carried = Object.assign(Object.create(Carried.prototype), this, { given, patches: undefined });
    made.steps = made.growing();
    return made;
  }

  /** The source of a page's parts. Nothing of it can be had before all its numbers have been compared. */
  static async open(parts: Parts): Promise<Carried> {
    await unseal(parts);
    const made = Carried.compared(parts);
    if (!parts.relation) return made;
    made.beside = Carried.compared(parts, BESIDE);
    made.beside.beside = made;
    made.relation = made.beside.relation = parsed<Relation>(parts, "relation");
    return made;
  }

  private static compared(parts: Parts, which = ""): Carried {
    const [about, graphs, checks] = [aboutOf(parts, which), parsed<Graphs>(parts, `graph${which}`), parsed<Check[]>(parts, `checks${which}`)];
    const [bytes, truth] = [bytesOf(parts[`weights${which}`]), bytesOf(parts[`truth${which}`])];
    const made = new Carried(about, graphs, Object.fromEntries(graphs.constants.map((each) => [each.name, stored(bytes, each)])), tokenizerOf(about));
    for (const check of checks) made.compare(check, truth);
    if (about.film) [made.film, made.checked] = [parsed<Film>(parts, FILM + which), checks[0]];
    return made;
  }

  /** Nothing of a frame can be had before its logits have been compared. */
  async at(step: number | null): Promise<Carried> {
    const [root] = (this.trained ?? this).ways;
    const { about, graphs, film, checked, made, weights: own, tokens } = root;
    const given = film?.frames.find((each) => each.step === step);
    if (step === null || !given) return root;
    const known = made.get(step);
    if (known) return known;
    const [numbers, weights] = [halves(bytesOf(given.weights)), { ...own }];
    let start = 0;
    for (const name of film!.constants) {
      const { shape } = own[name];
      weights[name] = { shape, data: numbers.subarray(start, (start += size(shape))) };
    }
    const frame = new Carried(frameOf(about, step), graphs, weights, tokens, root);
    const { ids, source } = checked!;
    const logits = atPosition("logits", ids.length - 1);
    if (difference(frame.reads(source, false).computed(ids, [logits], [])[logits].data, given.logits) !== null) throw new Error(t("The frame of step {step} computes other numbers than PyTorch.", { step }));
    made.set(step, frame);
    for (const first of made.keys()) if (made.size > Math.max(2, MOST_MADE / numbers.length)) made.delete(first);
    return frame;
  }

  private compare({ text, ids, source, last, gaps = false, values }: Check, truth: Uint8Array<ArrayBuffer>): void {
    const made = this.reads(source, gaps).computed(ids, values.map(({ name }) => name), []);
    for (const { name, shape, start } of values) {
      const expected = new Float32Array(truth.buffer, start, size(shape));
      const all = made[name]?.data ?? new Float32Array();
      const found = last ? all.subarray(all.length - expected.length) : all;
      const wrong = difference(found, expected);
      if (wrong === null && (last || String(made[name].shape) === String(shape))) continue;
      const at = wrong ?? 0;
      throw new Refused({ kind: "differs", sentence: text, name, found: found[at] ?? NaN, expected: expected[at] });
    }
  }

  encode(text: string, isSource = false): Encoded {
    return opened(this.about, this.tokens.encode(text), isSource);
  }

  decode(ids: readonly number[]): string {
    return this.tokens.decode(written(this.about, ids));
  }

  async trace(ids: readonly number[], names: readonly string[], edits: readonly Edit[]): Promise<Values> {
    return this.computed(ids, names, edits);
  }

  async anatomy(): Promise<Anatomy> {
    return { graph: this.model.graph, lens: this.lens.graph, constants: this.weights, given: this.given };
  }

  /** In the background; here in small pieces where the browser has no workers for a page like this. */
  async sweep(asked: Swept, tell: Tell, isWanted: () => boolean): Promise<void> {
    const { model, given } = this;
    const background = (this.background.made ??= new Background(model.graph, this.weights));
    if (!(await background.sweep({ ...asked, given }, tell, isWanted))) await swept(model, { ...asked, given }, tell, isWanted, PIECE);
  }

  async *next(ids: readonly number[], { sampling, numbers, prompt, edits }: Draws): AsyncGenerator<Drawn> {
    const logitsOf = (all: readonly number[]) => this.steps.read(all, prompt, edits).logits;
    yield* generated(ids, logitsOf, sampling, numbers, this.about.specials);
  }

  /** As `trace`, at once. */
  computed(ids: readonly number[], names: readonly string[], edits: readonly Edit[]): Values {
    const own = new Set(names.map(ownName));
    const made: Values = this.model.run(sentence(ids, this.given), [...own], editing(edits, this.others(edits)));
    const known = names.filter((name) => ownName(name) in made);
    return Object.fromEntries(known.map((name) => [name, name === RATED ? rated(made.logits, ids) : this.reading(name, made)]));
  }

  /** What a name says of the model's values. */
  private reading(name: string, made: Values): Tensor {
    const [whole, position] = placed(name);
    const value = sliced(made[ownName(name)] as Tensor, position);
    if (!whole.startsWith(LENS) && !whole.startsWith(READ)) return value;
    const logits = whole === `${READ}logits` ? value : this.lens.run({ x: value }, ["logits"]).logits;
    return whole.startsWith(LENS) ? logits : pairs(readOff(logits).ids, readOff(logits).shares);
  }

  /** What patches take: the same activations of their other sentences, unedited; the last are kept, for every token asks. */
  private others(edits: readonly Edit[]): Others {
    const key = JSON.stringify(edits);
    if (this.patches?.key === key) return this.patches.others;
    const made = new Map<string, Values>();
    for (const { from } of edits) {
      if (from == null || made.has(from)) continue;
      const { ids, unseen } = this.encode(from);
      if (unseen.length || !ids.length || ids.length > this.about.context) continue;
      made.set(from, this.computed(ids, edits.filter((each) => each.from === from).map(({ at }) => at), []));
    }
    const others: Others = ({ from, at }) => made.get(from ?? "")?.[at] as Tensor | undefined;
    this.patches = { key, others };
    return others;
  }
}

/** The activation that a name is read off. */
function ownName(name: string): string {
  if (name === RATED) return "logits";
  const [whole] = placed(name);
  return [LENS, READ].reduce((own, kind) => (own.startsWith(kind) ? own.slice(kind.length) : own), whole);
}

/** A value at one position, or as it is. */
function sliced(value: Tensor, position: number | null): Tensor {
  if (position === null) return value;
  const { shape, data } = value;
  const [time, width] = shape.slice(-2);
  const rows = Array.from({ length: size(shape.slice(0, -2)) }, (_, each) => (each * time + position) * width);
  const kept = new Float32Array(rows.length * width);
  rows.forEach((from, each) => kept.set(data.subarray(from, from + width), each * width));
  return tensor([...shape.slice(0, -2), 1, width], kept);
}

/** Two numbers of each token. */
function pairs(one: ArrayLike<number>, other: ArrayLike<number>): Tensor {
  return tensor([1, one.length, 2], Float32Array.from({ length: 2 * one.length }, (_, cell) => (cell % 2 ? other : one)[cell >> 1]));
}

function rated(logits: Values[string], ids: readonly number[]): Tensor {
  const { losses, ranks } = surprise(logits, ids);
  return pairs(losses, ranks);
}

/** The first place where numbers differ by more than rounding explains; null if there is none. */
export function difference(found: ArrayLike<number>, expected: ArrayLike<number>): number | null {
  if (found.length !== expected.length) return 0;
  let largest = 0;
  for (let place = 0; place < expected.length; place++)
    if (Number.isFinite(expected[place])) largest = Math.max(largest, Math.abs(expected[place]));
  for (let place = 0; place < expected.length; place++) {
    const [one, other] = [found[place], expected[place]];
    const isNear = Number.isFinite(other) ? Math.abs(one - other) <= TOLERANCE * largest : Object.is(one, other);
    if (!isNear) return place;
  }
  return null;
}
