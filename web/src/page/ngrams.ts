// N-gram probabilities from the counts that the page carries, as vitral.evaluation.ngrams computes them (Witten-Bell):
// p_n(w | h) = (c(h w) + T(h) p_{n-1}(w | h')) / (c(h) + T(h)); vitral.page.of_text writes the counts.

import { bytesOf } from "./bytes";

export interface CountsData {
  order: number;
  vocabulary: number;
  counted: number;
  grams: number[];
  data: string;
}

/** The n-grams of one order, in the order of those before them and of their last tokens. */
interface Level {
  tokens: Int32Array;
  counts: Int32Array;
  /** Where the n-grams below each one of the order before begin; one more at the end. */
  begins: Int32Array;
  /** How often something follows each one of the order before. */
  totals: Float64Array;
}

export interface Guess {
  id: number;
  probability: number;
}

/** No n-gram, or none before. */
const NONE = -1;

export class Ngrams {
  private constructor(
    readonly order: number,
    readonly vocabulary: number,
    readonly counted: number,
    private readonly levels: Level[],
  ) {}

  /** The counts of a page; null where it has none, or where the browser cannot unpack them. */
  static async open(data: CountsData | undefined): Promise<Ngrams | null> {
    if (!data || typeof DecompressionStream === "undefined") return null;
    const stream = new Blob([bytesOf(data.data)]).stream().pipeThrough(new DecompressionStream("deflate"));
    return Ngrams.read(data, new Uint8Array(await new Response(stream).arrayBuffer()));
  }

  private static read({ order, vocabulary, counted, grams }: CountsData, bytes: Uint8Array): Ngrams {
    let at = 0;
    const next = (): number => {
      let value = 0;
      for (let shift = 1; ; shift *= 128) {
        const group = bytes[at++];
        value += (group & 127) * shift;
        if (group < 128) return value;
      }
    };
    const levels = grams.map((size, index): Level => {
      const holders = index ? grams[index - 1] : 1;
      const begins = new Int32Array(holders + 1);
      for (let holder = 0; holder < holders; holder++) begins[holder + 1] = begins[holder] + next();
      const tokens = new Int32Array(size);
      for (let holder = 0; holder < holders; holder++) {
        let token = 0;
        for (let gram = begins[holder]; gram < begins[holder + 1]; gram++) tokens[gram] = token += next();
      }
      const counts = Int32Array.from(tokens, () => next() + 1);
      const totals = new Float64Array(holders);
      for (let holder = 0; holder < holders; holder++)
        for (let gram = begins[holder]; gram < begins[holder + 1]; gram++) totals[holder] += counts[gram];
      return { tokens, counts, begins, totals };
    });
    return new Ngrams(order, vocabulary, counted, levels);
  }

  /** The probability of each token after the tokens before it; of the first, as if nothing were before it. */
  probabilities(ids: readonly number[]): number[] {
    let contexts = this.start();
    return ids.map((id) => {
      let probability = 1 / this.vocabulary;
      this.levels.forEach((level, index) => {
        const holder = contexts[index];
        if (holder === NONE || !level.totals[holder]) return;
        const kinds = level.begins[holder + 1] - level.begins[holder];
        const gram = find(level, holder, id);
        const seen = gram === NONE ? 0 : level.counts[gram];
        probability = (seen + kinds * probability) / (level.totals[holder] + kinds);
      });
      contexts = this.moved(contexts, id);
      return probability;
    });
  }

  /** The probability of every token after these. */
  following(ids: readonly number[]): Float64Array {
    const contexts = ids.reduce((before, id) => this.moved(before, id), this.start());
    const found = new Float64Array(this.vocabulary).fill(1 / this.vocabulary);
    this.levels.forEach((level, index) => {
      const holder = contexts[index];
      if (holder === NONE || !level.totals[holder]) return;
      const [begin, end] = [level.begins[holder], level.begins[holder + 1]];
      const [kinds, all] = [end - begin, level.totals[holder] + end - begin];
      const seen = new Float64Array(this.vocabulary);
      for (let gram = begin; gram < end; gram++) seen[level.tokens[gram]] = level.counts[gram];
      for (let id = 0; id < found.length; id++) found[id] = (seen[id] + kinds * found[id]) / all;
    });
    return found;
  }

  /** The most probable tokens after these, the lower id first where two are equal. */
  guesses(ids: readonly number[], most: number): Guess[] {
    const all = Array.from(this.following(ids), (probability, id): Guess => ({ id, probability }));
    return all.sort((one, other) => other.probability - one.probability || one.id - other.id).slice(0, most);
  }

  /** For each order, the n-gram that ends here and is the context of the next token: none but that of order 1. */
  private start(): number[] {
    return this.levels.map((_, index) => (index ? NONE : 0));
  }

  /** The contexts after one more token. */
  private moved(contexts: number[], id: number): number[] {
    return this.levels.map((_, index) => {
      if (!index) return 0;
      const holder = contexts[index - 1];
      return holder === NONE ? NONE : find(this.levels[index - 1], holder, id);
    });
  }
}

/** The n-gram below `holder` that ends with this token. */
function find({ tokens, begins }: Level, holder: number, id: number): number {
  let [low, high] = [begins[holder], begins[holder + 1]];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (tokens[middle] < id) low = middle + 1;
    else high = middle;
  }
  return low < begins[holder + 1] && tokens[low] === id ? low : NONE;
}
