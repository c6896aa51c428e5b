// The run's tokenizer: any text as ids, equal to those in Python, and back (src/vitral/page/tokens.py writes the data).

import type { About, Encoded } from "./source";

export interface Tokens {
  encode(text: string): Encoded;
  decode(ids: readonly number[]): string;
}

type Special = [text: string, id: number][];

interface Common {
  /** What each token writes: a text, or bytes that are no text alone. */
  texts: (string | number[])[];
  /** Whether a text begins with a space that it does not have. */
  spaced?: boolean;
  /** Special tokens: those of the text as it is, then those of the normalized text. */
  special?: Special[];
  /** Unicode's normal forms of the text between the former. */
  normal?: string[];
}

interface Step {
  /** Put a space before a piece that does not begin with one. */
  space?: true;
  pattern?: string;
}

export type TokenizerData = Common &
  (
    | { kind: "asked" }
    | { kind: "characters"; points: number[]; ids: number[] }
    | { kind: "bytes"; ids: number[] }
    | {
        kind: "pairs";
        bytes: number[];
        merges: number[];
        steps: Step[];
        classes: Record<string, number[]>;
      }
  );

/** Ids of a piece of text without special tokens. */
type Encoder = (text: string, into: Encoded) => void;

/** Stands for a gap in a text, as in `vitral fill`, in capitals or not. */
export const GAP = "[MASK]";

/** The tokenizer that the page carries; `ask` encodes where only a server can. */
export function tokenizerOf({ tokenizer, fills }: Pick<About, "tokenizer" | "fills">, ask?: (text: string) => Encoded): Tokens {
  const data = tokenizer as unknown as TokenizerData;
  return { encode: data.kind === "asked" ? ask! : encoding(data, fills?.mask), decode: decoding(data, fills?.mask) };
}

function decoding({ texts, spaced }: Common, gap?: number): (ids: readonly number[]) => string {
  return (ids) => {
    const pieces = ids.map((id) => (id === gap ? GAP : texts[id] ?? ""));
    const text = pieces.every((piece) => typeof piece === "string")
      ? pieces.join("")
      : FROM_UTF8.decode(Uint8Array.from(pieces.flatMap((piece) => (typeof piece === "string" ? [...UTF8.encode(piece)] : piece))));
    return spaced && text.startsWith(" ") ? text.slice(1) : text;
  };
}

type Computed = Exclude<TokenizerData, { kind: "asked" }>;

function encoding(data: Computed, gap?: number): (text: string) => Encoded {
  const between = encoder(data);
  const [first = [], second = []] = data.special ?? [];
  const forms = data.normal ?? [];
  const inner = around(second, between);
  const outer = around(first, (text, into) => inner(forms.reduce((told, form) => told.normalize(form), text), into));
  // One space before a gap belongs to it where tokens begin with the space before them.
  const gaps: Special = gap === undefined ? [] : [GAP, ` ${GAP}`].slice(0, data.kind === "pairs" ? 2 : 1).map((written) => [written, gap]);
  const whole = around(gaps, outer, "giu");
  return (text) => {
    const into: Encoded = { ids: [], unseen: [] };
    whole(text, into);
    return into;
  };
}

function encoder(data: Computed): Encoder {
  if (data.kind === "characters") return characters(new Map(data.points.map((point, at) => [point, data.ids[at]])));
  if (data.kind === "bytes")
    return readable((text, into) => UTF8.encode(text).forEach((byte) => into.ids.push(data.ids[byte])));
  const pairs = new Pairs(data.bytes, data.merges);
  const cut = data.steps.map((step) => splitter(step, data.classes));
  return readable((text, into) => {
    for (const word of cut.reduce((pieces, each) => pieces.flatMap(each), [text])) pairs.encode(word, into);
  });
}

/** Special tokens first, the longest of those that begin at one place; `rest` encodes the text between them. */
function around(special: Special, rest: Encoder, flags = "gu"): Encoder {
  if (!special.length) return (text, into) => void (text && rest(text, into));
  const ids = new Map(special);
  const listed = [...ids.keys()].sort((one, other) => other.length - one.length);
  const pattern = new RegExp(listed.map((each) => each.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&")).join("|"), flags);
  return (text, into) => {
    let begin = 0;
    for (const found of text.matchAll(pattern)) {
      if (found.index! > begin) rest(text.slice(begin, found.index), into);
      into.ids.push(ids.get(found[0]) ?? special[0][1]);
      begin = found.index! + found[0].length;
    }
    if (begin < text.length) rest(text.slice(begin), into);
  };
}

const characters =
  (ids: Map<number, number>): Encoder =>
  (text, into) => {
    for (const character of text) {
      const id = ids.get(character.codePointAt(0)!);
      if (id === undefined) unseen(character, into);
      else into.ids.push(id);
    }
  };

function unseen(character: string, into: Encoded): void {
  if (!into.unseen.includes(character)) into.unseen.push(character);
}

/** Encodes the text around halves of surrogate pairs, which have no UTF-8. */
const readable =
  (rest: Encoder): Encoder =>
  (text, into) => {
    for (const piece of text.split(/(\p{Cs})/u))
      if (/^\p{Cs}/u.test(piece)) unseen(piece, into);
      else if (piece) rest(piece, into);
  };

const UTF8 = new TextEncoder();
const FROM_UTF8 = new TextDecoder("utf-8", { ignoreBOM: true });

/** The function that splits one piece into pieces. */
function splitter(step: Step, classes: Record<string, number[]>): (piece: string) => string[] {
  if (step.space) return (piece) => [piece.startsWith(" ") ? piece : ` ${piece}`];
  const pattern = new RegExp(step.pattern!.replace(/⟨(.*?)⟩/gu, (_, name: string) => ranges(classes[name])), "gu");
  return (piece) => {
    const pieces: string[] = [];
    let begin = 0;
    for (const found of piece.matchAll(pattern)) {
      if (!found[0]) continue;
      if (found.index! > begin) pieces.push(piece.slice(begin, found.index));
      pieces.push(found[0]);
      begin = found.index! + found[0].length;
    }
    if (begin < piece.length) pieces.push(piece.slice(begin));
    return pieces;
  };
}

/** The inside of brackets: ranges of code points, each stored as its distance from the one before and its length. */
function ranges(flat: number[]): string {
  const code = (point: number) => `\\u{${point.toString(16)}}`;
  let before = 0;
  let told = "";
  for (let at = 0; at < flat.length; at += 2) {
    const first = before + flat[at];
    before = first + flat[at + 1];
    told += `${code(first)}-${code(before)}`;
  }
  return told;
}

/** A merge that may happen: of the symbol at `at` with the one after it. */
interface Candidate {
  rank: number;
  at: number;
  made: number;
}

const before = (one: Candidate, other: Candidate): boolean =>
  one.rank < other.rank || (one.rank === other.rank && one.at < other.at);

/** Byte-pair encoding of words (Sennrich et al. 2016), in the order of the `tokenizers` package. */
class Pairs {
  private readonly merges = new Map<number, [rank: number, made: number]>();
  private readonly known = new Map<string, number[]>();
  private readonly size: number;

  constructor(
    private readonly bytes: number[],
    merges: number[],
  ) {
    this.size = 1 + merges.reduce((most, id) => Math.max(most, id), Math.max(...bytes));
    for (let at = 0; at < merges.length; at += 3)
      this.merges.set(merges[at] * this.size + merges[at + 1], [at / 3, merges[at + 2]]);
  }

  encode(word: string, into: Encoded): void {
    let ids = this.known.get(word);
    if (!ids) {
      ids = this.encoded(UTF8.encode(word));
      if (word.length < 64) this.known.set(word, ids);
    }
    for (const id of ids) into.ids.push(id);
    if (this.bytes.includes(-1))
      for (const character of word)
        if (UTF8.encode(character).some((byte) => this.bytes[byte] < 0)) unseen(character, into);
  }

  private encoded(word: Uint8Array): number[] {
    const symbols = Array.from(word, (byte) => this.bytes[byte]).filter((symbol) => symbol >= 0);
    const next = symbols.map((_, at) => at + 1);
    const previous = symbols.map((_, at) => at - 1);
    const queue = new Queue();
    const candidate = (at: number): void => {
      const merge = at >= 0 && next[at] < symbols.length && this.merges.get(symbols[at] * this.size + symbols[next[at]]);
      if (merge) queue.push({ rank: merge[0], at, made: merge[1] });
    };
    symbols.forEach((_, at) => candidate(at));
    for (let top = queue.pop(); top; top = queue.pop()) {
      const { at, made } = top;
      if (symbols[at] < 0 || next[at] >= symbols.length) continue;
      const right = next[at];
      if (this.merges.get(symbols[at] * this.size + symbols[right])?.[1] !== made) continue;
      symbols[at] = made;
      symbols[right] = -1;
      next[at] = next[right];
      if (next[at] < symbols.length) previous[next[at]] = at;
      candidate(previous[at]);
      candidate(at);
    }
    return symbols.filter((symbol) => symbol >= 0);
  }
}

/** The candidate of the lowest rank first, at the lowest place. */
class Queue {
  private readonly heap: Candidate[] = [];

  push(each: Candidate): void {
    const { heap } = this;
    let at = heap.push(each) - 1;
    while (at > 0) {
      const above = (at - 1) >> 1;
      if (!before(each, heap[above])) break;
      heap[at] = heap[above];
      at = above;
    }
    heap[at] = each;
  }

  pop(): Candidate | undefined {
    const { heap } = this;
    const top = heap[0];
    const last = heap.pop();
    if (!last || !heap.length) return top;
    let at = 0;
    for (let below = 1; below < heap.length; below = 2 * at + 1) {
      if (below + 1 < heap.length && before(heap[below + 1], heap[below])) below++;
      if (!before(heap[below], last)) break;
      heap[at] = heap[below];
      at = below;
    }
    heap[at] = last;
    return top;
  }
}

/** What a decoder reads: the token that opens what it writes, and then the tokens of a text. */
export const opened = ({ source }: About, encoded: Encoded, isSource: boolean): Encoded =>
  !source || isSource || source.opens === null || encoded.ids[0] === source.opens ? encoded : { ...encoded, ids: [source.opens, ...encoded.ids] };

/** Those tokens without it. */
export const written = ({ source }: About, ids: readonly number[]): readonly number[] => (source && ids.length && ids[0] === source.opens ? ids.slice(1) : ids);
