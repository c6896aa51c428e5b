// How a model learned: its losses by step beside tables of n-grams, and under each step that can be chosen what it says next.
// Every step has a column as wide as the others; between two of them the axis is logarithmic.

import { css, INKS, Theme } from "./colour";
import { Common, Drawn } from "./drawn";
import { oneRow } from "./grid";
import { Pane, paneShapes } from "./panes";
import { ticks } from "./plain";
import { Scene, Shape, Text } from "./scene";
import { theme } from "./theme";
import { number } from "../words";

export type Curve = readonly (readonly [step: number, loss: number])[];

export interface LearningProps extends Common {
  stops: readonly number[];
  /** Their names are written beside them. */
  training: { name: string; curve: Curve };
  validation: { name: string; curve: Curve };
  /** Losses of tables, with their names. */
  lines: readonly { name: string; loss: number }[];
  /** Under each stop: the likeliest token as strong as its probability, and numbers as texts; null while they are computed. */
  said: readonly ({ pane: Pane; notes: string[] } | null)[];
  chosen: number;
  width: number;
  height: number;
  say(stop: number): string;
}

/** Room for the numbers of the axis, between curves and panes, and what a pane and a note are high. */
const [LEFT, BETWEEN, PANE, NOTE] = [34, 30, 44, 21];
/** A column that is narrower has no numbers under its pane. */
const LEAST_NOTED = 34;
const LEAST_NAMED = 560;

/** The borders of the columns; at the right of a wide mark there is room for the names of the lines. */
export const columnsOf = (count: number, width: number): number[] =>
  Array.from({ length: count + 1 }, (_, at) => LEFT + (at * (width - LEFT - (width < LEAST_NAMED ? 0 : 92))) / count);

/** Where a step lies among the stops: 2.5 is half way between the third and the fourth. */
function placeOf(stops: readonly number[], step: number): number {
  const after = stops.findIndex((each) => each >= step);
  if (after <= 0) return 0;
  const [from, to] = [Math.max(stops[after - 1], 0.5), stops[after]];
  return after - 1 + Math.log(Math.max(step, from) / from) / Math.log(to / from);
}

function sceneOf({ stops, training, validation, lines, said, chosen, width, height }: LearningProps, look: Theme): Scene {
  const { ink, soft, hair, clear } = INKS[look];
  const edges = columnsOf(stops.length, width);
  const [wide, right] = [edges[1] - edges[0], edges[stops.length]];
  const [thin, thick] = [training, validation].map(({ curve }) => curve.filter(([step, loss]) => step <= stops[stops.length - 1] && Number.isFinite(loss)));
  const losses = [...thin.map(([, loss]) => loss), ...thick.map(([, loss]) => loss), ...lines.map(({ loss }) => loss)];
  const [low, high] = [Math.min(...losses) - 0.1, Math.max(...losses) + 0.1];
  const x = (step: number) => edges[0] + wide * (placeOf(stops, step) + 0.5);
  const y = (loss: number) => ((high - loss) / (high - low)) * height;
  const shapes: Shape[] = [{ kind: "rect", x: edges[chosen], y: 0, w: wide, h: height + BETWEEN, fill: css(hair), opacity: 0.55 }];
  const text = (x: number, y: number, text: string, more?: Partial<Text>) => shapes.push({ kind: "text", x, y, text, size: 13, fill: css(soft), ...more });
  for (const each of ticks(high, height / 60)) {
    if (each < low) continue;
    shapes.push({ kind: "rect", x: edges[0], y: y(each), w: right - edges[0], h: 1, fill: css(hair) });
    text(LEFT - 8, y(each) + 4, number(each, 1), { anchor: "end" });
  }
  let under = -Infinity;
  for (const { name, loss } of [...lines].sort((one, other) => other.loss - one.loss)) {
    shapes.push({ kind: "path", d: `M${edges[0]} ${y(loss)}H${right}`, stroke: css(soft), width: 1, dash: "2 4" });
    if (width >= LEAST_NAMED) text(right + 10, (under = Math.max(y(loss) + 4, under + 15)), name);
    else if (y(loss) > under + 12) text(edges[0] + 2, (under = y(loss)) - 4, name, { size: 11.5 });
  }
  const draw = (curve: Curve, stroke: string, width: number) => shapes.push({ kind: "path", d: curve.map(([step, loss], at) => `${at ? "L" : "M"}${x(step)} ${y(loss)}`).join(""), stroke, width });
  if (thin.length) {
    draw(thin, css(clear), 1.5);
    text(x(thin[0][0]), y(thin[0][1]) + 20, training.name);
  }
  if (thick.length) {
    draw(thick, css(ink), 2.5);
    for (const [step, loss] of thick) shapes.push({ kind: "rect", x: x(step) - 3, y: y(loss) - 3, w: 6, h: 6, radius: 3, fill: css(ink) });
    text(Math.min(x(thick[0][0]) + 10, right - 70), y(thick[0][1]) - 10, validation.name, { fill: css(ink) });
  }
  const top = height + BETWEEN;
  const gap = wide > 26 ? 2 : 0.5;
  stops.forEach((step, at) => {
    const [left, w, told, is] = [edges[at] + gap, wide - 2 * gap, said[at], at === chosen];
    const label = (y: number, words: string) => text(edges[at] + wide / 2, y, words, { anchor: "middle", bold: is, size: wide < LEAST_NOTED ? 11 : 13, fill: css(is ? ink : soft) });
    label(height + 19, step < 1000 ? String(step) : `${number(step / 1000, step < 10_000 ? 1 : 0)}k`);
    if (told) shapes.push(...paneShapes(told.pane, left, top, w, PANE, look));
    else shapes.push({ kind: "rect", x: left + 0.5, y: top + 0.5, w: w - 1, h: PANE - 1, stroke: css(hair) });
    if (is) shapes.push({ kind: "rect", x: left, y: top + PANE + 4, w, h: 3, fill: css(ink) });
    if (wide >= LEAST_NOTED) told?.notes.forEach((note, row) => label(top + PANE + 26 + NOTE * row, note));
  });
  return { width, height: top + PANE + 10 + (wide < LEAST_NOTED ? 0 : 2 * NOTE), shapes };
}

export function Learning(props: LearningProps) {
  const { stops, chosen, width, label, say } = props;
  const scene = sceneOf(props, theme.value);
  const cells = oneRow(label, stops.length, columnsOf(stops.length, width), scene.height, say);
  return <Drawn {...props} picked={{ row: 0, column: chosen }} scene={scene} lattice={cells} />;
}
