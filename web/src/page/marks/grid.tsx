// What the keyboard and screen readers get of a mark: one stop of Tab, arrows from cell to cell, the focused row as a grid.

import { useRef, useState } from "preact/hooks";

export interface Spot { row: number; column: number }
export interface Box { x: number; y: number; w: number; h: number }

/** The cells of a mark. */
export interface Lattice {
  rows: number;
  columns: number;
  /** The cell at a point of the mark. */
  at(x: number, y: number): Spot | null;
  box(spot: Spot): Box | null;
  rowName(row: number): string;
  /** What a cell says, its column with it. */
  say(spot: Spot): string;
  /** A cell that does not exist: above the diagonal. */
  missing?(spot: Spot): boolean;
}

/** A lattice of equal rows and given columns, as most marks have. */
export function lattice(given: {
  rows: number; columns: number; edges: ArrayLike<number>; top?: number; left?: number; tall: number;
  rowName(row: number): string; say(spot: Spot): string; missing?(spot: Spot): boolean;
}): Lattice {
  const { rows, columns, edges, top = 0, left = 0, tall } = given;
  return {
    ...given,
    at(x, y) {
      const row = Math.floor((y - top) / tall);
      if (row < 0 || row >= rows || x - left < edges[0] || x - left >= edges[columns]) return null;
      let column = 0;
      while (column < columns - 1 && edges[column + 1] <= x - left) column++;
      return { row, column };
    },
    box: ({ row, column }) => ({ x: left + edges[column], y: top + row * tall, w: edges[column + 1] - edges[column], h: tall }),
  };
}

/** One row of columns, which says what each column is. */
export const oneRow = (name: string, columns: number, edges: ArrayLike<number>, tall: number, say: (column: number) => string): Lattice =>
  lattice({ rows: 1, columns, edges, tall, rowName: () => name, say: ({ column }) => say(column) });

const STEPS: Record<string, [number, number]> = {
  ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0], PageUp: [-8, 0], PageDown: [8, 0],
  Home: [0, -Infinity], End: [0, Infinity],
};

/** Where a key leads from a spot, or null for a key that does not move. */
export function step(lattice: Pick<Lattice, "rows" | "columns">, from: Spot, key: string, control: boolean): Spot | null {
  const way = STEPS[key];
  if (!way) return null;
  const clamp = (value: number, count: number) => Math.min(count - 1, Math.max(0, value));
  if (control && (key === "Home" || key === "End")) return key === "Home" ? { row: 0, column: 0 } : { row: lattice.rows - 1, column: lattice.columns - 1 };
  return { row: clamp(from.row + way[0], lattice.rows), column: clamp(from.column + way[1], lattice.columns) };
}

/** Cells of the row that are written out for screen readers on each side while the grid has the focus; else the one cell alone. */
const AROUND = 24;

/** Grids so far, each with an id of its own. */
let made = 0;

interface Props {
  label: string;
  lattice: Lattice;
  picked: Spot | null;
  onPick?: (spot: Spot) => void;
  onPoint?: (spot: Spot | null) => void;
}

export function Grid({ label, lattice, picked, onPick, onPoint }: Props) {
  const [id] = useState(() => `grid${++made}`);
  const node = useRef<HTMLDivElement>(null);
  const [active, setActive] = useState<Spot | null>(null);
  const [shown, setShown] = useState<Spot | null>(null);
  const [isRead, setRead] = useState(false);
  const { rows, columns } = lattice;
  if (!rows || !columns) return null;
  const inside = (spot: Spot | null) => (spot && spot.row < rows && spot.column < columns ? spot : null);
  const here = inside(active) ?? inside(picked) ?? { row: columns > 1 ? rows - 1 : 0, column: columns - 1 }; // a list from its first row on
  const point = (spot: Spot | null) => {
    const found = spot && lattice.missing?.(spot) ? null : spot;
    if (found?.row === shown?.row && found?.column === shown?.column) return;
    setShown(found);
    onPoint?.(found);
  };
  const under = (event: PointerEvent | MouseEvent) => {
    const frame = node.current!.getBoundingClientRect();
    return lattice.at(event.clientX - frame.left, event.clientY - frame.top);
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.altKey || event.metaKey) return;
    if (event.key === "Enter" || event.key === " ") onPick?.(here);
    else {
      const to = step(lattice, here, event.key, event.ctrlKey);
      if (!to) return;
      setActive(to);
      point(to);
    }
    event.preventDefault();
    event.stopPropagation();
  };
  const around = isRead ? AROUND : 0;
  const first = Math.max(0, here.column - around);
  const last = Math.min(columns, here.column + around + 1);
  const written = [];
  for (let column = first; column < last; column++) {
    const spot = { row: here.row, column };
    written.push(
      <span key={column} role="gridcell" id={`${id}-${column}`} aria-colindex={column + 2} aria-selected={picked?.row === spot.row && picked?.column === column}>
        {lattice.missing?.(spot) ? "" : lattice.say(spot)}
      </span>,
    );
  }
  const box = shown && inside(shown) && lattice.box(shown);
  const tip = box && lattice.say(shown!);
  return (
    <>
      <div ref={node} class={onPick ? "mark-grid pickable" : "mark-grid"} role="grid" tabIndex={0} aria-label={label} aria-rowcount={rows}
        aria-colcount={columns + 1} aria-activedescendant={`${id}-${here.column}`} aria-readonly="true" onKeyDown={onKeyDown}
        onFocus={() => { setRead(true); if (node.current?.matches(":focus-visible")) point(here); }}
        onBlur={() => { setRead(false); point(null); }} onPointerMove={(event) => point(under(event))} onPointerLeave={() => point(null)}
        onClick={(event) => {
          const spot = under(event);
          if (!spot || lattice.missing?.(spot)) return;
          setActive(spot);
          onPick?.(spot);
        }}>
        <div role="row" aria-rowindex={here.row + 1}>
          <span role="rowheader" aria-colindex={1}>{lattice.rowName(here.row)}</span>
          {written}
        </div>
      </div>
      {box && <div class="mark-ring" style={{ left: `${box.x}px`, top: `${box.y}px`, width: `${box.w}px`, height: `${box.h}px` }} />}
      {box && tip && <div class={box.y < 34 ? "mark-tip below" : "mark-tip"} aria-hidden="true" style={{ left: `${box.x + box.w / 2}px`, top: `${box.y < 34 ? box.y + box.h : box.y}px` }}>{tip}</div>}
    </>
  );
}
