// The lens: after every half-layer, the token that the stream would name, in that token's glass; an outline where it is right.

import { css, INKS, Theme } from "./colour";
import { Columns, widthOf } from "./columns";
import { Common, Drawn, useScene } from "./drawn";
import { lattice } from "./grid";
import { paneShapes } from "./panes";
import { Scene, Shape } from "./scene";
import { theme } from "./theme";

export interface LensCell {
  token: string;
  probability: number;
  right?: boolean;
  changed?: boolean;
  /** The token in whose glass a number is, which then is written in place of a token. */
  glass?: string;
}

export interface LensProps extends Common {
  /** A row for each half-layer. */
  rows: readonly { name: string; cells: readonly (LensCell | null)[]; note?: string }[];
  columns: Columns;
  /** What came next, under a line. */
  truth?: readonly string[];
  chosen?: number;
  tall?: number;
  /** Room for the names at the left and for notes at the right. */
  gutter?: number;
  margin?: number;
  /** The name of the line of what came next. */
  after?: string;
  say(row: number, column: number): string;
}

/** Where there is no room at the left, the name of a row stands above its cells, in so much of the row. */
const NAME = 15;

export function lensScene(given: Pick<LensProps, "rows" | "columns" | "truth" | "chosen" | "tall" | "gutter" | "margin" | "after">, look: Theme): Scene {
  const { rows, columns, truth, chosen, tall = 30, gutter = 0, margin = 0, after } = given;
  const inks = INKS[look];
  const count = columns.edges.length - 1;
  const shapes: Shape[] = [];
  const outlines: Shape[] = [];
  const above = gutter ? 0 : NAME;
  const inner = tall - above;
  rows.forEach(({ cells }, row) => cells.forEach((cell, column) => {
    if (!cell) return;
    const w = widthOf(columns, column);
    const gap = w > 12 ? 1.5 : 0;
    const [x, y] = [gutter + columns.edges[column] + gap, row * tall + above + gap];
    const [glass, ...letters] = paneShapes({ ...cell, strength: cell.glass ? cell.probability : 0.12 + 0.88 * cell.probability ** 0.8 }, x, y, w - 2 * gap, inner - 2 * gap, look);
    shapes.push({ ...glass, stroke: cell.glass && css(inks.hair) } as Shape, ...letters);
    if (cell.right && w > 5) outlines.push({ kind: "rect", x: x + 0.75, y: y + 0.75, w: w - 2 * gap - 1.5, h: inner - 2 * gap - 1.5, stroke: css(inks.leading), width: 1.5 });
    if (cell.changed && w > 5) outlines.push({ kind: "path", d: `M${x + w - 2 * gap - 8} ${y}h8v8z`, fill: css(inks.ink) });
  }));
  rows.forEach(({ name, note }, row) => {
    const y = row * tall + tall / 2 + 4.5;
    const isLast = Boolean(truth) && row === rows.length - 1;
    const look = { bold: isLast, fill: css(isLast ? inks.ink : inks.soft) };
    shapes.push(gutter ? { kind: "text", x: 0, y, text: name, size: 13, ...look } : { kind: "text", x: 0, y: row * tall + 11, text: `${name}   ${note ?? ""}`, size: 11.5, ...look });
    if (margin && note) shapes.push({ kind: "text", x: gutter + columns.edges[count] + 16, y, text: note, size: 13, ...look });
  });
  shapes.push(...outlines);
  let height = rows.length * tall;
  if (chosen !== undefined && chosen >= 0) shapes.push({ kind: "rect", x: gutter + columns.edges[chosen] - 0.5, y: 0.5, w: widthOf(columns, chosen) + 1, h: height - 1, stroke: css(inks.ink), width: 2 });
  if (truth) {
    shapes.push({ kind: "rect", x: gutter, y: height + 7, w: columns.edges[count], h: 1, fill: css(inks.leading) });
    truth.forEach((token, column) => {
      const gap = widthOf(columns, column) > 12 ? 1.5 : 0;
      if (token) shapes.push(...paneShapes({ token }, gutter + columns.edges[column] + gap, height + 15 + above, widthOf(columns, column) - 2 * gap, inner - 2 * gap, look));
    });
    if (after) shapes.push({ kind: "text", x: 0, y: gutter ? height + 15 + tall / 2 + 3 : height + 23, text: after, size: gutter ? 13 : 11.5, fill: css(inks.ink) });
    height += 15 + tall;
  }
  return { width: gutter + columns.edges[count] + 1 + margin, height, shapes };
}

export function Lens(props: LensProps) {
  const { rows, columns, truth, chosen, tall = 30, gutter = 0, margin = 0, after, say } = props;
  const scene = useScene(() => lensScene({ rows, columns, truth, chosen, tall, gutter, margin, after }, theme.value), [rows, columns, truth, chosen, tall, gutter, margin, after]);
  const cells = lattice({
    rows: rows.length, columns: columns.edges.length - 1, edges: columns.edges, left: gutter, tall, rowName: (row) => rows[row].name,
    say: ({ row, column }) => say(row, column), missing: ({ row, column }) => !rows[row].cells[column],
  });
  return <Drawn {...props} scene={scene} lattice={cells} />;
}
