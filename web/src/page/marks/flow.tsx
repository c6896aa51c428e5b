// The whole computation as one picture. Rows of panes are the stream after every half-layer; at the right the chosen token's own
// stream, made of threads: the embedding, and beside it what every half-layer writes, each as wide as it is long. A thread that
// attention brings comes as a ribbon from the pane that was looked at, in its colour; feed-forward works on one pane alone, a lens.

import { blend, css, glassOf, inkOn, INKS, isClear, Rgb, Theme, visible } from "./colour";
import { centre, Columns, widthOf } from "./columns";
import { Common, Drawn, useScene } from "./drawn";
import { strips } from "./glass";
import { Lattice, Spot } from "./grid";
import { paneShapes } from "./panes";
import { Numbers } from "./plain";
import { Scene, Shape } from "./scene";
import { theme } from "./theme";

/** The stream after a half-layer. */
export interface FlowRow {
  name: string;
  /** Vectors [time × d]. */
  vectors: Numbers;
  /** The token that the chosen stream would name here. */
  says?: { token: string; probability: number; text: string };
}

/** What is written between two rows. */
export interface FlowPart {
  kind: "attention" | "feed-forward";
  /** The length of what is added to the chosen stream. */
  length: number;
  /** How attention shares its length out over the sources of the chosen token; they sum to 1. */
  weights?: Numbers;
  /** The same for all tokens [time × time], for the faint web behind. */
  links?: Numbers;
  off?: boolean;
}

export interface FlowProps extends Common {
  tokens: readonly string[];
  columns: Columns;
  chosen: number;
  rows: readonly FlowRow[];
  /** One fewer than rows. */
  parts: readonly FlowPart[];
  /** The length of the chosen token's embedding. */
  start: number;
  /** An order of the dimensions of all panes. */
  order?: Numbers;
  /** The width of the lane at the right, and of what is right of it. */
  lane?: number;
  margin?: number;
  /** Names of the rows above them, where there is no room at the left. */
  named?: boolean;
  say(spot: Spot): string;
}

export interface FlowPlaces { tops: number[]; tall: number; bottom: number }

/** Where the rows lie: attention needs room for its ribbons, feed-forward less. */
export function flowPlaces(parts: readonly FlowPart[], columns: Columns, named = false): FlowPlaces {
  const typical = columns.edges[columns.edges.length - 1] / Math.max(1, columns.edges.length - 1);
  const tall = Math.round(Math.min(34, Math.max(12, (typical - 4) * 0.78)));
  const many = parts.length > 16;
  const tops = [named ? NAME : 0];
  for (const part of parts) tops.push(tops[tops.length - 1] + tall + (part.kind === "attention" ? (many ? 44 : 78) : many ? 18 : 32));
  return { tops, tall, bottom: tops[tops.length - 1] + tall };
}

/** Room for the name of a row above it. */
const NAME = 15;

const sweep = (x0: number, y0: number, x1: number, y1: number) => {
  const fall = y1 - y0;
  return `M${x0.toFixed(1)} ${y0.toFixed(1)}C${x0.toFixed(1)} ${(y0 + fall * 0.82).toFixed(1)} ${x1.toFixed(1)} ${(y0 + fall * 0.1).toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}`;
};

interface Thread { from: number; left: number; wide: number; colour: Rgb; faint?: boolean }

/** Threads of the lane and the ribbons that bring them. */
function threads(given: Pick<FlowProps, "tokens" | "columns" | "chosen" | "parts" | "start">, places: FlowPlaces, x: number, lane: number, look: Theme) {
  const { tokens, columns, chosen, parts, start } = given;
  const inks = INKS[look];
  const lead = look === "dark" ? inks.ground : inks.leading;
  const glass = (at: number) => (isClear(tokens[at]) ? inks.clear : glassOf(tokens[at], look));
  const size = (part: FlowPart) => (Number.isFinite(part.length) ? part.length : 0);
  const total = start + parts.reduce((sum, part) => sum + size(part), 0) || 1;
  const unit = lane / total;
  const own = glass(chosen);
  const brought = parts.reduce((sum, part) => sum + (part.kind === "attention" ? size(part) : 0), 0) * unit;
  let [left, right] = [x + brought, x + brought + start * unit];
  const made: Thread[] = [{ from: 0, left, wide: start * unit, colour: own }];
  const ribbons: Shape[] = [];
  const lenses: Shape[] = [];
  parts.forEach((part, at) => {
    const [above, below] = [places.tops[at] + places.tall, places.tops[at + 1]];
    const wide = size(part) * unit;
    if (part.kind === "attention" && part.weights) {
      left -= wide;
      let place = left;
      for (let source = 0; source < tokens.length; source++) {
        const own = wide * part.weights[source];
        if (!(own > 0.02)) continue;
        made.push({ from: at + 1, left: place, wide: own, colour: glass(source) });
        const d = sweep(centre(columns, source), above + 1, place + own / 2, below + places.tall / 2);
        if (own > 1.6) ribbons.push({ kind: "path", d, stroke: css(lead), width: own + 1.5 });
        ribbons.push({ kind: "path", d, stroke: css(glass(source)), width: Math.max(0.5, own), opacity: own > 1.6 ? 1 : 0.75 });
        place += own;
      }
    } else {
      const pale = blend(inks.ground, own, 0.5);
      if (part.kind === "attention") {
        left -= wide;
        made.push({ from: at + 1, left, wide, colour: pale, faint: true });
        return;
      }
      made.push({ from: at + 1, left: right, wide, colour: pale, faint: true });
      const middle = (above + below) / 2;
      const out = Math.max(3, Math.min(lane < 60 ? 18 : 46, wide * 1.25));
      const half = Math.max(7, Math.min((below - above) / 2 + places.tall * 0.5, wide * 0.9 + 6));
      lenses.push({
        kind: "path", d: `M${right} ${middle - half}C${right + out * 1.3} ${middle - half * 0.5} ${right + out * 1.3} ${middle + half * 0.5} ${right} ${middle + half}z`,
        fill: css(part.off ? inks.ground : blend(inks.ground, own, 0.82)), stroke: css(inks.leading), width: 1, ...(part.off ? { dash: "2 2" } : {}),
      });
      right += wide;
    }
  });
  return { made, ribbons, lenses, left, right };
}

export function flowScene(given: Omit<FlowProps, keyof Common | "say">, look: Theme): Scene {
  const { tokens, columns, chosen, rows, parts, order, lane = 104, margin = 104, named } = given;
  const inks = INKS[look];
  const places = flowPlaces(parts, columns, named);
  const count = tokens.length;
  const right = columns.edges[count];
  const [before, after] = lane < 60 ? [12, 24] : [22, 34];
  const laneX = right + before;
  const shapes: Shape[] = [];
  const glass = (at: number) => css(isClear(tokens[at]) ? inks.clear : glassOf(tokens[at], look));
  // The quiet web: each token's stream, and who else looks where.
  const downs: string[] = [];
  for (let at = 0; at < count; at++) downs.push(`M${centre(columns, at).toFixed(1)} ${places.tops[0] + places.tall}V${places.tops[rows.length - 1]}`);
  shapes.push({ kind: "path", d: downs.join(""), stroke: css(inks.hair), width: 1 });
  if (count <= 128) parts.forEach((part, at) => {
    if (!part.links) return;
    const [y0, y1] = [places.tops[at] + places.tall, places.tops[at + 1]];
    for (let source = 0; source < count; source++) {
      const strands: string[] = [];
      for (let time = 0; time < count; time++) {
        if (time === source || time === chosen || !(part.links[time * count + source] > 0.24)) continue;
        const [x0, x1, middle] = [centre(columns, source), centre(columns, time), (y0 + y1) / 2];
        strands.push(`M${x0.toFixed(1)} ${y0}C${x0.toFixed(1)} ${middle} ${x1.toFixed(1)} ${middle} ${x1.toFixed(1)} ${y1}`);
      }
      if (strands.length) shapes.push({ kind: "path", d: strands.join(""), stroke: glass(source), width: 1, opacity: 0.34 });
    }
  });
  // Panes, as bright as they are looked at next.
  const gap = right / Math.max(1, count) > 12 ? 3 : 0;
  const outlines: Shape[] = [];
  rows.forEach((row, at) => {
    const next = parts[at]?.weights;
    const light = (time: number) => (time === chosen ? 1 : Math.min(1, (look === "dark" ? 0.55 : 0.4) + 0.75 * Math.sqrt(next?.[time] ?? 0)));
    const made = strips(row.vectors, tokens, light, order, look);
    shapes.push({ kind: "cells", x: 0, y: places.tops[at], w: right, h: places.tall, columns: made.columns, rows: made.rows, pixels: made.pixels, edges: columns.edges, group: made.group, inset: gap });
    if (gap) for (let time = 0; time < count; time++) {
      const [x, w] = [columns.edges[time] + gap, widthOf(columns, time) - 2 * gap];
      const bright = light(time);
      outlines.push({ kind: "rect", x, y: places.tops[at] + 0.5, w, h: places.tall - 1, stroke: css(time === chosen ? inks.ink : blend(inks.hair, inks.leading, Math.max(0, bright - 0.35))), width: time === chosen ? 2 : 1 });
    }
  });
  shapes.push(...outlines);
  // The lane.
  const { made, ribbons, lenses, left, right: end } = threads(given, places, laneX, lane, look);
  const foot = places.bottom + 8;
  for (const { from, left: x, wide, colour } of made) {
    const y = from ? places.tops[from] + places.tall / 2 : places.tops[0];
    shapes.push({ kind: "rect", x, y, w: wide, h: foot - y, fill: css(colour) });
  }
  for (const { from, left: x, wide, faint } of made) {
    if (wide < 2.2) continue;
    const y = from ? places.tops[from] + places.tall / 2 : places.tops[0];
    shapes.push({ kind: "path", d: `M${x.toFixed(1)} ${y}V${foot}M${(x + wide).toFixed(1)} ${y}V${foot}`, stroke: css(look === "dark" ? inks.ground : inks.leading), width: faint ? 0.6 : 0.9 });
  }
  shapes.push(...ribbons, ...lenses);
  const [embedding] = made;
  const letters = visible(tokens[chosen]);
  const size = Math.min(17, (embedding.wide - 2) / (0.62 * [...letters].length));
  if (size > 8) shapes.push({ kind: "text", x: embedding.left + embedding.wide / 2, y: places.tops[0] + places.tall / 2 + size * 0.34, text: letters, size, anchor: "middle", face: "serif", fill: css(inkOn(embedding.colour)) });
  shapes.push({ kind: "rect", x: left, y: foot, w: end - left, h: 2, fill: css(inks.leading) });
  if (named) rows.forEach(({ name }, at) => shapes.push(
    { kind: "rect", x: 0, y: places.tops[at] - NAME, w: 6.4 * name.length + 6, h: NAME - 1, fill: css(inks.ground) },
    { kind: "text", x: 0, y: places.tops[at] - 4, text: name, size: 11.5, fill: css(inks.soft) },
  ));
  // What it would say at each row.
  rows.forEach((row, at) => {
    if (!row.says || margin < 20) return;
    const last = at === rows.length - 1;
    const side = last ? Math.min(margin < 60 ? 24 : 38, places.tall + 10) : Math.min(margin < 60 ? 22 : 28, Math.max(20, places.tall));
    const x = laneX + lane + after;
    const y = places.tops[at] + places.tall / 2 - side / 2;
    const wide = Math.max(side, Math.min(64, [...row.says.token].length * 10 + 10));
    shapes.push(...paneShapes({ token: row.says.token, strength: 0.15 + 0.85 * row.says.probability }, x, y, wide, side, look));
    if (margin > 84) shapes.push({ kind: "text", x: x + wide + 8, y: y + side / 2 + 4.5, text: row.says.text, size: 13, bold: last, fill: css(last ? inks.ink : inks.soft) });
  });
  return { width: laneX + lane + after + margin, height: foot + 6, shapes };
}

export function Flow(props: FlowProps) {
  const { tokens, columns, chosen, rows, parts, start, order, lane, margin, named, say } = props;
  const scene = useScene(() => flowScene({ tokens, columns, chosen, rows, parts, start, order, lane, margin, named }, theme.value), [tokens, columns, chosen, rows, parts, start, order, lane, margin, named]);
  const places = flowPlaces(parts, columns, named);
  const cells: Lattice = {
    rows: rows.length, columns: tokens.length, rowName: (row) => rows[row].name, say,
    at: (x, y) => {
      let row = 0;
      while (row < rows.length - 1 && places.tops[row + 1] <= y) row++;
      if (y > places.tops[row] + places.tall + 6 || x >= columns.edges[tokens.length] || x < 0) return null;
      let column = 0;
      while (columns.edges[column + 1] <= x) column++;
      return { row, column };
    },
    box: ({ row, column }) => ({ x: columns.edges[column], y: places.tops[row], w: widthOf(columns, column), h: places.tall }),
  };
  return <Drawn {...props} scene={scene} lattice={cells} />;
}
