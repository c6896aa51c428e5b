// A drawn mark: a scene on canvas or as SVG, and over it what the keyboard, the pointer and screen readers get of it.

import { ComponentChildren, createElement, Ref } from "preact";
import { useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { Grid, Lattice, Spot } from "./grid";
import { elementOf, paint, Scene, Shape } from "./scene";
import { fineness, theme } from "./theme";
import { language } from "../words";

export interface Common {
  /** A sentence that says what the mark shows. */
  label: string;
  /** The spot that the page has picked. */
  picked?: Spot | null;
  onPick?: (spot: Spot) => void;
  /** The pointer or the keyboard is at a spot; null when it leaves. */
  onPoint?: (spot: Spot | null) => void;
}

/** The scene of each mark on the page, so that its figure can be saved. */
export const scenes = new WeakMap<HTMLElement, Scene>();

function svgOf(shape: Shape, key: number) {
  if (shape.kind === "cells") return null;
  const [name, attributes] = elementOf(shape);
  if (/NaN|Inf/.test(Object.values(attributes).join())) return null; // an edit made numbers that are not finite
  return createElement(name, { key, ...attributes }, shape.kind === "text" && shape.text);
}

/** A canvas of a mark, which `paint` makes as fine as the screen. */
export const surfaceOf = (canvas: Ref<HTMLCanvasElement>, width: number, height: number, name?: string) =>
  <canvas ref={canvas} class={name} width={1} height={1} style={{ width: `${width}px`, height: `${height}px` }} aria-hidden="true" />;

function Canvas({ scene }: { scene: Scene }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  useLayoutEffect(() => paint(canvas.current!, scene, fineness.value), [scene, fineness.value]);
  return surfaceOf(canvas, scene.width, scene.height);
}

/** More shapes than these are drawn by canvas: each element of an SVG costs a keystroke. */
const MOST_ELEMENTS = 60;

interface Props extends Common {
  scene: Scene;
  lattice?: Lattice;
  /** What draws instead of the scene, where frames count; the scene is still what is saved. */
  surface?: ComponentChildren;
  children?: ComponentChildren;
}

/** A mark of a scene; with a lattice it can be pointed at, walked through and read aloud. */
export function Drawn({ scene, label, lattice, surface, picked, onPick, onPoint, children }: Props) {
  const root = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => void scenes.set(root.current!, scene));
  return (
    <div class="mark" ref={root} style={{ width: `${scene.width}px`, height: `${scene.height}px` }}
      {...(lattice || children ? {} : { role: "img", "aria-label": label })}>
      {surface ?? (scene.shapes.length > MOST_ELEMENTS || scene.shapes.some((shape) => shape.kind === "cells") ? <Canvas scene={scene} /> : (
        <svg width={scene.width} height={scene.height} aria-hidden="true" focusable="false">{scene.shapes.map(svgOf)}</svg>
      ))}
      {lattice && <Grid label={label} lattice={lattice} picked={picked ?? null} onPick={onPick} onPoint={onPoint} />}
      {children}
    </div>
  );
}

/** A ref to an element whose width is told: now, when it changes, and before it is printed, when no observer is asked. */
export function useMeasured(tell: (width: number) => void): { current: HTMLDivElement | null } {
  const node = useRef<HTMLDivElement>(null);
  const told = useRef(tell);
  told.current = tell;
  useLayoutEffect(() => {
    const measure = () => told.current(Math.floor(node.current!.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(node.current!);
    addEventListener("beforeprint", measure);
    return () => {
      observer.disconnect();
      removeEventListener("beforeprint", measure);
    };
  }, []);
  return node;
}

/** The width that the element has, and the ref that measures it. */
export function useWidth(at = 0): [{ current: HTMLDivElement | null }, number] {
  const [width, setWidth] = useState(at);
  return [useMeasured(setWidth), width];
}

/** A scene made anew only when what it shows, the theme or the language, in which its numbers are written, has changed. */
export function useScene<T>(make: () => T, given: readonly unknown[]): T {
  // eslint-disable-next-line react-hooks/exhaustive-deps -- each caller is checked
  return useMemo(make, [...given, theme.value, language.value]);
}
