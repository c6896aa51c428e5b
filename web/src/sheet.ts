// The live sheet: every given number can be edited, and everything follows. Cells are marked by Python with
// data-cell="scores/0,2,1": the quantity, and the index of its cell.

import { arithmetic } from "./arithmetic";
import { Graph, Tensors, evaluate, run } from "./graph";
import { Value } from "./operations";
import { Tensor, placeOf, tensor } from "./tensors";
import { typed } from "./typed";
import { Manner, cellName, equation, written } from "./writing";

export interface Sheet {
  graph: Graph;
  given: Record<string, (number | string)[]>;
  /** Given quantities whose cells can be edited. */
  editable: string[];
  /** Quantities that the graph does not have. */
  stale: string[];
  /** Quantities of which only the value is computed again. */
  unexplained: string[];
  vocabulary: string[];
  digits: number;
  comma: boolean;
  first: number;
  words: Record<string, string>;
}

export interface Place {
  name: string;
  index: number[];
}

export const placeIn = (cell: Element): Place => {
  const [name, index] = cell.getAttribute("data-cell")!.split("/");
  return { name, index: index ? index.split(",").map(Number) : [] };
};

export const filled = (text: string, places: Record<string, string | number>): string =>
  text.replace(/\{(\w+)\}/g, (whole, name) => String(places[name] ?? whole));

export const givenTensors = (sheet: Sheet): Tensors =>
  Object.fromEntries(
    sheet.graph.inputs.map((name, place) => {
      const numbers = sheet.given[name].map((each) => (typeof each === "string" ? (each === "inf" ? Infinity : -Infinity) : each));
      return [name, tensor(sheet.graph.shapes[place] as number[], numbers)];
    }),
  );

export const manner = (sheet: Sheet): Manner => ({ digits: sheet.digits, comma: sheet.comma, first: sheet.first, more: sheet.words.more });

const SHARES = ["weights", "probabilities", "next"];
const INFINITE = ["masked", "logits"];

/** A number for an input: all its digits, in the language's form. */
function exact(value: number, comma: boolean): string {
  const text = Math.abs(value) === Infinity ? (value > 0 ? "∞" : "−∞") : String(value).replace("-", "−");
  return comma ? text.replace(".", ",") : text;
}

/** The name of a cell for a screen reader: table, row, column. */
export function labelOf(cell: Element): string {
  const table = cell.closest("table");
  const row = cell.parentElement!;
  const column = [...row.children].indexOf(cell);
  const heads = table?.querySelectorAll("thead th");
  const parts = [table?.caption?.textContent, row.querySelector("th")?.textContent, heads?.[column]?.textContent];
  return parts.map((part) => part?.trim()).filter(Boolean).join(", ");
}

/** Up, down and Enter go to the neighbour above or below; Escape gives up. */
export function travel(input: HTMLInputElement, giveUp: () => void): void {
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return giveUp();
    const step = { ArrowUp: -1, ArrowDown: 1, Enter: event.shiftKey ? -1 : 1 }[event.key];
    if (!step) return;
    const cell = input.closest("td")!;
    const row = cell.parentElement!;
    const rows = [...row.parentElement!.children];
    const next = rows[rows.indexOf(row) + step]?.children[[...row.children].indexOf(cell)]?.querySelector("input");
    event.preventDefault();
    if (next) {
      next.focus();
      next.select();
    } else if (event.key === "Enter") input.dispatchEvent(new Event("change"));
  });
}

export class LiveSheet {
  private readonly original: Tensors;
  private readonly first: Tensors;
  private inputs: Tensors;
  private values: Value[] = [];
  private made: Tensors;
  private readonly fields = new Map<string, HTMLInputElement>();
  private readonly bad = new Set<HTMLInputElement>();
  private readonly results: { cell: HTMLElement; place: Place; at: number }[] = [];
  private edits = 0;

  constructor(private readonly sheet: Sheet, private readonly bar: HTMLElement) {
    this.original = givenTensors(sheet);
    this.inputs = { ...this.original };
    this.first = run(sheet.graph, this.original);
    this.made = this.first;
    this.find();
    const differs = this.results.find(({ cell, place, at }) => !this.agrees(cell, this.first[place.name].data[at]));
    if (differs) {
      this.say(sheet.words.differs);
      bar.hidden = false;
      return;
    }
    this.open();
  }

  private find(): void {
    for (const cell of document.querySelectorAll<HTMLElement>("[data-cell]")) {
      const place = placeIn(cell);
      const value = this.first[place.name];
      if (value) this.results.push({ cell, place, at: placeOf(value.shape, place.index) });
    }
  }

  /** Whether the page shows the number that this browser computes: the page checks itself before it comes alive. */
  private agrees(cell: HTMLElement, value: number): boolean {
    const shown = cell.textContent!.trim();
    const mine = this.text(cell, value);
    if (shown === mine) return true;
    const unit = 10 ** -this.sheet.digits;
    const told = typed(shown, true);
    return told !== null && Math.abs(told.value - value) <= unit * (1 + Math.abs(value) * 1e-12);
  }

  private text(cell: HTMLElement, value: number): string {
    return cell.dataset.word === undefined ? written(value, this.sheet.digits, this.sheet.comma) : (this.sheet.vocabulary[value] ?? String(value));
  }

  private open(): void {
    for (const cell of document.querySelectorAll<HTMLElement>("td[data-cell]")) {
      const place = placeIn(cell);
      if (this.sheet.editable.includes(place.name)) this.editable(cell, place);
    }
    if (!this.fields.size) return;
    this.bar.hidden = false;
    this.bar.querySelector("button")!.addEventListener("click", () => this.reset());
    // After the script of the page, which shows the arithmetic of the original numbers.
    for (const { cell, place, at } of this.results) {
      const again = () => this.edits && this.explain(cell, place, at);
      cell.addEventListener("click", again);
      cell.addEventListener("focus", again);
    }
    this.update();
  }

  private editable(cell: HTMLElement, { name, index }: Place): void {
    const at = placeOf(this.original[name].shape, index);
    const value = () => exact(this.inputs[name].data[at], this.sheet.comma);
    const input = document.createElement("input");
    input.inputMode = "text";
    input.autocomplete = "off";
    input.spellcheck = false;
    input.value = value();
    input.setAttribute("aria-label", labelOf(cell));
    const fit = () => input.style.setProperty("width", `${Math.max(input.value.length, 2) + 1.5}ch`);
    const read = (final: boolean) => {
      const told = typed(input.value, INFINITE.includes(name));
      const valid = told !== null && !(SHARES.includes(name) && told.value < 0);
      input.setAttribute("aria-invalid", String(!valid));
      this.bad[valid ? "delete" : "add"](input);
      fit();
      if (valid) {
        if (told.value !== this.inputs[name].data[at]) this.set(name, at, told.value);
        else if (final) this.status();
      } else if (final) this.say(filled(this.sheet.words.bad, { typed: input.value, kept: value() }));
    };
    input.addEventListener("input", () => read(false));
    input.addEventListener("change", () => read(true));
    travel(input, () => {
      input.value = value();
      read(true);
    });
    cell.classList.remove("quiet");
    cell.classList.add("given");
    cell.removeAttribute("tabindex");
    cell.replaceChildren(input);
    this.fields.set(`${name}/${at}`, input);
    fit();
  }

  private set(name: string, at: number, value: number): void {
    const data = this.inputs[name].data.slice();
    data[at] = value;
    this.inputs = { ...this.inputs, [name]: { shape: this.inputs[name].shape, data } };
    this.update();
  }

  private reset(): void {
    this.inputs = { ...this.original };
    this.bad.clear();
    for (const [key, input] of this.fields) {
      const [name, at] = key.split("/");
      input.value = exact(this.original[name].data[+at], this.sheet.comma);
      input.setAttribute("aria-invalid", "false");
      input.dispatchEvent(new Event("input"));
    }
    this.update();
    this.say(this.sheet.words.restored);
  }

  private update(): void {
    const { graph } = this.sheet;
    this.values = evaluate(graph, this.inputs);
    this.made = Object.fromEntries(Object.entries(graph.outputs).map(([name, place]) => [name, this.values[place] as Tensor]));
    this.edits = 0;
    for (const [key, input] of this.fields) {
      const [name, at] = key.split("/");
      const edited = this.inputs[name].data[+at] !== this.original[name].data[+at];
      this.edits += +edited;
      input.classList.toggle("edited", edited);
    }
    let changed = 0;
    for (const { cell, place, at } of this.results) {
      const value = this.made[place.name].data[at];
      const text = this.text(cell, value);
      const differs = text !== this.text(cell, this.first[place.name].data[at]);
      changed += +differs;
      if (cell.textContent !== text) cell.textContent = text;
      cell.classList.toggle("changed", differs);
      cell.classList.toggle("infinite", text.includes("∞"));
      if (cell.style.getPropertyValue("--heat")) cell.style.setProperty("--heat", value.toFixed(3));
    }
    document.body.classList.toggle("edited", this.edits > 0);
    this.labels();
    this.chosen();
    this.status(changed);
  }

  /** The cells whose arithmetic is open on the page. */
  private chosen(): void {
    for (const { cell, place, at } of this.results)
      if (cell.getAttribute("aria-selected") === "true") this.explain(cell, place, at);
  }

  private explain(cell: HTMLElement, { name, index }: Place, at: number): void {
    const box = cell.closest(".cells");
    const told = box?.querySelector<HTMLElement>(".told");
    if (!told) return;
    const original = box!.querySelector(".workings")?.children[Number(cell.dataset.told)];
    if (!this.edits && original) return told.replaceChildren(...original.cloneNode(true).childNodes);
    const how = manner(this.sheet);
    const value = this.made[name].data[at];
    const found = this.sheet.unexplained.includes(name) ? null : arithmetic(this.sheet.graph, this.values, name, at);
    if (found) told.innerHTML = equation(cellName(name, index, how.first), found, value, how);
    else if (original) told.replaceChildren(this.note(this.sheet.words.arithmetic), ...original.cloneNode(true).childNodes);
  }

  private note(text: string): HTMLElement {
    const note = document.createElement("small");
    note.className = "original";
    note.textContent = text;
    return note;
  }

  /** Beside what stays as it was: sentences, and quantities that the graph lacks. */
  private labels(): void {
    for (const old of document.querySelectorAll(".original")) old.remove();
    if (!this.edits) return;
    for (const said of document.querySelectorAll("details > p:not(.formula)")) said.append(" ", this.note(this.sheet.words.original));
    const stale = new Set<Element>();
    for (const cell of document.querySelectorAll("[data-cell]"))
      if (this.sheet.stale.includes(placeIn(cell).name)) stale.add(cell.closest("table")?.caption ?? cell);
    for (const caption of stale) caption.append(" ", this.note(this.sheet.words.stale));
  }

  private status(changed = document.querySelectorAll("[data-cell].changed").length): void {
    const { words } = this.sheet;
    this.bar.querySelector("button")!.disabled = !this.edits && !this.bad.size;
    const nan = Object.values(this.made).some((each) => each.data.some(Number.isNaN));
    const sums = this.sheet.editable.filter((name) => SHARES.includes(name) && this.uneven(this.inputs[name]));
    const said = this.edits ? filled(words.changed, { edited: this.edits, changed, all: this.results.length }) : words.ready;
    this.say([said, nan ? words.nan : "", ...sums.map((name) => filled(words.shares, { name }))].filter(Boolean).join(" "));
  }

  /** Whether a row of shares does not add up to one. */
  private uneven(value: Tensor): boolean {
    const width = value.shape[value.shape.length - 1];
    for (let start = 0; start < value.data.length; start += width) {
      const total = value.data.slice(start, start + width).reduce((all, each) => all + each, 0);
      if (total !== 0 && Math.abs(total - 1) > 0.02) return true;
    }
    return false;
  }

  private say(text: string): void {
    const status = this.bar.querySelector("[role=status]")!;
    if (status.textContent !== text) status.textContent = text;
  }
}
