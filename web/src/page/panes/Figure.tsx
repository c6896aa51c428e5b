// A figure: marks and their caption, and a small menu to carry it away: SVG, PNG, the command, the Python line, an address.

import { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { scenes } from "../marks/drawn";
import { Scene, together, toPNG, toSVG } from "../marks/scene";
import { theme } from "../marks/theme";
import { figure, origin, written } from "../state";
import { t } from "../words";
import { pythonic } from "./pieces";

interface Props {
  /** Its name in an address: small letters and hyphens. */
  id: string;
  /** What it shows, as a sentence. */
  label: string;
  caption?: ComponentChildren;
  /** The command and the Python line that make the same numbers. */
  command?: string;
  python?: string;
  /** Its numbers as a table. */
  csv?: () => string;
  children: ComponentChildren;
}

/** Letters of a line of code that are shown. */
const MOST_SHOWN = 400;

/** A word or a bar that a figure has as HTML, as it looks. */
function sceneOfWord(node: HTMLElement): Scene {
  const { left, width, height } = node.getBoundingClientRect();
  const range = document.createRange();
  range.selectNodeContents(node);
  const words = range.getBoundingClientRect();
  const { color, fontSize, backgroundColor } = getComputedStyle(node);
  const size = parseFloat(fontSize);
  const word = { kind: "text", x: words.left - left + words.width / 2, y: height / 2 + size * 0.35, text: node.textContent ?? "", size, anchor: "middle", fill: color } as const;
  return { width, height, shapes: /, 0\)$/.test(backgroundColor) ? [word] : [{ kind: "rect", x: 0, y: 0, w: width, h: height, fill: backgroundColor }, word] };
}

/** The scenes of a figure's marks, at their places in it. */
function sceneOf(figure: HTMLElement): Scene {
  const marks = [...figure.querySelectorAll<HTMLElement>(".mark")].filter((node) => scenes.has(node));
  const placed = marks.map((node) => ({ scene: scenes.get(node)!, box: node.getBoundingClientRect() }));
  const words = [...figure.querySelectorAll<HTMLElement>("[data-drawn] *")].filter((node) => !node.childElementCount && !node.closest(".mark, .remark"));
  placed.push(...words.map((node) => ({ scene: sceneOfWord(node), box: node.getBoundingClientRect() })));
  const left = Math.min(...placed.map(({ box }) => box.left));
  const top = Math.min(...placed.map(({ box }) => box.top));
  return together(placed.map(({ scene, box }) => ({ scene, x: box.left - left + 12, y: box.top - top + 12 })));
}

/** A line of code as it is shown; the menu copies the whole. */
export const abridged = (line: string): string => (line.length > MOST_SHOWN ? `${line.slice(0, MOST_SHOWN / 2)} … ${line.slice(-MOST_SHOWN / 2)}` : line);

function save(blob: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

export function Figure({ id, label, caption, csv, children, ...given }: Props) {
  const node = useRef<HTMLElement>(null);
  const { step, trained, source } = origin.value!.about;
  // Commands have the trained model's weights.
  const { command, python } = source ? { command: undefined, python: /^run\.(model|encode)/.test(given.python ?? "") ? given.python : undefined } : trained === undefined ? given : { command: undefined, python: given.python && `run = run.at(${step}); ${given.python}` };
  if (figure.value && figure.value !== id) return null;
  return (
    <figure id={`figure-${id}`} aria-label={label} ref={node}>
      {children}
      {caption && <figcaption>{caption}</figcaption>}
      <div class="foot">
        {python && <p class="receipt">{abridged(python)}</p>}
        <Menu id={id} label={label} command={command} python={python} csv={csv} scene={() => sceneOf(node.current!)} />
      </div>
    </figure>
  );
}

function Menu({ id, label, command, python, csv, scene }: Pick<Props, "id" | "label" | "command" | "python" | "csv"> & { scene(): Scene }) {
  const [said, setSaid] = useState("");
  const details = useRef<HTMLDetailsElement>(null);
  const done = (what: string) => {
    setSaid(what);
    if (details.current) details.current.open = false;
    setTimeout(() => setSaid(""), 2500);
  };
  const { about } = origin.value!;
  const name = `${about.name.replace(/\W+/g, "-")}-${id}`;
  const copy = async (text: string) => {
    try {
      await navigator.clipboard.writeText(text);
      done(t("Copied."));
    } catch {
      done(text);
    }
  };
  const address = () => {
    const fragment = [...written().split("&").filter((each) => each && !each.startsWith("f=")), `f=${id}`].join("&");
    return `${location.href.split("#")[0]}#${fragment}`;
  };
  return (
    <div class="menu">
      <span role="status">{said}</span>
      <details ref={details} onKeyDown={(event) => {
        if (event.key !== "Escape" || !details.current?.open) return;
        event.preventDefault();
        details.current.open = false;
        details.current.querySelector("summary")?.focus();
      }}>
        <summary aria-label={t("Save or cite this figure: {figure}", { figure: label })}>{t("save or cite")}</summary>
        <ul>
          <li><button onClick={() => { save(new Blob([toSVG(scene(), label, theme.value)], { type: "image/svg+xml" }), `${name}.svg`); done(t("Saved.")); }}>{t("Save as SVG")}</button></li>
          <li><button onClick={() => void toPNG(scene(), theme.value).then((blob) => { save(blob, `${name}.png`); done(t("Saved.")); })}>{t("Save as PNG")}</button></li>
          {csv && <li><button onClick={() => { save(new Blob([csv()], { type: "text/csv" }), `${name}.csv`); done(t("Saved.")); }}>{t("Save as CSV")}</button></li>}
          {command && <li><button onClick={() => void copy(command)}>{t("Copy the command")}</button></li>}
          {python && <li><button onClick={() => void copy(`import ${python.includes("torch.") ? "torch, " : ""}vitral; run = vitral.load(${pythonic(about.run ?? about.name)}); ${python}`)}>{t("Copy the Python line")}</button></li>}
          <li><button onClick={() => void copy(address())}>{t("Copy the address of this figure alone")}</button></li>
        </ul>
      </details>
    </div>
  );
}

/** A line of a figure: its name in the gutter, and the mark in the grid. */
export function Line({ name, children }: { name: ComponentChildren; children: ComponentChildren }) {
  return (
    <div class="line">
      <div class="line-name">{name}</div>
      <div class="line-mark">{children}</div>
    </div>
  );
}
