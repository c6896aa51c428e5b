// The source of a page over a server on this machine (`vitral open`): all numbers are PyTorch's. Answers are raw bytes;
// the token is sent in a header, and kept by the tab alone, so that the page can be reloaded.

import { signal } from "@preact/signals";
import type { Drawn } from "./decoding/generation";
import { frameOf } from "./film";
import { About, Draws, Edit, Encoded, Relation, Source, Values, placed } from "./source";
import { pause } from "./state";
import { Tokens, opened, tokenizerOf, written } from "./tokens";
import type { ModelGraph } from "./compute/program";
import { Anatomy, Missing, Remote } from "./numbers/opening";
import { reasonOf } from "./words";

/** How the page stands with its server. A stranger has no token, or that of a server which ended. */
export type Connection = "here" | "away" | "stranger";
export const connection = signal<Connection>("here");
/** A run, and the step of a checkpoint that was written since the run was opened. */
export const newer = signal<{ run: number; step: number } | null>(null);

export interface Listed {
  id: number;
  name: string;
}

/** What the server refuses, in its words. */
export class Denied extends Error {
  constructor(readonly status: number, message: string) {
    super(message);
  }
}

const TOKEN = "token";
const [FIRST_WAIT, LONGEST_WAIT] = [250, 2000];
/** Requests that wait for the server to come back: so many of the last ones. */
const MOST_WAITING = 4;

/** The token in an address's fragment, and the fragment without it. */
export function tokenIn(fragment: string): { token: string; rest: string } {
  const parts = fragment.replace(/^#/, "").split("&").filter(Boolean);
  const own = parts.filter((part) => part.startsWith(`${TOKEN}=`));
  const rest = parts.filter((part) => !own.includes(part)).join("&");
  return { token: own[0]?.slice(TOKEN.length + 1) ?? "", rest: rest && `#${rest}` };
}

/**
 * Keeps the token for a page that is reloaded: the tab's own storage, which no other tab, origin or port can read and which
 * ends with the tab. Null forgets it. Returns what is kept.
 */
export function kept(token?: string | null): string {
  try {
    if (token === null) sessionStorage.removeItem(TOKEN);
    else if (token) sessionStorage.setItem(TOKEN, token);
    return sessionStorage.getItem(TOKEN) ?? "";
  } catch {
    return token ?? ""; // a browser that keeps nothing
  }
}

/** Tensors in the format safetensors, as float32, without a copy. */
export function tensorsOf(bytes: ArrayBuffer): Values {
  const length = Number(new DataView(bytes).getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 8, length))) as Record<
    string,
    { shape: number[]; data_offsets: [number, number] }
  >;
  const found: Values = {};
  for (const [name, { shape, data_offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [begin, end] = data_offsets;
    found[name] = { shape, data: new Float32Array(bytes, 8 + length + begin, (end - begin) / 4) };
  }
  return found;
}

/** Requests with the token; where the server does not answer, they are repeated until it does. */
export class Line {
  private last = 0;

  constructor(private token: string) {}

  /** Goes on with the token of a server that was started anew. */
  renew(token: string): void {
    this.token = token;
  }

  async ask<Read>(path: string, read: (answer: Response) => Read | Promise<Read>, body?: unknown, stop?: AbortSignal, most = MOST_WAITING): Promise<Read> {
    const own = ++this.last;
    for (let wait = FIRST_WAIT; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
      const { token } = this;
      try {
        const answer = await fetch(path, {
          method: body === undefined ? "GET" : "POST",
          headers: { "x-vitral-token": token, ...(body === undefined ? {} : { "content-type": "application/json" }) },
          body: body === undefined ? undefined : JSON.stringify(body),
          credentials: "omit",
          cache: "no-store",
          signal: stop,
        });
        if (answer.status === 401 && token !== this.token) continue; // the token was renewed meanwhile
        connection.value = answer.status === 401 ? "stranger" : "here";
        if (answer.status === 401) kept(null);
        if (answer.ok) return await read(answer);
        const told = (await answer.json().catch(() => ({}))) as { error?: string };
        throw new Denied(answer.status, told.error ?? String(answer.status));
      } catch (error) {
        if (!(error instanceof TypeError)) throw error;
        connection.value = "away";
        if (this.last - own > most) throw error;
        await pause(wait);
      }
    }
  }
}

/** The tokens of texts that are asked for; the last answer stands until the next one is there. */
class Asking {
  private readonly answered = signal<{ text: string; encoded: Encoded }>({ text: "", encoded: { ids: [], unseen: [] } });
  private asked = "";
  private stop = new AbortController();

  constructor(private readonly line: Line, private readonly run: number) {}

  encode(text: string): Encoded {
    const known = this.answered.value;
    if (this.asked !== text) void this.ask(text);
    return known.encoded;
  }

  private async ask(text: string): Promise<void> {
    this.stop.abort(); // a later keystroke overtakes
    this.stop = new AbortController();
    this.asked = text;
    const { signal: stop } = this.stop;
    const encoded = text
      ? await this.line.ask("/encode", (answer) => answer.json() as Promise<Encoded>, { run: this.run, text }, stop).catch(
          (error: unknown): Encoded => ({ ids: [], unseen: [], fault: reasonOf(error) }),
        )
      : await Promise.resolve({ ids: [], unseen: [] });
    if (this.asked === text) this.answered.value = { text, encoded };
  }
}

export class Served implements Source {
  given?: readonly number[];
  private readonly tokens: Tokens;
  /** The computations that are under way, by what they ask for. */
  private readonly asked = new Map<string, { sentence: string; stop: AbortController }>();

  private constructor(
    readonly about: About,
    readonly run: number,
    private readonly line: Line,
    private readonly asking = new Asking(line, run),
    /** The arithmetic of the run's model, once it is asked for. */
    private readonly parts: { anatomy?: Promise<Anatomy> } = {},
    /** The run with its own weights, where this one has those of a frame. */
    readonly trained?: Served,
  ) {
    this.tokens = tokenizerOf(about, (text) => asking.encode(text));
    this.given = about.source && this.tokens.encode(about.sources![0]).ids;
  }

  reads(given?: readonly number[]): Served {
    if (!this.given || String(given) === String(this.given)) return this;
    return Object.assign(Object.create(Served.prototype), this, { given });
  }

  static async open(line: Line, run: number): Promise<Served> {
    const about = await line.ask("/about", (answer) => answer.json() as Promise<About>, { run });
    newer.value = null;
    return new Served(about, run, line);
  }

  /** The same with what takes the server seconds: counts, kinds of heads, what each part is worth. */
  async whole(): Promise<Served> {
    const about = await this.line.ask("/about", (answer) => answer.json() as Promise<About>, { run: this.run, whole: true });
    return new Served(about, this.run, this.line, this.asking, this.parts);
  }

  /** The step of the frame, as requests have it. */
  private get frame(): number | undefined {
    return this.trained && this.about.step;
  }

  async at(step: number | null): Promise<Served> {
    const own = this.trained ?? this;
    return step === null ? own : new Served(frameOf(own.about, step), this.run, this.line, this.asking, {}, own);
  }

  /** How this run differs from another, as far as the server can measure it. */
  relation(other: Served): Promise<Relation> {
    return this.line.ask("/relation", (answer) => answer.json() as Promise<Relation>, { run: this.run, against: other.run });
  }

  encode(text: string, isSource = false): Encoded {
    return opened(this.about, this.tokens.encode(text), isSource);
  }

  async tokensOf(text: string): Promise<Encoded> {
    if (this.about.tokenizer.kind !== "asked") return this.encode(text);
    return this.line.ask("/encode", (answer) => answer.json() as Promise<Encoded>, { run: this.run, text });
  }

  decode(ids: readonly number[]): string {
    return this.tokens.decode(written(this.about, ids));
  }

  /** As of every source; a sentence overtakes the one before it that asks for the same names. A single name overtakes nothing: several figures ask for it at once. */
  async trace(ids: readonly number[], names: readonly string[], edits: readonly Edit[], step = this.frame): Promise<Values> {
    const kind = JSON.stringify([edits.length > 0, names.map((name) => placed(name)[0])]);
    const sentence = JSON.stringify([ids, this.given, step]);
    const before = this.asked.get(kind);
    if (names.length > 1 && before && before.sentence !== sentence) before.stop.abort();
    const stop = new AbortController();
    const own = { sentence, stop };
    this.asked.set(kind, own);
    try {
      const read = async (answer: Response) => {
        const later = answer.headers.get("x-vitral-newer");
        if (later !== null) newer.value = { run: this.run, step: Number(later) };
        else if (newer.value?.run === this.run) newer.value = null;
        return tensorsOf(await answer.arrayBuffer());
      };
      const body = { run: this.run, ids, source: this.given, names, edits, step };
      return await this.line.ask("/trace", read, body, stop.signal);
    } finally {
      if (this.asked.get(kind) === own) this.asked.delete(kind);
    }
  }

  anatomy(): Promise<Anatomy> {
    const { parts } = this;
    parts.anatomy ??= this.dissected().catch((error: unknown) => {
      parts.anatomy = undefined;
      throw error;
    });
    return parts.anatomy;
  }

  /** The model's graph without its numbers, which are fetched as cells are opened. */
  private async dissected(): Promise<Anatomy> {
    const { line, run, frame: step } = this;
    const graph = await line.ask("/anatomy", (answer) => answer.json() as Promise<ModelGraph & { lens: ModelGraph }>, { run }, undefined, Infinity);
    const { lens } = graph;
    const constants = Object.fromEntries([...graph.constants, ...lens.constants].map(({ name, shape }) => [name, new Remote(shape)]));
    const bring = async (cells: Missing) => {
      if (!Object.keys(cells).length) return;
      const found = await line.ask("/numbers", async (answer) => tensorsOf(await answer.arrayBuffer()), { run, cells, step });
      for (const [name, places] of Object.entries(cells)) constants[name].learn(places, found[name].data);
    };
    return { graph, lens, constants, bring, given: this.given };
  }

  async *next(ids: readonly number[], { sampling, numbers, prompt, edits }: Draws): AsyncGenerator<Drawn> {
    const stop = new AbortController();
    try {
      const body = { run: this.run, ids, source: this.given, sampling, numbers, prompt, edits, step: this.frame };
      const stream = await this.line.ask("/next", (answer) => answer.body!.getReader(), body, stop.signal);
      yield* drawnFrom(stream, this.about.vocabulary);
    } finally {
      stop.abort(); // who stops listening stops the server within one token
    }
  }
}

/** The tokens of a stream of frames: an id of 32 bits, then the logits as float32. */
async function* drawnFrom(reader: ReadableStreamDefaultReader<Uint8Array>, vocabulary: number): AsyncGenerator<Drawn> {
  const frame = new Uint8Array(4 + 4 * vocabulary);
  let filled = 0;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    for (let from = 0; from < value.length; ) {
      const taken = Math.min(value.length - from, frame.length - filled);
      frame.set(value.subarray(from, from + taken), filled);
      from += taken;
      filled += taken;
      if (filled < frame.length) continue;
      filled = 0;
      const whole = frame.slice();
      yield { id: new DataView(whole.buffer).getInt32(0, true), logits: new Float32Array(whole.buffer, 4, vocabulary) };
    }
  }
}
