// Beam search, as `vitral.decoding.beam_search` without stop strings: at each length the most probable continuations.

import { PLAIN, descending, distribution } from "./filters";

/** A continuation: a node of the tree that the search grows. */
export interface Hypothesis {
  parent: Hypothesis | null;
  /** Its last token; -1 at the root. */
  token: number;
  length: number;
  /** The logarithm of its probability, in nats. */
  score: number;
  /** The probability of its last token after its parent. */
  probability: number;
}

export const ROOT: Hypothesis = { parent: null, token: -1, length: 0, score: 0, probability: 1 };

/** The tokens of a hypothesis. */
export function tokensOf(hypothesis: Hypothesis): number[] {
  const tokens: number[] = [];
  for (let each = hypothesis; each.parent; each = each.parent) tokens.push(each.token);
  return tokens.reverse();
}

/**
 * The next generation: the `beams` most probable continuations by one token, the best first. Ties go to the better
 * parent, then to the lower id.
 *
 * @param logits of each living hypothesis' next token.
 */
export function grow(live: readonly Hypothesis[], logits: readonly ArrayLike<number>[], beams: number, forbidden: readonly number[] = []): Hypothesis[] {
  const grown: Hypothesis[] = [];
  live.forEach((parent, row) => {
    const probabilities = distribution(logits[row], PLAIN, forbidden);
    const scores = probabilities.map((each) => parent.score + Math.log(each));
    for (const token of descending(scores).slice(0, beams)) {
      const [score, probability] = [scores[token], probabilities[token]];
      if (score > -Infinity) grown.push({ parent, token, length: parent.length + 1, score, probability });
    }
  });
  return grown.sort((one, other) => other.score - one.score).slice(0, beams);
}
