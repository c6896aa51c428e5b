// What a mark draws, as plain data: one list of shapes becomes canvas, live SVG, an SVG file and a PNG file alike.

import { css, INKS, Rgb, Theme } from "./colour";

export interface Rect { kind: "rect"; x: number; y: number; w: number; h: number; fill?: string; stroke?: string; width?: number; opacity?: number; radius?: number; dash?: string }
export interface Path { kind: "path"; d: string; fill?: string; stroke?: string; width?: number; opacity?: number; dash?: string }
export interface Text { kind: "text"; x: number; y: number; text: string; fill: string; size: number; anchor?: "start" | "middle" | "end"; face?: Face; bold?: boolean; italic?: boolean; opacity?: number }
/** A raster of whole cells; `edges` are the borders of groups of `group` columns (1) where they are not all as wide, `inset` the gap at both sides of each. */
export interface Cells { kind: "cells"; x: number; y: number; w: number; h: number; columns: number; rows: number; pixels: Uint32Array; edges?: ArrayLike<number>; group?: number; inset?: number }
export type Shape = Rect | Path | Text | Cells;
export type Face = "serif" | "sans" | "mono";

export interface Scene { width: number; height: number; shapes: Shape[] }

const fonts: Partial<Record<Face, string>> = {};
/** The fonts that the page's style has for a face. */
const fontsOf = (face: Face): string =>
  (fonts[face] ??= (typeof document !== "undefined" && getComputedStyle(document.documentElement).getPropertyValue(`--${face}`)) || face);

/** A colour as a pixel of ImageData, on a machine that counts bytes from the low end, as all that run browsers do. */
export const pixel = (colour: Rgb): number =>
  ((255 << 24) | (Math.round(colour[2]) << 16) | (Math.round(colour[1]) << 8) | Math.round(colour[0])) >>> 0;

const around = (value: number) => Math.round(value * 100) / 100;

// ---------------------------------------------------------------------------------------------------------------- canvas

/** In halves of a pixel: a browser looks up every size of a font that it has not met. */
const fontOf = (text: Text) => `${text.italic ? "italic " : ""}${text.bold ? "600 " : ""}${Math.round(text.size * 2) / 2}px ${fontsOf(text.face ?? "sans")}`;

/** A canvas with one pixel for each cell, to be drawn enlarged; `on` is one to use again. */
export function raster(pixels: Uint32Array, columns: number, rows: number, on?: HTMLCanvasElement): HTMLCanvasElement {
  const small = on ?? document.createElement("canvas");
  small.width = columns;
  small.height = rows;
  const bytes = new Uint8ClampedArray(pixels.buffer as ArrayBuffer, pixels.byteOffset, columns * rows * 4);
  small.getContext("2d")!.putImageData(new ImageData(bytes, columns, rows), 0, 0);
  return small;
}

let scratch: HTMLCanvasElement | undefined;

function paintCells(context: CanvasRenderingContext2D, shape: Cells): void {
  if (!shape.columns || !shape.rows) return;
  const small = (scratch = raster(shape.pixels, shape.columns, shape.rows, scratch));
  context.imageSmoothingEnabled = false;
  if (!shape.edges) context.drawImage(small, shape.x, shape.y, shape.w, shape.h);
  else {
    const { group = 1, inset = 0 } = shape;
    for (let at = 0; at * group < shape.columns; at++) {
      const left = shape.edges[at] + inset;
      context.drawImage(small, at * group, 0, group, shape.rows, shape.x + left, shape.y, shape.edges[at + 1] - inset - left, shape.h);
    }
  }
}

/** Draws shapes one after another. What neighbours share is not set again: setting a font costs more than writing a letter in it. */
export function paintShapes(context: CanvasRenderingContext2D, shapes: readonly Shape[]): void {
  let [font, fill, stroke, dash] = ["", "", "", ""];
  let opacity = 1;
  context.setLineDash([]);
  context.globalAlpha = opacity;
  for (const shape of shapes) {
    const own = shape.kind === "cells" ? 1 : (shape.opacity ?? 1);
    if (own !== opacity) opacity = context.globalAlpha = own;
    if (shape.kind === "cells") {
      paintCells(context, shape);
      continue;
    }
    if (shape.fill && shape.fill !== fill) fill = context.fillStyle = shape.fill;
    if (shape.kind === "text") {
      const own = fontOf(shape);
      if (own !== font) font = context.font = own;
      context.textAlign = shape.anchor === "middle" ? "center" : shape.anchor === "end" ? "right" : "left";
      context.fillText(shape.text, shape.x, shape.y);
      continue;
    }
    if (shape.stroke) {
      if (shape.stroke !== stroke) stroke = context.strokeStyle = shape.stroke;
      context.lineWidth = shape.width ?? 1;
      const dashes = shape.dash ?? "";
      if (dashes !== dash) context.setLineDash((dash = dashes) ? dashes.split(" ").map(Number) : []);
    }
    if (shape.kind === "rect" && !shape.radius) {
      if (shape.fill) context.fillRect(shape.x, shape.y, shape.w, shape.h);
      if (shape.stroke) context.strokeRect(shape.x, shape.y, shape.w, shape.h);
      continue;
    }
    const path = shape.kind === "path" ? new Path2D(shape.d) : new Path2D();
    if (shape.kind === "rect") path.roundRect(shape.x, shape.y, shape.w, shape.h, shape.radius);
    if (shape.fill) context.fill(path);
    if (shape.stroke) context.stroke(path);
  }
  context.globalAlpha = 1;
}

export function paint(canvas: HTMLCanvasElement, scene: Scene, scale: number, ground?: string): void {
  const width = Math.max(1, Math.round(scene.width * scale));
  const height = Math.max(1, Math.round(scene.height * scale));
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  const context = canvas.getContext("2d")!;
  context.setTransform(1, 0, 0, 1, 0, 0);
  context.clearRect(0, 0, width, height);
  if (ground) {
    context.fillStyle = ground;
    context.fillRect(0, 0, width, height);
  }
  context.setTransform(scale, 0, 0, scale, 0, 0);
  paintShapes(context, scene.shapes);
}

// ---------------------------------------------------------------------------------------------------------------- files

const escaped = (text: string) =>
  text.replace(/[&<>"]/g, (each) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[each]!)
    .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff\p{Surrogate}]/gu, "\ufffd");

const attributes = (given: Record<string, string | number | undefined>) =>
  Object.entries(given).filter(([, value]) => value !== undefined)
    .map(([name, value]) => ` ${name}="${typeof value === "number" ? around(value) : escaped(value!)}"`).join("");

const colourOf = (value: number) => css([value & 255, (value >> 8) & 255, (value >> 16) & 255]);

/** Cells as vectors: equal neighbours of a row are one rectangle, and one colour is one path. */
function cellsToSVG(shape: Cells): string {
  const paths = new Map<number, string[]>();
  const tall = shape.h / shape.rows;
  const { edges, group = 1, inset = 0 } = shape;
  // The border after `within` columns of a group, or of all columns.
  const edge = (at: number, within: number) =>
    edges ? edges[at] + inset + ((edges[at + 1] - edges[at] - 2 * inset) * within) / group : (within * shape.w) / shape.columns;
  const most = edges ? group : shape.columns;
  for (let row = 0; row < shape.rows; row++) {
    for (let from = 0; from < shape.columns; ) {
      const value = shape.pixels[row * shape.columns + from];
      const at = Math.floor(from / most);
      let to = from + 1;
      while (to < (at + 1) * most && shape.pixels[row * shape.columns + to] === value) to++;
      if (value >>> 24) {
        const made = paths.get(value) ?? [];
        if (!made.length) paths.set(value, made);
        const x = around(shape.x + edge(at, from - at * most));
        const right = shape.x + edge(at, to - at * most);
        made.push(`M${x} ${around(shape.y + row * tall)}h${around(right - x)}v${around(tall)}h${around(x - right)}z`);
      }
      from = to;
    }
  }
  return [...paths].map(([value, parts]) => `<path fill="${colourOf(value)}" d="${parts.join("")}"/>`).join("");
}

/** A shape as an element of SVG: its name and its attributes. */
export function elementOf(shape: Exclude<Shape, Cells>): [string, Record<string, string | number | undefined>] {
  const { fill, opacity } = shape;
  if (shape.kind === "text") {
    const { x, y, size, face = "sans", bold, italic, anchor } = shape;
    return ["text", {
      x, y, fill, "font-size": size, "font-family": fontsOf(face), "font-weight": bold ? 600 : undefined,
      "font-style": italic ? "italic" : undefined, "text-anchor": anchor, opacity,
    }];
  }
  const { stroke, width, dash } = shape;
  const common = { fill: fill ?? "none", stroke, "stroke-width": stroke && width, opacity, "stroke-dasharray": dash };
  return shape.kind === "path" ? ["path", { d: shape.d, ...common }]
    : ["rect", { x: shape.x, y: shape.y, width: Math.max(0, shape.w), height: Math.max(0, shape.h), rx: shape.radius, ...common }];
}

function shapeToSVG(shape: Shape): string {
  if (shape.kind === "cells") return `<g shape-rendering="crispEdges">${cellsToSVG(shape)}</g>`;
  const [name, own] = elementOf(shape);
  return shape.kind === "text" ? `<text${attributes({ ...own, "xml:space": "preserve" })}>${escaped(shape.text)}</text>` : `<${name}${attributes(own)}/>`;
}

/** An SVG file, of vectors only, readable by itself. */
export function toSVG(scene: Scene, label: string, theme: Theme): string {
  const [width, height] = [Math.ceil(scene.width), Math.ceil(scene.height)];
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" role="img">`
    + `<title>${escaped(label)}</title><rect width="${width}" height="${height}" fill="${css(INKS[theme].ground)}"/>`
    + scene.shapes.map(shapeToSVG).join("") + "</svg>\n";
}

export async function toPNG(scene: Scene, theme: Theme, scale = 3): Promise<Blob> {
  const canvas = document.createElement("canvas");
  paint(canvas, scene, Math.min(scale, 8192 / Math.max(scene.width, scene.height)), css(INKS[theme].ground));
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("canvas"))), "image/png"));
}

/** The scenes of one figure as one, each at its place. */
export function together(parts: { scene: Scene; x: number; y: number }[]): Scene {
  const shapes: Shape[] = [];
  let [width, height] = [0, 0];
  for (const { scene, x, y } of parts) {
    width = Math.max(width, x + scene.width);
    height = Math.max(height, y + scene.height);
    for (const shape of scene.shapes) shapes.push(moved(shape, x, y));
  }
  return { width, height, shapes };
}

/** A path is moved command by command: capitals are absolute, small letters stay. */
function moved(shape: Shape, x: number, y: number): Shape {
  if (shape.kind !== "path") return { ...shape, x: shape.x + x, y: shape.y + y };
  const d = shape.d.replace(/([MLCQHVA])([^a-zA-Z]*)/g, (_, command: string, given: string) => {
    const numbers = given.match(/-?[\d.]+(?:e-?\d+)?/gi)?.map(Number) ?? [];
    const placed = numbers.map((each, at) =>
      command === "H" ? each + x : command === "V" ? each + y
      : command === "A" ? (at % 7 === 5 ? each + x : at % 7 === 6 ? each + y : each)
      : each + (at % 2 ? y : x));
    return command + placed.map(around).join(" ");
  });
  return { ...shape, d };
}
