// Two readers: what one gains over the other, token by token, and both on the ruler of the tables that count.

import { css, INKS, Theme } from "./colour";
import { centre, Columns } from "./columns";
import { Common, Drawn, useScene } from "./drawn";
import { thickness } from "./bars";
import { oneRow } from "./grid";
import { Numbers } from "./plain";
import { Scene, Shape } from "./scene";
import { theme } from "./theme";
import { number } from "../words";

export interface GainedProps extends Common {
  columns: Columns;
  /** Nats of each token; NaN where there are none. */
  values: Numbers;
  /** Pixels of a nat. */
  scale: number;
  say(column: number): string;
}

const least = (values: Numbers): number => Array.from(values).reduce((most, each) => (each < most ? each : most), 0);
const greatest = (values: Numbers): number => Array.from(values).reduce((most, each) => (each > most ? each : most), 0);

/** Bars up from a line where there is a gain, down where there is a loss. */
export function gainedScene({ columns, values, scale }: Pick<GainedProps, "columns" | "values" | "scale">, look: Theme): Scene {
  const inks = INKS[look];
  const middle = greatest(values) * scale + 2;
  const [right, height] = [columns.edges[values.length], middle + Math.max(10, -least(values) * scale) + 2];
  const shapes: Shape[] = [{ kind: "rect", x: 0, y: middle - 0.5, w: right, h: 1, fill: css(inks.minus) }];
  for (let at = 0; at < values.length; at++) {
    if (!Number.isFinite(values[at])) continue;
    const [thick, tall] = [thickness(columns, at), Math.max(1, Math.abs(values[at]) * scale)];
    const isGain = values[at] > 0;
    shapes.push({ kind: "rect", x: centre(columns, at) - thick / 2, y: isGain ? middle - tall : middle, w: thick, h: tall, fill: css(isGain ? inks.ink : inks.clear) });
  }
  return { width: right, height, shapes };
}

export function Gained(props: GainedProps) {
  const { columns, values, scale, say } = props;
  const scene = useScene(() => gainedScene({ columns, values, scale }, theme.value), [columns, values, scale]);
  const cells = oneRow(props.label, values.length, columns.edges, scene.height, say);
  return <Drawn {...props} scene={scene} lattice={cells} />;
}

/** A loss with its name; those of models stand above the ruler. */
export interface Mark { name: string; value: number; isModel: boolean }

export interface RulerProps extends Common {
  marks: readonly Mark[];
  width: number;
  /** At the right end: which way is better. */
  better: string;
}

const [AXIS, RISE, LETTER] = [62, 14, 6.9];

/** Places near those that are wished for, in rising order, so that none overlaps the next. */
function apart(wishes: readonly number[], widths: readonly number[], room: number): number[] {
  const places = [...wishes];
  const gap = (at: number) => (widths[at - 1] + widths[at]) / 2 + 10;
  for (let at = 0; at < places.length; at++) places[at] = Math.max(places[at], at ? places[at - 1] + gap(at) : widths[0] / 2);
  for (let at = places.length - 1; at >= 0; at--) places[at] = Math.min(places[at], at === places.length - 1 ? room - widths[at] / 2 : places[at + 1] - gap(at + 1));
  return places;
}

/** Losses on a line from the smallest to the largest: a model's name above, a table's below. */
export function rulerScene({ marks, width, better }: Pick<RulerProps, "marks" | "width" | "better">, look: Theme): Scene {
  const inks = INKS[look];
  const all = marks.map(({ value }) => value);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const inset = 40;
  const across = (value: number) => inset + ((value - low) / (high - low || 1)) * (width - 2 * inset);
  const shapes: Shape[] = [{ kind: "rect", x: 0, y: AXIS - 0.5, w: width, h: 1, fill: css(inks.minus) }];
  shapes.push({ kind: "text", x: width, y: AXIS - 8, text: better, size: 12.5, anchor: "end", italic: true, fill: css(inks.soft) });
  for (const isModel of [true, false]) {
    const own = marks.filter((each) => each.isModel === isModel).sort((one, other) => one.value - other.value);
    const wide = own.map(({ name }) => LETTER * (isModel ? 1.08 : 1) * Math.max(5, name.length));
    const way = isModel ? -1 : 1;
    apart(own.map(({ value }) => across(value)), wide, width).forEach((x, at) => {
      const [from, { name, value }] = [across(own[at].value), own[at]];
      const ink = css(isModel ? inks.ink : inks.soft);
      const y = AXIS + way * RISE;
      shapes.push({ kind: "path", d: `M${from} ${AXIS}V${AXIS + way * 5}L${x} ${y}`, stroke: ink, width: isModel ? 1.5 : 1 });
      if (isModel) shapes.push({ kind: "path", d: `M${from - 5} ${AXIS - 8}L${from + 5} ${AXIS - 8}L${from} ${AXIS}Z`, fill: ink });
      shapes.push({ kind: "text", x, y: isModel ? y - 22 : y + 15, text: name, size: 13, anchor: "middle", bold: isModel, fill: ink });
      shapes.push({ kind: "text", x, y: isModel ? y - 6 : y + 32, text: number(value, 3), size: 13, anchor: "middle", bold: isModel, fill: ink });
    });
  }
  return { width, height: AXIS + RISE + 38, shapes };
}

export function Ruler(props: RulerProps) {
  const { marks, width, better } = props;
  const scene = useScene(() => rulerScene({ marks, width, better }, theme.value), [marks, width, better]);
  return <Drawn {...props} scene={scene} />;
}
