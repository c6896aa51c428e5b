// One map of who looks at whom: row looks, column is looked at and lends its colour. In the page's grid, or free with zoom and pan.

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { css, INKS, Theme, visible } from "./colour";
import { Columns, widthOf } from "./columns";
import { Common, Drawn, surfaceOf, useScene } from "./drawn";
import { glaze, NONE, strengths } from "./glass";
import { lattice, Lattice, Spot } from "./grid";
import { Numbers } from "./plain";
import { paint, raster, Scene, Shape } from "./scene";
import { fineness, still, theme } from "./theme";

export interface HeatProps extends Common {
  /** Values [rows × columns], row-major; −∞ and NaN are cells that do not exist. */
  values: Numbers;
  /** The tokens of the columns, and of the rows where these are others. */
  tokens: readonly string[];
  rows?: readonly string[];
  /** A share (0 … 1, drawn by its root) or a signed number. */
  kind: "share" | "signed";
  /** The number of full strength. */
  most?: number;
  /** The page's grid; without it the map is square, as wide as `width`, and can be zoomed. */
  columns?: Columns;
  width?: number;
  /** The row that is picked out. */
  row?: number;
  /** Room for the tokens of the rows, at the left. */
  gutter?: number;
  say(spot: Spot): string;
}

const MORPH = 280;
const REST = 120;
const MOST_MORPHED = 256 * 256;
const eased = (share: number) => 1 - (1 - share) ** 3;

/** The height of a row in the page's grid: the map is never much taller than wide. */
export const rowHeight = (columns: Columns): number => {
  const count = columns.edges.length - 1;
  return Math.max(3, Math.min(22, 560 / Math.max(1, count), (columns.edges[count] / Math.max(1, count)) * 1.15));
};

type InGrid = Pick<HeatProps, "tokens" | "rows" | "columns" | "row" | "picked" | "gutter">;

function frameShapes({ tokens, rows = tokens, columns, row, picked, gutter = 0 }: InGrid & { columns: Columns }, look: Theme): Shape[] {
  const inks = INKS[look];
  const tall = rowHeight(columns);
  const right = columns.edges[tokens.length];
  const shapes: Shape[] = [];
  if (tall > 7) {
    const lines = [];
    for (let at = 1; at <= rows.length; at++) lines.push(`M${gutter} ${at * tall}h${right}`);
    for (let at = 1; at <= tokens.length; at++) if (widthOf(columns, at - 1) > 7) lines.push(`M${gutter + columns.edges[at]} 0v${tall * rows.length}`);
    shapes.push({ kind: "path", d: lines.join(""), stroke: css(inks.ground), width: 1.5 });
  }
  if (gutter) rows.forEach((token, at) => {
    const size = Math.min(15, tall * 0.8);
    if (size < 7 && at !== row) return;
    const chosen = at === row;
    shapes.push({ kind: "text", x: gutter - 12, y: at * tall + tall / 2 + size * 0.34, text: visible(token).slice(0, 14), size: Math.max(9, size), anchor: "end", face: "serif", bold: chosen, fill: css(chosen ? inks.ink : inks.soft) });
  });
  if (row !== undefined && row >= 0 && row < rows.length) shapes.push({ kind: "rect", x: gutter, y: row * tall, w: right, h: tall, stroke: css(inks.ink), width: 1.5 });
  if (picked && picked.row < rows.length && picked.column < tokens.length) {
    shapes.push({ kind: "rect", x: gutter + columns.edges[picked.column], y: picked.row * tall, w: widthOf(columns, picked.column), h: tall, stroke: css(inks.ink), width: 2.5 });
  }
  return shapes;
}

export function heatScene(given: InGrid & { width?: number }, shown: Float32Array, look: Theme): Scene {
  const { tokens, rows = tokens, columns, gutter = 0, width = 480 } = given;
  const count = tokens.length;
  const pixels = glaze(shown, rows.length, count, tokens, look);
  if (!columns) return { width, height: width, shapes: [{ kind: "cells", x: 0, y: 0, w: width, h: width, columns: count, rows: count, pixels }] };
  const tall = rowHeight(columns) * rows.length;
  const right = columns.edges[count];
  return {
    width: gutter + right + 1, height: tall + 1,
    shapes: [{ kind: "cells", x: gutter, y: 0, w: right, h: tall, columns: count, rows: rows.length, pixels, edges: columns.edges }, ...frameShapes({ ...given, columns }, look)],
  };
}

/**
 * The strengths on the screen, on their way to those that are wanted: at once in another sentence, or where nothing may move.
 * `draw` is called for what lies between; what is shown when the way begins is the caller's to draw.
 */
function useMorph(wanted: Float32Array, tokens: readonly string[], draw: (shown: Float32Array) => void): { current: Float32Array } {
  const shown = useRef(wanted);
  const of = useRef(tokens);
  const drawing = useRef(draw);
  drawing.current = draw;
  useLayoutEffect(() => {
    const from = shown.current;
    const isSame = of.current === tokens;
    of.current = tokens;
    if (from === wanted || !isSame || wanted.length > MOST_MORPHED || still()) {
      shown.current = wanted;
      return;
    }
    const began = performance.now();
    const between = new Float32Array(wanted.length);
    let asked = 0;
    const frame = (now: number) => {
      const share = Math.min(1, (now - began) / MORPH);
      const part = eased(share);
      for (let at = 0; at < wanted.length; at++) {
        const [start, end] = [from[at] === NONE ? 0 : from[at], wanted[at]];
        between[at] = end === NONE ? (share < 1 && from[at] !== NONE ? from[at] * (1 - part) : NONE) : start + (end - start) * part;
      }
      shown.current = share < 1 ? between.slice() : wanted;
      drawing.current(shown.current);
      if (share < 1) asked = requestAnimationFrame(frame);
    };
    asked = requestAnimationFrame(frame);
    return () => cancelAnimationFrame(asked);
  }, [wanted, tokens]);
  return shown;
}

/** A map in the page's grid. */
export function Heat(props: HeatProps) {
  return props.columns ? <HeatInGrid {...props} columns={props.columns} /> : <HeatFree {...props} />;
}

function HeatInGrid(props: HeatProps & { columns: Columns }) {
  const { values, tokens, rows, kind, most, columns, row, picked, gutter = 0, say } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const wanted = useScene(() => strengths(values, kind, most), [values, kind, most]);
  const scene = useScene(() => heatScene({ tokens, rows, columns, row, picked, gutter }, wanted, theme.value), [wanted, tokens, rows, columns, row, picked, gutter]);
  const draw = useCallback((shown: Float32Array) => {
    if (canvas.current) paintOver(canvas.current, shown === wanted ? scene : heatScene({ tokens, rows, columns, row, picked, gutter }, shown, theme.value));
  }, [wanted, scene, tokens, rows, columns, row, picked, gutter]);
  const named = rows ?? tokens;
  const shown = useMorph(wanted, named, draw);
  useLayoutEffect(() => draw(shown.current), [draw, shown, fineness.value]);
  const cells = lattice({
    rows: named.length, columns: tokens.length, edges: columns.edges, left: gutter, tall: rowHeight(columns),
    rowName: (at) => visible(named[at]), say, missing: ({ row: time, column }) => !(values[time * tokens.length + column] > -Infinity),
  });
  const surface = surfaceOf(canvas, scene.width, scene.height);
  return <Drawn {...props} scene={scene} lattice={cells} surface={surface} />;
}

const paintOver = (canvas: HTMLCanvasElement, scene: Scene) => paint(canvas, scene, fineness.value);

// ---------------------------------------------------------------------------------------------------------------- zoom and pan

interface View { x: number; y: number; scale: number }

/** Never farther out than the whole map, never beyond its edges. */
export function held(view: View, side: number): View {
  const scale = Math.min(64, Math.max(1, view.scale));
  const least = side - side * scale;
  return { scale, x: Math.min(0, Math.max(least, view.x)), y: Math.min(0, Math.max(least, view.y)) };
}

/** The view enlarged about a point that stays where it is. */
export const zoomed = (view: View, by: number, x: number, y: number, side: number): View => {
  const scale = Math.min(64, Math.max(1, view.scale * by));
  const grown = scale / view.scale;
  return held({ scale, x: x - (x - view.x) * grown, y: y - (y - view.y) * grown }, side);
};

function HeatFree(props: HeatProps) {
  const { values, tokens, kind, most, width = 480, row, say } = props;
  const count = tokens.length;
  const canvas = useRef<HTMLCanvasElement>(null);
  const [settled, setView] = useState<View>({ x: 0, y: 0, scale: 1 });
  const current = useRef(settled);
  const asked = useRef(0);
  const rest = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  const small = useRef<HTMLCanvasElement | null>(null);
  const wanted = useScene(() => strengths(values, kind, most), [values, kind, most]);
  const draw = useCallback(() => {
    const surface = canvas.current;
    if (!surface || !small.current) return;
    const scale = fineness.value;
    const side = Math.round(width * scale);
    if (surface.width !== side) surface.width = surface.height = side;
    const context = surface.getContext("2d")!;
    const { x, y, scale: zoom } = current.current;
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, side, side);
    const shown = (width * scale * zoom) / count;
    context.imageSmoothingEnabled = shown < 1;
    const [from, across] = [(-x / (width * zoom)) * count, count / zoom];
    context.drawImage(small.current, from, (-y / (width * zoom)) * count, across, across, 0, 0, side, side);
    if (row !== undefined) {
      context.setTransform(scale, 0, 0, scale, 0, 0);
      context.strokeStyle = css(INKS[theme.value].ink);
      context.lineWidth = 1.5;
      context.strokeRect(x, y + (row * width * zoom) / count, width * zoom, (width * zoom) / count);
    }
  }, [count, width, row]);
  const remake = useCallback((shown: Float32Array) => {
    small.current = raster(glaze(shown, count, count, tokens, theme.value), count, count, small.current ?? undefined);
  }, [count, tokens]);
  const shown = useMorph(wanted, tokens, (now) => {
    remake(now);
    draw();
  });
  useLayoutEffect(() => remake(shown.current), [remake, shown, wanted]);
  useLayoutEffect(draw, [draw, remake, wanted, fineness.value]);
  const move = useCallback((to: View) => {
    current.current = held(to, width);
    if (asked.current) return;
    asked.current = requestAnimationFrame(() => {
      asked.current = 0;
      draw();
    });
    // The grid follows when the map stands still.
    clearTimeout(rest.current);
    rest.current = setTimeout(() => setView(current.current), REST);
  }, [draw, width]);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const node = root.current!;
    const wheel = (event: WheelEvent) => {
      if (!event.ctrlKey && current.current.scale === 1 && document.activeElement !== node.querySelector("[role=grid]")) return;
      event.preventDefault();
      const frame = node.getBoundingClientRect();
      move(zoomed(current.current, Math.exp(-event.deltaY * 0.002), event.clientX - frame.left, event.clientY - frame.top, width));
    };
    node.addEventListener("wheel", wheel, { passive: false });
    return () => node.removeEventListener("wheel", wheel);
  }, [move, width]);
  const drag = useRef<{ x: number; y: number; from: View } | null>(null);
  useEffect(() => () => clearTimeout(rest.current), []);
  const place = () => ({ ...current.current, cell: (width * current.current.scale) / count });
  const cells: Lattice = {
    rows: count, columns: count, rowName: (at) => visible(tokens[at]), say,
    missing: ({ row: time, column }) => !(values[time * count + column] > -Infinity),
    at: (x, y) => {
      const { cell, ...view } = place();
      const spot = { row: Math.floor((y - view.y) / cell), column: Math.floor((x - view.x) / cell) };
      return spot.row >= 0 && spot.column >= 0 && spot.row < count && spot.column < count ? spot : null;
    },
    box: ({ row: time, column }) => {
      const { cell, ...view } = place();
      const [x, y] = [view.x + column * cell, view.y + time * cell];
      return x < -cell || y < -cell || x > width || y > width ? null : { x, y, w: cell, h: cell };
    },
  };
  const scene: Scene = { width, height: width, shapes: [] };
  Object.defineProperty(scene, "shapes", { get: () => heatScene({ tokens, width }, wanted, theme.value).shapes, enumerable: true });
  return (
    <div ref={root} class="heat-free" onDblClick={() => move({ x: 0, y: 0, scale: 1 })}
      onKeyDown={(event) => {
        const by = { "+": 1.6, "=": 1.6, "-": 1 / 1.6, "0": 1e-9 }[event.key];
        if (by) move(zoomed(current.current, by, width / 2, width / 2, width));
      }}
      onPointerDown={(event) => {
        if (current.current.scale > 1) drag.current = { x: event.clientX, y: event.clientY, from: current.current };
      }}
      onPointerMove={(event) => {
        const start = drag.current;
        if (start && event.buttons) move({ ...start.from, x: start.from.x + event.clientX - start.x, y: start.from.y + event.clientY - start.y });
      }}
      onPointerUp={() => (drag.current = null)}>
      <Drawn {...props} scene={scene} lattice={cells}
        surface={surfaceOf(canvas, width, width)} />
    </div>
  );
}
