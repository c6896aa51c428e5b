// Bars: hanging under the sentence (surprise, with a line where counting stands), a vector unrolled, and a list with names.

import { css, glassOf, INKS, isClear, Theme } from "./colour";
import { centre, Columns, widthOf } from "./columns";
import { Common, Drawn, useScene } from "./drawn";
import { lattice, oneRow } from "./grid";
import { Numbers, reach, ticks } from "./plain";
import { Scene, Shape } from "./scene";
import { paneShapes } from "./panes";
import { theme } from "./theme";
import { number } from "../words";

// ------------------------------------------------------------------------------------------------------ under the sentence

export interface HangingProps extends Common {
  tokens: readonly string[];
  columns: Columns;
  /** A bar for each token; NaN where there is none. */
  values: Numbers;
  /** A line across the bar: what something else says. */
  lines?: Numbers;
  /** What is as long as the height: the longest bar, if absent. */
  most?: number;
  height?: number;
  unit: string;
  /** Lines of short texts beneath, one text for each token; the bold ones stand out. */
  notes?: readonly (readonly { text: string; bold?: boolean }[])[];
  say(column: number): string;
}

/** How thick the bar of a column is. */
export const thickness = (columns: Columns, at: number): number => {
  const w = widthOf(columns, at);
  return w > 12 ? Math.min(30, w * 0.62) : Math.max(1, w - 0.6);
};

/** The height of a line of notes. */
export const NOTE = 22;

export function hangingScene(given: Pick<HangingProps, "tokens" | "columns" | "values" | "lines" | "most" | "height" | "unit" | "notes">, look: Theme): Scene {
  const { tokens, columns, values, lines, height = 84, unit, notes = [] } = given;
  const inks = INKS[look];
  const most = given.most ?? Math.max(reach(values, 0.5), lines ? reach(lines, 0.5) : 0) * 1.02;
  const down = (value: number) => (Math.max(0, value) / most) * height;
  const right = columns.edges[tokens.length];
  const marks = ticks(most, 3).slice(1);
  const names = marks.map((each, at) => number(each, each % 1 ? 1 : 0) + (at === marks.length - 1 ? ` ${unit}` : ""));
  const shapes: Shape[] = marks.flatMap((each, at): Shape[] => [
    { kind: "rect", x: 0, y: down(each), w: right, h: 1, fill: css(inks.hair) },
    ...(down(each) > 9 ? [{ kind: "text", x: right + 6, y: down(each) + 4, text: names[at], size: 12, fill: css(inks.soft) } as Shape] : []),
  ]);
  tokens.forEach((token, at) => {
    const w = widthOf(columns, at);
    const thick = thickness(columns, at);
    const x = centre(columns, at) - thick / 2;
    if (!Number.isNaN(values[at]) && at < values.length) {
      const tall = Math.max(1.5, down(Math.min(values[at], most)));
      shapes.push({ kind: "rect", x, y: 0, w: thick, h: tall, fill: css(isClear(token) ? INKS[look].hair : glassOf(token, look)), ...(w > 6 ? { stroke: css(inks.leading), width: 0.75 } : {}) });
    }
    if (lines && !Number.isNaN(lines[at]) && at < lines.length) {
      const y = down(lines[at]);
      const over = w > 12 ? 3 : 0;
      shapes.push({ kind: "rect", x: x - over, y: y - 2, w: thick + 2 * over, h: 4, fill: css(inks.ground) });
      shapes.push({ kind: "rect", x: x - over, y: y - 1, w: thick + 2 * over, h: 2, fill: css(inks.ink) });
    }
  });
  const longest = notes.map((line) => line.reduce((most, { text }) => Math.max(most, text.length), 1));
  const fitting = (at: number, letters: number) => Math.min(12.5, (widthOf(columns, at) - 1) / (0.56 * letters));
  notes.forEach((line, index) => line.forEach(({ text, bold }, at) => {
    const common = fitting(at, longest[index]);
    const size = common < 7.5 ? fitting(at, text.length) : common;
    if (text && size >= 7.5) shapes.push({ kind: "text", x: centre(columns, at), y: height + 22 + index * NOTE, text, size, anchor: "middle", bold, fill: css(bold ? inks.ink : inks.soft) });
  }));
  return { width: right + 10 + 7 * Math.max(...names.map((each) => each.length)), height: height + 8 + notes.length * NOTE, shapes };
}

export function Hanging(props: HangingProps) {
  const { tokens, columns, values, lines, most, height = 84, unit, notes, say } = props;
  const scene = useScene(() => hangingScene({ tokens, columns, values, lines, most, height, unit, notes }, theme.value), [tokens, columns, values, lines, most, height, unit, notes]);
  const cells = oneRow(unit, tokens.length, columns.edges, height, say);
  return <Drawn {...props} scene={scene} lattice={cells} />;
}

// ------------------------------------------------------------------------------------------------------ a vector unrolled

export interface UnrolledProps extends Common {
  values: Numbers;
  /** The token whose glass plus has. */
  token: string;
  width: number;
  height?: number;
  /** The order of the dimensions; their own if absent. */
  order?: Numbers;
  /** The number that half the height stands for, where vectors share a scale; the largest if absent. */
  most?: number;
  /** Numbers that are drawn faintly behind. */
  faint?: Numbers;
  name(dimension: number): string;
}

/** Signed bars: colour up for plus, lead down for minus. */
export function unrolledScene(given: Pick<UnrolledProps, "values" | "token" | "width" | "height" | "order" | "most" | "faint">, look: Theme): Scene {
  const { values, token, width, height = 64, order, faint, most = reach(values) } = given;
  const inks = INKS[look];
  const wide = width / Math.max(1, values.length);
  const middle = height / 2;
  const bars = (all: Numbers, opacity?: number): Shape[] => {
    const colours: Record<"plus" | "minus", string[]> = { plus: [], minus: [] };
    for (let at = 0; at < all.length; at++) {
      const value = all[order ? order[at] : at];
      const tall = Math.min(1.2, Math.abs(value) / most) * (middle - 1);
      const thick = Math.max(0.6, wide - (wide > 3 ? 1 : 0.2));
      colours[value < 0 ? "minus" : "plus"].push(`M${(at * wide).toFixed(2)} ${middle}h${thick.toFixed(2)}v${(value < 0 ? tall : -tall).toFixed(2)}h${(-thick).toFixed(2)}z`);
    }
    return [
      { kind: "path", d: colours.plus.join(""), fill: css(glassOf(token, look)), opacity },
      { kind: "path", d: colours.minus.join(""), fill: css(inks.minus), opacity },
    ];
  };
  return { width, height, shapes: [...(faint ? bars(faint, 0.2) : []), ...bars(values), { kind: "rect", x: 0, y: middle - 0.5, w: width, h: 1, fill: css(inks.leading) }] };
}

export function Unrolled(props: UnrolledProps) {
  const { values, token, width, height = 64, order, most, faint, name } = props;
  const scene = useScene(() => unrolledScene({ values, token, width, height, order, most, faint }, theme.value), [values, token, width, height, order, most, faint]);
  const edges = Float64Array.from({ length: values.length + 1 }, (_, at) => (at * width) / values.length);
  const own = (column: number) => (order ? order[column] : column);
  const cells = oneRow(props.label, values.length, edges, height, (column) => `${name(own(column))}: ${number(values[own(column)], 4)}`);
  return <Drawn {...props} scene={scene} lattice={cells} />;
}

// ------------------------------------------------------------------------------------------------------ a list

export interface Listed { token: string; value: number; before?: string; after: string; tick?: number; faint?: boolean }

export interface BarListProps extends Common {
  rows: readonly Listed[];
  width: number;
  /** The value that fills the width. */
  most?: number;
  say(row: number): string;
}

const TALL = 30;

/** A bar for each row, its pane before it, a tick where something else stands. */
export function barListScene(given: Pick<BarListProps, "rows" | "width" | "most">, look: Theme): Scene {
  const { rows, width } = given;
  const inks = INKS[look];
  const most = given.most ?? reach(rows.flatMap(({ value, tick = 0 }) => [value, tick]));
  const widest = Math.max(1, ...rows.map((each) => [...each.token].length));
  const wide = Math.min(120, Math.max(26, 11 * widest + 12));
  const named = rows.some((each) => each.before) ? 58 : 10;
  const room = Math.max(20, width - wide - named - 62);
  const shapes: Shape[] = rows.flatMap((each, at): Shape[] => {
    const y = at * TALL;
    const start = wide + named;
    const long = Math.max(1, (Math.max(0, each.value) / most) * room);
    return [
      ...paneShapes({ token: each.token, strength: each.faint ? 0.25 : 1 }, 0, y + 2, wide, TALL - 4, look),
      ...(each.before ? [{ kind: "text", x: start - 14, y: y + 20, text: each.before, size: 13, anchor: "end", fill: css(inks.soft) } as Shape] : []),
      { kind: "rect", x: start, y: y + 6, w: long, h: TALL - 12, fill: css(glassOf(each.token, look)), stroke: css(inks.leading), width: 0.75, opacity: each.faint ? 0.3 : 1 },
      { kind: "text", x: start + Math.max(long, each.tick === undefined ? 0 : Math.min(1, Math.abs(each.tick) / most - each.value / most < 0.2 ? each.tick / most : 0) * room) + 8, y: y + 20, text: each.after, size: 13, fill: css(each.faint ? inks.soft : inks.ink) },
      ...(each.tick === undefined || Number.isNaN(each.tick) ? [] : [
        { kind: "rect", x: start + (each.tick / most) * room - 2, y: y + 2, w: 4, h: TALL - 4, fill: css(inks.ground) } as Shape,
        { kind: "rect", x: start + (each.tick / most) * room - 1, y: y + 2, w: 2, h: TALL - 4, fill: css(inks.ink) } as Shape,
      ]),
    ];
  });
  return { width, height: rows.length * TALL, shapes };
}

export function BarList(props: BarListProps) {
  const { rows, width, most, say } = props;
  const scene = useScene(() => barListScene({ rows, width, most }, theme.value), [rows, width, most]);
  const cells = lattice({ rows: rows.length, columns: 1, edges: [0, width], tall: TALL, rowName: (row) => rows[row].token, say: ({ row }) => say(row) });
  return <Drawn {...props} scene={scene} lattice={cells} />;
}
