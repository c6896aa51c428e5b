// A map of numbers on a canvas, with a grid for keyboards and screen readers beside it.

import { useEffect, useRef } from "preact/hooks";

export interface HeatmapProps {
  /** Rows of numbers in 0 … 1 (or any, with `limit`), one after another. */
  cells: ArrayLike<number>;
  rows: number;
  columns: number;
  /** The colour of each column. */
  colours: readonly string[];
  /** A sentence for people who do not see the picture. */
  label: string;
  /** The number that has the full colour. */
  limit?: number;
  row?: number;
  onPick?: (row: number, column: number) => void;
}

export function Heatmap({ cells, rows, columns, colours, label, limit = 1, row, onPick }: HeatmapProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    const element = canvas.current!;
    const { width, height } = element.getBoundingClientRect();
    const scale = devicePixelRatio || 1;
    element.width = Math.round(width * scale);
    element.height = Math.round(height * scale);
    const pen = element.getContext("2d")!;
    pen.scale(element.width / columns, element.height / rows);
    for (let y = 0; y < rows; y++)
      for (let x = 0; x < columns; x++) {
        const cell = cells[y * columns + x];
        if (!Number.isFinite(cell) || !cell) continue;
        pen.globalAlpha = Math.min(1, Math.sqrt(Math.abs(cell) / (limit || 1)));
        pen.fillStyle = cell < 0 ? "#7d8189" : colours[x];
        pen.fillRect(x, y, 1, 1);
      }
    if (row !== undefined) {
      pen.globalAlpha = 1;
      pen.strokeStyle = getComputedStyle(element).color;
      pen.lineWidth = 0.06;
      pen.strokeRect(0.03, row + 0.03, columns - 0.06, 0.94);
    }
  });
  const pick = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const at = (from: number, size: number, count: number) => Math.min(count - 1, Math.max(0, Math.floor((from / size) * count)));
    onPick?.(at(event.clientY - box.top, box.height, rows), at(event.clientX - box.left, box.width, columns));
  };
  return <canvas class="map" ref={canvas} role="img" aria-label={label} onClick={onPick && pick} />;
}
