// A sentence that grows: what is kept of its tokens, so that one more costs one step. The graph of one step is that of
// `vitral.interop.model_graphs`.

import type { Tensors } from "../../graph";
import { Tensor, tensor } from "../../tensors";
import { windowStart } from "../decoding/generation";
import { Others, editing, existing } from "../edits";
import type { Edit } from "../source";
import { ModelGraph, Program, sentence } from "./program";

/** The graph of one more token, with the numbers of tokens that its cache may have. */
export interface StepGraph extends ModelGraph {
  least: number;
  most: number;
}

const TOKENS = "tokens";
const LENGTH = "past_length";
const LOGITS = "logits";
/** Changes of a cell by a rule of its own; others look at the whole sentence. */
const BY_CELL: readonly Edit["do"][] = ["zero", "scale", "set"];

/** How many sentences are kept, and how many numbers they may have together. */
const [LEAST_KEPT, MOST_KEPT, MOST_NUMBERS] = [2, 64, 2 ** 24];

const ids32 = (ids: readonly number[]): Tensor => tensor([1, ids.length], Float32Array.from(ids));

export class Steps {
  private readonly step: Program | null;
  /** The inputs of the cache, and the outputs that they are after the step. */
  private readonly before: string[];
  private readonly after: string[];
  /** The sentences that were read last. */
  private readonly known = new Map<string, Grown>();

  constructor(
    private readonly whole: Program,
    private readonly graph: StepGraph | null,
    weights: Tensors,
    readonly context: number,
    private readonly others?: (edits: readonly Edit[]) => Others,
    private readonly given?: readonly number[],
  ) {
    this.step = graph && new Program(graph, weights);
    this.before = (graph?.inputs ?? []).filter((name) => name !== TOKENS && name !== LENGTH);
    this.after = this.before.map((name) => name.replace(/^past_key_values|^past_state/, (found) => (found === "past_state" ? "present_state" : "present")));
  }

  /** Whether later tokens use what is kept of earlier ones; where they do not, every token is a whole computation. */
  get isCached(): boolean {
    return this.step !== null;
  }

  /**
   * A sentence of at least one token, of which so many were given at once: past the context the window restarts by them.
   * If it is a sentence read before and one token more, it costs one step.
   */
  read(ids: readonly number[], prompt = ids.length, edits: readonly Edit[] = []): Grown {
    const start = windowStart(prompt, ids.length, this.context);
    const seen = ids.slice(start);
    const key = (all: readonly number[]) => JSON.stringify([edits, start, all]);
    const made = this.known.get(key(seen)) ?? this.known.get(key(seen.slice(0, -1)))?.after(seen[seen.length - 1]) ?? this.window(seen, edits);
    this.known.delete(key(seen));
    this.known.set(key(seen), made);
    const room = Math.min(MOST_KEPT, Math.max(LEAST_KEPT, Math.floor(MOST_NUMBERS / made.size)));
    for (const first of this.known.keys()) {
      if (this.known.size <= room) break;
      this.known.delete(first);
    }
    return made;
  }

  /** The tokens that the model sees, computed at once. */
  window(ids: readonly number[], edits: readonly Edit[]): Grown {
    const { graph } = this;
    const keeps = graph && ids.length >= graph.least && edits.every((each) => BY_CELL.includes(each.do));
    if (keeps && this.before[0]?.startsWith("past_state")) return this.stepwise(ids, edits);
    const names = keeps ? this.before.map(ofSentence) : [];
    const others = this.others?.(edits);
    const made = this.whole.run(sentence(ids, this.given), [LOGITS, ...names], editing(existing(edits, ids.length, others), others));
    const cache = keeps ? names.map((name) => made[name]) : null;
    const vocabulary = made[LOGITS].shape[2];
    return new Grown(this, ids, edits, made[LOGITS].data.slice(-vocabulary), cache);
  }

  /** The state of a recurrent layer has no name in the graph of whole sentences: it is made step by step. */
  private stepwise(ids: readonly number[], edits: readonly Edit[]): Grown {
    const { graph, before } = this;
    const width = this.whole.run({ [TOKENS]: ids32([0]) }, ["embed"]).embed.shape[2];
    let cache = graph!.inputs.filter((name) => before.includes(name)).map(() => tensor([1, 1, width], new Float32Array(width)));
    let logits: Tensor["data"] = new Float32Array();
    ids.forEach((id, place) => ({ logits, cache } = this.stepped(id, place, cache, edits)));
    return new Grown(this, ids, edits, logits, cache);
  }

  /** One more token after those of a cache. */
  stepped(id: number, past: number, cache: readonly Tensor[], edits: readonly Edit[]): { logits: Tensor["data"]; cache: Tensor[] } {
    const inputs: Tensors = { [TOKENS]: ids32([id]), [LENGTH]: tensor([1], Float32Array.of(past)) };
    this.before.forEach((name, place) => (inputs[name] = cache[place]));
    const here = existing(edits, past + 1).filter((each) => each.positions === "all" || each.positions.includes(past));
    const changes = editing(here.map((each) => ({ ...each, positions: "all" })));
    const made = this.step!.run(inputs, [LOGITS, ...this.after], changes);
    return { logits: made[LOGITS].data, cache: this.after.map((name) => made[name]) };
  }

  /** Whether the next token after so many of a cache is one step. */
  goesOn(past: number): boolean {
    return this.graph !== null && past >= this.graph.least && past <= this.graph.most;
  }
}

/** The name of a part of the cache in the graph of whole sentences. */
function ofSentence(name: string): string {
  const [, layer, kind] = /^past_key_values\.(\d+)\.(key|value)$/.exec(name) ?? [];
  return `blocks.${layer}.attn.${kind === "key" ? "k" : "v"}`;
}

/** What has been read of a sentence; it stays as it is, so one sentence can go on in several ways. */
export class Grown {
  constructor(
    private readonly steps: Steps,
    /** The tokens that the model sees. */
    readonly ids: readonly number[],
    readonly edits: readonly Edit[],
    /** Of the next token. */
    readonly logits: Tensor["data"],
    private readonly cache: readonly Tensor[] | null,
  ) {}

  /** How many numbers it keeps. */
  get size(): number {
    return (this.cache ?? []).reduce((sum, each) => sum + each.data.length, this.logits.length);
  }

  after(id: number): Grown {
    const [ids, past] = [[...this.ids, id], this.ids.length];
    const { steps, cache, edits } = this;
    if (!cache || !steps.goesOn(past)) return steps.window(ids, edits);
    const made = steps.stepped(id, past, cache, edits);
    return new Grown(steps, ids, edits, made.logits, made.cache);
  }
}
