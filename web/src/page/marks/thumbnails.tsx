// All heads at once, each a small map; a row picked out in all of them alike, as fast as a slider moves.

import { useLayoutEffect, useMemo, useRef } from "preact/hooks";
import { css, INKS, Theme } from "./colour";
import { Common, Drawn, surfaceOf, useScene } from "./drawn";
import { glaze, pooled, strengths } from "./glass";
import { Lattice, Spot } from "./grid";
import { Numbers } from "./plain";
import { paintShapes, raster, Scene, Shape } from "./scene";
import { fineness, theme } from "./theme";

export interface Thumbnail { values: Numbers; name: string; kind?: string; off?: boolean }

export interface ThumbnailsProps extends Common {
  /** Maps [time × time] or small ones, a list for each block. */
  maps: readonly (readonly Thumbnail[])[];
  tokens: readonly string[];
  kind: "share" | "signed";
  width: number;
  /** The row that stays bright; all if absent. */
  row?: number;
  say(spot: Spot): string;
}

/** The most cells of a side, as many as of a server's small maps; a longer sentence is pooled, the largest of each patch. */
const MOST_CELLS = 64;

interface Layout { across: number; side: number; cell: number; stepX: number; stepY: number; lines: number; named: boolean }

function layOut(maps: ThumbnailsProps["maps"], width: number): Layout {
  const most = Math.max(1, ...maps.map((each) => each.length));
  const across = Math.min(most, Math.max(3, Math.floor(width / 62)));
  const cell = Math.min(148, width / across);
  const side = Math.floor(Math.min(cell - (cell > 80 ? 18 : 8), 124));
  const named = side >= 56;
  return { across, side, cell, stepX: cell, stepY: side + (named ? 36 : 10), lines: Math.ceil(most / across), named };
}

/** Where a map lies. */
const placeOf = (layout: Layout, { row, column }: Spot) => ({
  x: (column % layout.across) * layout.stepX + 4,
  y: (row * layout.lines + Math.floor(column / layout.across)) * layout.stepY + 4,
});

/** How strong the rows are that are not picked out. */
const DIM = 0.32;

/** The strengths with all rows dim but one. */
function dimmed(given: Float32Array, side: number, row: number): Float32Array {
  const made = new Float32Array(given.length);
  for (let at = 0; at < given.length; at++) made[at] = given[at] < -1 || Math.floor(at / side) === row ? given[at] : given[at] * DIM;
  return made;
}

/** A canvas of this size, empty, to be drawn on in whole cells. */
function cleared(canvas: HTMLCanvasElement, width: number, height: number, scale: number): CanvasRenderingContext2D {
  const [wide, tall] = [Math.round(width * scale), Math.round(height * scale)];
  const context = canvas.getContext("2d")!;
  context.setTransform(1, 0, 0, 1, 0, 0);
  // A canvas of another size is empty. On paper, where it is that, what clears one canvas would hide those beneath.
  if (canvas.width === wide && canvas.height === tall) context.clearRect(0, 0, wide, tall);
  else [canvas.width, canvas.height] = [wide, tall];
  context.imageSmoothingEnabled = false;
  context.setTransform(scale, 0, 0, scale, 0, 0);
  return context;
}

function labels(maps: ThumbnailsProps["maps"], layout: Layout, picked: Spot | null | undefined, look: Theme): Shape[] {
  const inks = INKS[look];
  const shapes: Shape[] = [];
  maps.forEach((heads, row) => heads.forEach((map, column) => {
    const { x, y } = placeOf(layout, { row, column });
    const chosen = picked?.row === row && picked.column === column;
    if (layout.named) shapes.push({ kind: "text", x: x + 1, y: y + layout.side + 16, text: map.kind && layout.side > 84 ? `${map.name} ${map.kind}` : map.name, size: 12, bold: chosen, fill: css(chosen ? inks.ink : inks.soft), opacity: map.off ? 0.55 : 1 });
    if (map.off) shapes.push({ kind: "path", d: `M${x} ${y}L${x + layout.side} ${y + layout.side}M${x + layout.side} ${y}L${x} ${y + layout.side}`, stroke: css(inks.soft), width: 1 });
    if (chosen) shapes.push({ kind: "rect", x: x - 3.5, y: y - 3.5, w: layout.side + 7, h: layout.side + (layout.named ? 27 : 7), stroke: css(inks.ink), width: 1.75 });
  }));
  return shapes;
}

export function Thumbnails(props: ThumbnailsProps) {
  const { maps, tokens, kind, width, row, picked, say } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const over = useRef<HTMLCanvasElement>(null);
  const count = tokens.length;
  const side = Math.min(count, MOST_CELLS);
  const layout = useMemo(() => layOut(maps, width), [maps, width]);
  // By its numbers, so that the same spot is not drawn again.
  const [pickedRow, pickedColumn] = [picked?.row ?? -1, picked?.column ?? -1];
  // Of a pooled map a column has the glass of its first token.
  const glass = useScene(() => Array.from({ length: side }, (_, at) => tokens[Math.ceil((at * count) / side)]), [tokens, side, count]);
  const small = useScene(() => maps.map((heads) => heads.map((map) => pooled(strengths(map.values, kind), Math.sqrt(map.values.length), side))), [maps, kind, side]);
  const height = maps.length * layout.lines * layout.stepY + 6;
  const focus = row === undefined ? undefined : Math.floor((row * side) / Math.max(1, count));
  const scene: Scene = { width, height, shapes: [] };
  const shown = (given: Float32Array) => (focus === undefined ? given : dimmed(given, side, focus));
  Object.defineProperty(scene, "shapes", {
    enumerable: true,
    get: (): Shape[] => [
      ...small.flatMap((heads, block) => heads.map((map, head): Shape => {
        const { x, y } = placeOf(layout, { row: block, column: head });
        return { kind: "cells", x, y, w: layout.side, h: layout.side, columns: side, rows: side, pixels: glaze(shown(map), side, side, glass, theme.value) };
      })),
      ...labels(maps, layout, picked, theme.value),
    ],
  });
  const sheet = useRef<HTMLCanvasElement | null>(null);
  const heads = Math.max(1, ...small.map((each) => each.length));
  const isDim = focus !== undefined;
  // All maps, dim where one row is picked out.
  useLayoutEffect(() => {
    const context = cleared(canvas.current!, width, height, fineness.value);
    const atlas = new Uint32Array(side * side * heads * small.length);
    small.forEach((each, block) => each.forEach((map, head) => {
      const at = (block * heads + head) * side * side;
      glaze(map, side, side, glass, theme.value, atlas.subarray(at, at + side * side));
    }));
    sheet.current = side ? raster(atlas, side, side * heads * small.length) : null;
    small.forEach((each, block) => each.forEach((_, head) => {
      const { x, y } = placeOf(layout, { row: block, column: head });
      context.globalAlpha = (maps[block][head].off ? 0.35 : 1) * (isDim ? DIM : 1);
      if (sheet.current) context.drawImage(sheet.current, 0, (block * heads + head) * side, side, side, x, y, layout.side, layout.side);
    }));
    context.globalAlpha = 1;
    paintShapes(context, labels(maps, layout, { row: pickedRow, column: pickedColumn }, theme.value));
  }, [small, side, heads, width, height, layout, isDim, pickedRow, pickedColumn, theme.value, fineness.value, maps, glass]);
  // The row that is picked out, over them: all that is drawn when a slider moves.
  useLayoutEffect(() => {
    const context = cleared(over.current!, width, height, fineness.value);
    if (focus === undefined || !sheet.current) return;
    const tall = layout.side / side;
    small.forEach((each, block) => each.forEach((_, head) => {
      const { x, y } = placeOf(layout, { row: block, column: head });
      if (!maps[block][head].off) context.drawImage(sheet.current!, 0, (block * heads + head) * side + focus, side, 1, x, y + focus * tall, layout.side, tall);
    }));
  }, [small, side, heads, width, height, layout, focus, theme.value, fineness.value, maps, glass]);
  const cells: Lattice = {
    rows: maps.length, columns: Math.max(0, ...maps.map((each) => each.length)), say, rowName: (block) => maps[block][0]?.name.split(".")[0] ?? "",
    missing: ({ row: block, column }) => !maps[block]?.[column],
    at: (x, y) => {
      const line = Math.floor((y - 2) / layout.stepY);
      const spot = { row: Math.floor(line / layout.lines), column: (line % layout.lines) * layout.across + Math.floor(x / layout.stepX) };
      return maps[spot.row]?.[spot.column] && x < layout.across * layout.stepX ? spot : null;
    },
    box: (spot) => {
      const { x, y } = placeOf(layout, spot);
      return { x: x - 3, y: y - 3, w: layout.side + 6, h: layout.side + 6 };
    },
  };
  return <Drawn {...props} scene={scene} lattice={cells}
    surface={<>
      {surfaceOf(canvas, width, height)}
      {surfaceOf(over, width, height, "mark-over")}
    </>} />;
}
