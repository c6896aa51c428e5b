// A sentence as panes of glass: whitespace visible, strength as given, the chosen token underlined, what comes next an open pane.

import { css, EMPTY, INKS, isClear, pane, Theme, visible } from "./colour";
import { centre, Columns, widthOf } from "./columns";
import { Common, Drawn, useScene } from "./drawn";
import { oneRow } from "./grid";
import { Scene, Shape } from "./scene";
import { theme } from "./theme";

export interface Pane {
  token: string;
  strength?: number;
  /** The token that lends its glass to what is written, which may be nothing. */
  glass?: string;
}

/** About how wide a letter is, in its size, where it is wider than most. */
const wide = (letter: string): number => (/[WM@—…]/.test(letter) ? 0.93 : /[mw]/.test(letter) ? 0.78 : /\p{Lu}/u.test(letter) ? 0.8 : 0.55);

/** A pane as shapes: glass in its leading, the letter in an ink of enough contrast; no letter where none fits. */
export function paneShapes(given: Pane, x: number, y: number, w: number, h: number, look: Theme): Shape[] {
  const inks = INKS[look];
  const own = given.glass ?? given.token;
  const { fill, ink } = pane(own, given.strength ?? 1, look);
  const letters = given.glass ? given.token : visible(given.token);
  const all = [...letters];
  const size = Math.min(h * 0.56, 23, ((w - 2) / (0.62 * all.length + 0.1)) * 1.02, (0.94 * w) / all.reduce((sum, each) => sum + wide(each), 0));
  const clear = isClear(own);
  const shapes: Shape[] = [{
    kind: "rect", x: x + 0.5, y: y + 0.5, w: Math.max(0.5, w - 1), h: h - 1, fill: css(fill),
    ...(w > 6 ? { stroke: css(own === EMPTY ? inks.soft : clear ? inks.hair : inks.leading), width: 1, opacity: 1, ...(own === EMPTY ? { dash: "3 3" } : {}) } : {}),
  }];
  if (letters && own !== EMPTY && size >= 8.5) shapes.push({ kind: "text", x: x + w / 2, y: y + h / 2 + size * 0.33, text: letters, fill: css(ink), size, anchor: "middle", face: "serif" });
  return shapes;
}

export interface PanesProps extends Common {
  panes: readonly Pane[];
  columns: Columns;
  chosen?: number;
  /** Columns that something else points at. */
  marked?: readonly number[];
  /** An open pane in the next column, with this in it. */
  open?: string;
  height?: number;
  say(column: number): string;
}

export function panesScene(given: Pick<PanesProps, "panes" | "columns" | "chosen" | "marked" | "open" | "height">, look: Theme): Scene {
  const { panes, columns, chosen, marked = [], open, height = 54 } = given;
  const inks = INKS[look];
  const shapes: Shape[] = [];
  const last = columns.edges[panes.length];
  panes.forEach((each, at) => {
    const gap = widthOf(columns, at) > 12 ? 2 : 0;
    shapes.push(...paneShapes(each, columns.edges[at] + gap, 0, widthOf(columns, at) - 2 * gap, height, look));
  });
  if (chosen !== undefined && chosen >= 0 && chosen < panes.length) {
    const [x, w] = [columns.edges[chosen], widthOf(columns, chosen)];
    shapes.push({ kind: "rect", x: x + 1, y: height + 4, w: Math.max(2, w - 2), h: 3, fill: css(inks.ink) });
  }
  for (const at of marked) {
    if (at >= panes.length) continue;
    const [x, w] = [columns.edges[at], widthOf(columns, at)];
    shapes.push({ kind: "rect", x: x + 0.5, y: -1.5, w: Math.max(2, w - 1), h: height + 3, stroke: css(inks.ink), width: 3 });
  }
  let width = last;
  if (open !== undefined) {
    const w = Math.min(40, Math.max(26, last / Math.max(1, panes.length) - 4));
    shapes.push({ kind: "rect", x: last + 2.5, y: 0.5, w: w - 1, h: height - 1, stroke: css(inks.soft), width: 1, dash: "3 3" });
    shapes.push({ kind: "text", x: last + 2 + w / 2, y: height / 2 + 7, text: open, size: 21, anchor: "middle", face: "serif", italic: true, fill: css(inks.soft) });
    width = last + w + 4;
  }
  return { width, height: height + 8, shapes };
}

export function Panes(props: PanesProps) {
  const { panes, columns, chosen, marked, open, height = 54, say } = props;
  const scene = useScene(() => panesScene({ panes, columns, chosen, marked, open, height }, theme.value), [panes, columns, chosen, marked, open, height]);
  const cells = oneRow(props.label, panes.length, columns.edges, height, say);
  return <Drawn {...props} scene={scene} lattice={cells} picked={chosen === undefined ? null : { row: 0, column: chosen }} />;
}

/** The letters alone, under a mark of the grid: small, the chosen one bold. */
export function lettersShapes(tokens: readonly string[], columns: Columns, y: number, chosen: number, look: Theme): Shape[] {
  const inks = INKS[look];
  const shapes: Shape[] = [];
  tokens.forEach((token, at) => {
    const letters = visible(token);
    const size = Math.min(17, (widthOf(columns, at) - 1) / (0.6 * [...letters].length));
    if (size < 8.5 && at !== chosen) return;
    shapes.push({ kind: "text", x: centre(columns, at), y, text: letters, size: Math.max(9, size), anchor: "middle", face: "serif", bold: at === chosen, fill: css(at === chosen ? inks.ink : inks.soft) });
  });
  return shapes;
}
