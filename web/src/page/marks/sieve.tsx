// One step of the choice: the tokens side by side, the most probable first; what the step cuts is faint and struck through.

import { css, glassOf, inkOn, INKS, isClear, Theme, visible } from "./colour";
import { Common, Drawn, useScene } from "./drawn";
import { oneRow } from "./grid";
import { Numbers } from "./plain";
import { Scene, Shape } from "./scene";
import { theme } from "./theme";

export interface SieveProps extends Common {
  tokens: readonly string[];
  /** The share of each token, whose sum is 1. */
  shares: Numbers;
  /** Token ids in the order in which they lie. */
  order: readonly number[];
  cut: ReadonlySet<number>;
  width: number;
  height?: number;
  say(id: number): string;
}

/** Shares narrower than this are one grey piece. */
const LEAST = 1;

interface Piece { id: number; x: number; w: number }

function pieces({ shares, order, width }: Pick<SieveProps, "shares" | "order" | "width">): Piece[] {
  const made: Piece[] = [];
  let sum = 0;
  for (const id of order) {
    const w = shares[id] * width;
    if (w < LEAST) break;
    made.push({ id, x: sum * width, w });
    sum += shares[id];
  }
  return made;
}

export function sieveScene(given: Pick<SieveProps, "tokens" | "shares" | "order" | "cut" | "width" | "height">, look: Theme): Scene {
  const { tokens, cut, width, height = 30 } = given;
  const inks = INKS[look];
  const shapes: Shape[] = [];
  const found = pieces(given);
  const end = found.length ? found[found.length - 1].x + found[found.length - 1].w : 0;
  for (const { id, x, w } of found) {
    const glass = isClear(tokens[id]) ? inks.hair : glassOf(tokens[id], look);
    const isCut = cut.has(id);
    const edge = w > 3 ? { stroke: css(inks.leading), width: 0.75 } : {};
    shapes.push({ kind: "rect", x, y: 0.5, w, h: height - 1, fill: css(glass), opacity: isCut ? 0.18 : 1, ...edge });
    const letters = visible(tokens[id]);
    const size = Math.min(height * 0.56, 18, (w - 3) / (0.6 * [...letters].length));
    if (size >= 9) shapes.push({ kind: "text", x: x + w / 2, y: height / 2 + size * 0.33, text: letters, size, anchor: "middle", face: "serif", fill: css(isCut ? inks.soft : inkOn(glass)) });
    if (isCut) shapes.push({ kind: "path", d: `M${x + 1} ${height - 2}L${x + w - 1} 2`, stroke: css(inks.soft), width: 1 });
  }
  if (end < width - 0.5) shapes.push({ kind: "rect", x: end, y: 0.5, w: width - end, h: height - 1, fill: css(inks.hair), opacity: cut.size ? 0.5 : 1 });
  shapes.push({ kind: "rect", x: 0.5, y: 0.5, w: width - 1, h: height - 1, stroke: css(inks.leading), width: 1 });
  const first = given.order.find((id) => cut.has(id));
  if (first !== undefined) {
    const piece = found.find(({ id }) => id === first);
    const x = piece ? piece.x : end;
    shapes.push({ kind: "rect", x: x - 1.5, y: -5, w: 3, h: height + 10, fill: css(inks.ink) });
  }
  return { width, height, shapes };
}

export function Sieve(props: SieveProps) {
  const { tokens, shares, order, cut, width, height = 30, say } = props;
  const scene = useScene(() => sieveScene({ tokens, shares, order, cut, width, height }, theme.value), [tokens, shares, order, cut, width, height]);
  const found = pieces({ shares, order, width });
  const edges = [...found.map(({ x }) => x), ...found.slice(-1).map(({ x, w }) => x + w)];
  const cells = oneRow(props.label, found.length, edges, height, (column) => say(found[column].id));
  return <Drawn {...props} scene={scene} lattice={cells} onPick={undefined} />;
}
