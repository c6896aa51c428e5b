// What was kept in a beam search, and what was let go: depth goes right, a branch is as wide as its share.

import { css, glassOf, INKS, isClear, Theme, visible } from "./colour";
import { Common, Drawn, useScene } from "./drawn";
import { Lattice } from "./grid";
import { paneShapes } from "./panes";
import { Scene, Shape } from "./scene";
import { theme } from "./theme";

export interface TreeNode {
  token: string;
  /** The place of the node it goes on from; -1 for the sentence itself. */
  parent: number;
  /** The share of this token after its parent. */
  share: number;
  /** A number under the pane. */
  note?: string;
  /** Still one of the beams, and on the best of them. */
  kept?: boolean;
  best?: boolean;
}

export interface TreeProps extends Common {
  nodes: readonly TreeNode[];
  width: number;
  say(node: number): string;
}

const TALL = 50;

interface Place { x: number; y: number; w: number; depth: number }

/** Leaves lie under each other in the order of their parents; a parent lies in the middle of its children. */
function placed(nodes: readonly TreeNode[], width: number): { places: Place[]; height: number; stepX: number } {
  const children = new Map<number, number[]>();
  nodes.forEach(({ parent }, at) => children.set(parent, [...(children.get(parent) ?? []), at]));
  const depths: number[] = [];
  nodes.forEach(({ parent }, at) => (depths[at] = parent < 0 ? 0 : depths[parent] + 1));
  const deepest = Math.max(0, ...depths);
  const stepX = Math.min(132, width / (deepest + 1.2));
  const places: Place[] = [];
  let next = 0;
  const visit = (at: number): number => {
    const below = (children.get(at) ?? []).map(visit);
    const y = below.length ? (below[0] + below[below.length - 1]) / 2 : next++ * TALL;
    const w = Math.min(stepX * 0.6, Math.max(26, 11 * [...visible(nodes[at].token)].length + 12));
    places[at] = { x: 28 + depths[at] * stepX, y, w, depth: depths[at] };
    return y;
  };
  (children.get(-1) ?? []).forEach(visit);
  return { places, height: Math.max(1, next) * TALL + 6, stepX };
}

export function treeScene({ nodes, width }: Pick<TreeProps, "nodes" | "width">, look: Theme): Scene {
  const inks = INKS[look];
  const { places, height } = placed(nodes, width);
  const shapes: Shape[] = [];
  const panes: Shape[] = [];
  const roots = nodes.flatMap(({ parent }, at) => (parent < 0 ? [places[at].y] : []));
  const start = roots.length ? (roots[0] + roots[roots.length - 1]) / 2 + 15 : 15;
  nodes.forEach((node, at) => {
    const { x, y, w } = places[at];
    const from = node.parent < 0 ? { x: 0, y: start } : { x: places[node.parent].x + places[node.parent].w, y: places[node.parent].y + 15 };
    const middle = (from.x + x) / 2;
    const d = `M${from.x} ${from.y}C${middle} ${from.y} ${middle} ${y + 15} ${x} ${y + 15}`;
    const wide = Math.round(Math.max(0.8, node.share * 15) * 100) / 100; // a step and a whole pass differ in the seventh digit
    const glass = css(isClear(node.token) ? inks.clear : glassOf(node.token, look));
    if (node.kept && wide > 2.5) shapes.push({ kind: "path", d, stroke: css(inks.leading), width: wide + 1.5 });
    shapes.push({ kind: "path", d, stroke: glass, width: wide, opacity: node.kept ? 1 : 0.4 });
    panes.push(...paneShapes({ token: node.token, strength: node.kept ? 1 : 0.25 }, x, y, w, 30, look));
    if (node.best) panes.push({ kind: "rect", x: x - 1.5, y: y - 1.5, w: w + 3, h: 33, stroke: css(inks.ink), width: 2 });
    if (node.note) panes.push({ kind: "text", x: x + w / 2, y: y + 43, text: node.note, size: 11.5, anchor: "middle", fill: css(node.kept ? inks.ink : inks.soft) });
  });
  return { width, height, shapes: [...shapes, ...panes] };
}

export function Tree(props: TreeProps) {
  const { nodes, width, say } = props;
  const scene = useScene(() => treeScene({ nodes, width }, theme.value), [nodes, width]);
  const { places } = placed(nodes, width);
  const byDepth: number[][] = [];
  places.forEach(({ depth }, at) => (byDepth[depth] ??= []).push(at));
  byDepth.forEach((each) => each.sort((one, other) => places[one].y - places[other].y));
  const node = ({ row, column }: { row: number; column: number }) => byDepth[column]?.[row];
  const cells: Lattice = {
    rows: Math.max(0, ...byDepth.map((each) => each.length)), columns: byDepth.length,
    rowName: (row) => String(row + 1), say: (spot) => (node(spot) === undefined ? "" : say(node(spot))),
    missing: (spot) => node(spot) === undefined,
    at: (x, y) => {
      const at = places.findIndex((each) => x >= each.x - 4 && x < each.x + each.w + 4 && y >= each.y - 4 && y < each.y + 34);
      return at < 0 ? null : { column: places[at].depth, row: byDepth[places[at].depth].indexOf(at) };
    },
    box: (spot) => {
      const at = node(spot);
      return at === undefined ? null : { x: places[at].x, y: places[at].y, w: places[at].w, h: 30 };
    },
  };
  const picked = (spot: { row: number; column: number }) => { const at = node(spot); if (at !== undefined) props.onPick?.({ row: at, column: spot.column }); };
  return <Drawn {...props} scene={scene} lattice={cells} onPick={props.onPick && picked} />;
}
