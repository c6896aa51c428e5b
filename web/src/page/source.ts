// Where a page's numbers come from: the graph that the page carries, or a server. Panes know only this.

import type { Sampling } from "./decoding/filters";
import type { Drawn } from "./decoding/generation";
import type { CountsData } from "./ngrams";
import type { Anatomy } from "./numbers/opening";

/** Names of what is read off values: logits of a stream; their most probable token; how each token was rated. */
export const [LENS, READ, RATED] = ["lens.", "read.", "rated"];
/** What a server makes of maps, and of values: small maps, the mean of the heads, ‖W_O v‖. */
export const [POOLED, MEAN, BROUGHT] = ["pooled.", "mean.", "brought."];
const AT = "@";
/** The name of a value at one position. */
export const atPosition = (name: string, position: number): string => `${name}${AT}${position}`;
/** The name of one head's part of a value. */
export const ofHead = (name: string, head: number): string => `${name}#${head}`;
/** A name without its position, and the position, if it has one. */
export function placed(name: string): [string, number | null] {
  const [own, at] = name.split(AT);
  return [own, at === undefined ? null : Number(at)];
}

export interface Tensor {
  readonly shape: readonly number[];
  readonly data: Float32Array | Float64Array;
}

/**
 * By the names of `vitral.core.names`. `lens.NAME` are the logits read off the stream at NAME, `read.NAME` their most
 * probable token and its probability; `rated` is each token's −ln p and rank; `NAME@7` is one position.
 */
export type Values = Record<string, Tensor>;

/** A change of a named value before the rest is computed from it: the JSON of `vitral.inspection.edits`. */
export interface Edit {
  at: string;
  heads?: number[];
  positions: "all" | number[];
  columns?: number[];
  do: "zero" | "mean" | "scale" | "set" | "patch";
  factor?: number;
  value?: number;
  from?: string;
}

/** A part of the model: the named values that are zero without it, of one head or of all. */
export interface Part {
  at: string[];
  head?: number;
  /** Of the loss, in nats per token, with its 95 % interval. */
  increase: number;
  low?: number;
  high?: number;
}

/** Plain data about the run; `vitral.page.content` writes it. */
export interface About {
  name: string;
  /** The path of its folder, as commands name it from where the page was made; its name, if absent. */
  run?: string;
  /** The text of each token, as people read it. */
  tokens: string[];
  context: number;
  layers: number;
  heads: number;
  d_model: number;
  vocabulary: number;
  parameters: number;
  /** Of all named values, in the order in which they are computed. */
  names: string[];
  /** Of an encoder-decoder: its encoder, whose named values these are, and the tokens that open and close what it writes. */
  source?: { names: string[]; context: number; layers: number; opens: number | null; closes: number | null };
  /** What the model does with a sentence, where it does not continue it. */
  task?: "gaps" | "labels";
  /** Of a model that fills gaps: how it reads them. A mixed one has the task while the sentence has a gap. */
  fills?: Fills;
  /** The names of the labels that the model gives a text. */
  labels?: string[];
  /** What the encoder reads beside each passage. */
  sources?: string[];
  /** Of the stream after the embedding and after every half-layer. */
  stream: string[];
  /** Of what each half-layer adds to the stream. */
  contributions: string[];
  /** The model's configuration. */
  model: Record<string, unknown>;
  step: number;
  /** Of a frame of the film: the step of the trained model. */
  trained?: number;
  /** The steps of the frames, that of the last one of the training, and the losses by step. */
  film?: { steps: number[]; last: number; training: [number, number][]; validation: [number, number][] };
  loss?: number;
  baselines?: { order: number; loss: number }[];
  /** Between one order and the next: what the loss rises by with one token less. */
  gaps?: { from: number; to: number; loss: number }[];
  /** Of each block, what its heads do. */
  kinds?: string[][];
  /** Sentences to open with: of the run's held-out text, or one that its vocabulary can write. */
  passages: string[];
  /** Whether the model wrote them, since the text is private. */
  private?: boolean;
  /** Of each passage, the token, the block and the head that the page shows first. */
  openings?: { position: number; block: number; head: number; figure?: string }[];
  tokenizer: Record<string, unknown>;
  /** Tokens that are never drawn. */
  specials: number[];
  /** The counts of n-grams of the run's training text. */
  counts?: CountsData;
  /** The run's text, or why there is none. */
  text?: { name: string; characters: number; licence?: { sentence: string; number?: string } } | { missing: "imported" | "elsewhere" };
  /** What the loss on windows of the test split rises by without each part. */
  ablations?: { windows: number; tokens: number; loss: number; parts: Part[] };
  /** Command lines and Python lines that make the same numbers. */
  /** Whether a server computes the numbers, with PyTorch. */
  served?: boolean;
  commands: Record<string, string>;
  /** What a shell calls Vitral. */
  program?: string;
  language: string;
  vitral: string;
}

/** How a model reads a sentence with gaps. */
export interface Fills {
  /** The token that stands for a gap. */
  mask: number;
  /** The tokens around every text. */
  before: number[];
  after: number[];
  /** How many positions before its own a hidden token is predicted. */
  ahead: number;
}

/** The tokens around the text, where the model fills gaps. */
export const around = ({ task, fills }: About) => (task === "gaps" ? fills! : { before: [], after: [] });
/** How many places after its own the token is that a position predicts. */
export const offset = ({ task, fills }: About): number => (task === "gaps" ? fills!.ahead : 1);
/** Whether every token sees all others, those after it too. */
export const seesAll = ({ task, fills, model }: About): boolean =>
  (task === "gaps" && fills!.ahead > 0) || (model.attention as { mask?: { name?: string } } | undefined)?.mask?.name === "bidirectional";
/** What the model can say, by its number: tokens, or labels. */
export const outputs = ({ labels, tokens }: About): string[] => labels ?? tokens;

/** How the first of two runs differs from the second; `vitral.page.content.relation` writes it. */
export interface Relation {
  run: string;
  against: string;
  batches: "same" | "same by configuration" | "other";
  /** Keys of the configuration that differ. */
  changed: string[];
  /** The test loss of the first less that of the second, with its interval. */
  difference: { unit: string; difference: number; low: number | null; high: number | null; confidence: number } | null;
}

export interface Encoded {
  ids: number[];
  /** Characters that have no token; they are left out of `ids`. */
  unseen: string[];
  /** Why there are no tokens, in a server's words. */
  fault?: string;
}

/** Whether the model, or its encoder, has a named value. */
export const knows = ({ names, source }: About, name: string): boolean => names.includes(name) || Boolean(source?.names.includes(name));

export interface Source {
  readonly about: About;
  /** Of an encoder-decoder: the tokens that its encoder reads beside every sentence. */
  readonly given?: readonly number[];
  /** The same model beside another source, or a mixed one as it reads a sentence with gaps or without; itself where it is the same one. */
  reads?(given: readonly number[] | undefined, gaps: boolean): Source;
  /** Of a frame of the film: the run with its own weights. */
  readonly trained?: Source;
  /**
   * The tokens of a text, as the run's tokenizer makes them. Where a server has to be asked, those of the last text that
   * it has answered; the signal that they are read from tells when there are new ones.
   */
  encode(text: string, isSource?: boolean): Encoded;
  /** The text of tokens. */
  decode(ids: readonly number[]): string;
  /** Named values of a sentence of 1 … context tokens; `step` is a checkpoint, the run's best if undefined. */
  trace(ids: readonly number[], names: readonly string[], edits: readonly Edit[], step?: number): Promise<Values>;
  /** The run with the weights of a frame of its film, or, if null, of its checkpoint. */
  at?(step: number | null): Promise<Source>;
  /** The graph and its constants, from which the arithmetic of any cell is read. */
  anatomy?(): Promise<Anatomy>;
  /** The differences of a sweep, where they do not come from `trace`, as long as they are wanted. */
  sweep?(asked: Swept, tell: Tell, isWanted: () => boolean): Promise<void>;
  /** The tokens of a text other than the sentence, where `encode` has one text at a time. */
  tokensOf?(text: string): Promise<Encoded>;
  /**
   * Tokens drawn one after another behind a sentence; what is not asked for is not computed. Equal numbers give equal
   * tokens, whatever draws them: `choose(distribution(logits, sampling), number)` of `vitral.decoding`.
   */
  next(ids: readonly number[], draws: Draws): AsyncIterable<Drawn>;
}

/** A part of the model whose vectors are patched or zeroed: a named value, or one head of it. */
export interface Place { at: string; head?: number }

/** What a sweep asks: the difference of two tokens' logits behind a sentence, with each place changed at each position. */
export interface Swept {
  ids: readonly number[];
  /** The sentence that the vectors come from, as text and as equally many tokens; null: they become zero. */
  from: string;
  others: readonly number[] | null;
  pair: readonly [number, number];
  places: readonly Place[];
  /** What an encoder reads. */
  given?: readonly number[];
}

/** Some differences of a sweep, the first for the cell with this number: cells are counted place after place. */
export type Tell = (first: number, differences: readonly number[]) => void;

/** How tokens are drawn. */
export interface Draws {
  sampling: Sampling;
  /** One number from 0 to below 1 for each token. */
  numbers: readonly number[];
  /** How many of the sentence's tokens were given at once: past the context the window restarts by them. */
  prompt: number;
  edits: readonly Edit[];
}
