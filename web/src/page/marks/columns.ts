// The page's one grid: letter j has the same x in the sentence, the arcs, the map and the lens.

export interface Columns {
  /** The borders of the columns: one more than there are columns. */
  edges: Float64Array;
  /** What a letter of the chosen size fits into; columns below this show no letter. */
  legible: number;
}

export const centre = ({ edges }: Columns, column: number): number => (edges[column] + edges[column + 1]) / 2;
export const widthOf = ({ edges }: Columns, column: number): number => edges[column + 1] - edges[column];

/** How wide a token would like to be, in ems of a serif letter: one letter a square, a piece its length. */
export const wish = (token: string): number => Math.max(1, 0.55 * [...token].length + 0.45);

/**
 * Lay tokens out over a width. A short sentence has columns as wide as its tokens ask for, at most `most` an em; of a long one the
 * columns around `focus` stay legible and the others share what is left, so no letter leaves the screen.
 */
export function layOut(tokens: readonly string[], width: number, focus = tokens.length - 1, most = 44, least = 19): Columns {
  const wishes = tokens.map(wish);
  const total = wishes.reduce((sum, each) => sum + each, 0) || 1;
  const edges = new Float64Array(tokens.length + 1);
  const em = Math.min(most, width / total);
  let widths: number[];
  if (em >= least) widths = wishes.map((each) => each * em);
  else {
    const kept = new Set<number>();
    let spent = 0;
    const share = width * 0.62;
    for (let step = 0; step < tokens.length; step++) {
      for (const at of step ? [focus - step, focus + step] : [focus]) {
        const asks = (wishes[at] ?? Infinity) * least;
        if (at < 0 || at >= tokens.length || spent + asks > share) continue;
        kept.add(at);
        spent += asks;
      }
      if (spent + least > share || step > 40) break;
    }
    const others = wishes.reduce((sum, each, at) => sum + (kept.has(at) ? 0 : each), 0) || 1;
    widths = wishes.map((each, at) => (kept.has(at) ? each * least : (each * (width - spent)) / others));
  }
  widths.forEach((each, at) => (edges[at + 1] = edges[at] + each));
  return { edges, legible: 11 };
}
