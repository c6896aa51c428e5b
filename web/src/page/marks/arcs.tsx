// Arcs over the sentence: who the picked token looks at, as wide as the weight, in the colour of what is looked at.

import { css, glassOf, INKS, isClear, Theme } from "./colour";
import { centre, Columns } from "./columns";
import { Common, Drawn, useScene } from "./drawn";
import { lettersShapes } from "./panes";
import { oneRow } from "./grid";
import { Numbers } from "./plain";
import { Scene, Shape } from "./scene";
import { theme } from "./theme";

export interface ArcsProps extends Common {
  tokens: readonly string[];
  columns: Columns;
  /** Weights [time × source], row-major. */
  weights: Numbers;
  /** The row whose arcs are strong. */
  row: number;
  height?: number;
  say(column: number): string;
}

const WIDEST = 16;

function arc(from: number, to: number, ground: number, tall: number): string {
  const span = Math.abs(to - from);
  if (span < 1) return `M${from - 7} ${ground}C${from - 12} ${ground - tall * 1.25} ${from + 12} ${ground - tall * 1.25} ${from + 7} ${ground}`;
  return `M${from} ${ground}C${from} ${ground - tall * 1.33} ${to} ${ground - tall * 1.33} ${to} ${ground}`;
}

export function arcsScene(given: Pick<ArcsProps, "tokens" | "columns" | "weights" | "row" | "height">, look: Theme): Scene {
  const { tokens, columns, weights, row, height = 130 } = given;
  const inks = INKS[look];
  const count = tokens.length;
  const ground = height - 24;
  const right = columns.edges[count];
  const tall = (from: number, to: number) => 16 + (Math.abs(to - from) / Math.max(1, right)) ** 0.72 * (ground - 24);
  const glass = (source: number) => css(isClear(tokens[source]) ? inks.clear : glassOf(tokens[source], look));
  const strokes = (time: number, source: number, faint: boolean): Shape[] => {
    const weight = weights[time * count + source];
    if (!(weight > (faint ? 0.18 : 0.004))) return [];
    const [from, to] = [centre(columns, source), centre(columns, time)];
    const d = arc(from, to, ground, source === time ? 26 : tall(from, to));
    if (faint) return [{ kind: "path", d, stroke: glass(source), width: 0.6 + weight * 0.9, opacity: 0.3 }];
    const wide = Math.max(0.7, weight * WIDEST);
    return [
      ...(wide > 3 ? [{ kind: "path", d, stroke: css(look === "dark" ? inks.ground : inks.leading), width: wide + 1.6 } as Shape] : []),
      { kind: "path", d, stroke: glass(source), width: wide, opacity: wide > 3 ? 1 : 0.85 },
    ];
  };
  const shapes: Shape[] = [];
  if (count <= 128) for (let time = 0; time < count; time++) if (time !== row) for (let source = 0; source < count; source++) if (source !== time) shapes.push(...strokes(time, source, true));
  const strong = Array.from({ length: count }, (_, source) => source).sort((one, other) => weights[row * count + one] - weights[row * count + other]);
  for (const source of strong) shapes.push(...strokes(row, source, false));
  shapes.push({ kind: "rect", x: 0, y: ground, w: right, h: 1, fill: css(inks.leading) });
  shapes.push(...lettersShapes(tokens, columns, height - 6, row, look));
  return { width: right, height, shapes };
}

export function Arcs(props: ArcsProps) {
  const { tokens, columns, weights, row, height = 130, say } = props;
  const scene = useScene(() => arcsScene({ tokens, columns, weights, row, height }, theme.value), [tokens, columns, weights, row, height]);
  const cells = oneRow(props.label, tokens.length, columns.edges, height, say);
  return <Drawn {...props} scene={scene} lattice={cells} picked={{ row: 0, column: row }} />;
}

