// The live sheet: every given number can be edited, and everything follows. The tables say which numbers they show:
// data-quantity and data-head of a table, data-row and data-column of a cell.

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
  /** Quantities whose numbers are indices of words. */
  choices: string[];
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
  at: number;
}

export const CELLS = "table[data-quantity] td[data-row]";

/** The cell of a quantity that a cell of a table shows. */
export function placeIn(cell: HTMLElement, known: Tensors): Place | null {
  const { quantity, head } = cell.closest("table")!.dataset;
  const value = known[quantity!];
  if (!value) return null;
  const here = [Number(head ?? 0), Number(cell.dataset.row), Number(cell.dataset.column)];
  const index = here.slice(3 - value.shape.length);
  return { name: quantity!, index, at: placeOf(value.shape, index) };
}

/** The digits that a table needs: whole numbers need none. */
function enough(values: Iterable<number>, digits: number): number {
  const all = [...values].filter(Number.isFinite);
  let fewer = 0;
  while (fewer < digits && !all.every((value) => Math.abs(Number(value.toFixed(fewer)) - value) < 1e-9)) fewer++;
  return fewer;
}

export const filled = (text: string, places: Record<string, string | number>): string =>
  text.replace(/\{(\w+)\}/g, (whole, name) => String(places[name] ?? whole));

export const givenTensors = (sheet: Sheet): Tensors =>
  Object.fromEntries(
    sheet.graph.inputs.map((name, place) => {
      const numbers = sheet.given[name].map((each) => (typeof each === "string" ? (each === "inf" ? Infinity : -Infinity) : each));
      return [name, tensor(sheet.graph.shapes[place], numbers)];
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
function labelOf(cell: Element): string {
  const table = cell.closest("table");
  const row = cell.parentElement!;
  const column = [...row.children].indexOf(cell);
  const heads = table?.querySelectorAll("thead th");
  const parts = [table?.caption?.textContent, row.querySelector("th")?.textContent, heads?.[column]?.textContent];
  return parts.map((part) => part?.trim()).filter(Boolean).join(", ");
}

/** The input of a cell. */
export function field(label: string): HTMLInputElement {
  const input = document.createElement("input");
  input.inputMode = "text";
  input.autocomplete = "off";
  input.spellcheck = false;
  input.setAttribute("aria-label", label);
  return input;
}

/** Say it in the page's bar. */
export function say(bar: HTMLElement, text: string): void {
  const status = bar.querySelector("[role=status]")!;
  if (status.textContent !== text) status.textContent = text;
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

interface Result {
  cell: HTMLElement;
  place: Place;
}

export class LiveSheet {
  private readonly original: Tensors;
  private readonly first: Tensors;
  private inputs: Tensors;
  private values: Value[] = [];
  private made: Tensors;
  private readonly fields = new Map<HTMLInputElement, Place>();
  private readonly bad = new Set<HTMLInputElement>();
  private results: Result[] = [];
  private edits = 0;

  constructor(private readonly sheet: Sheet, private readonly bar: HTMLElement) {
    this.original = givenTensors(sheet);
    this.inputs = { ...this.original };
    this.first = this.made = run(sheet.graph, this.original);
    this.find();
    bar.hidden = false;
    if (!this.results.every((each) => this.agrees(each))) {
      this.say(sheet.words.differs);
      return;
    }
    bar.querySelector("button")!.addEventListener("click", () => this.reset());
    for (const table of document.querySelectorAll<HTMLTableElement>("table[data-quantity]")) {
      // After the page's own script, which shows the arithmetic of the original numbers and opens whole tables.
      const again = (event: Event) => {
        const found = this.results.find(({ cell }) => cell === (event.target as Element).closest?.("td"));
        if (found && this.edits) this.explain(found);
      };
      table.addEventListener("click", again);
      table.addEventListener("focusin", again);
      new MutationObserver(() => {
        this.opened();
        if (document.activeElement === document.body) table.querySelector("input")?.focus();
      }).observe(table, { childList: true });
    }
    this.opened();
  }

  private find(): void {
    this.results = [];
    for (const cell of document.querySelectorAll<HTMLElement>(CELLS)) {
      const place = placeIn(cell, this.first);
      if (place) this.results.push({ cell, place });
    }
  }

  /** Whether the page shows the number that this browser computes: the page checks itself before it comes alive. */
  private agrees({ cell, place }: Result): boolean {
    const value = this.first[place.name].data[place.at];
    const shown = cell.textContent!.trim();
    if (shown === this.sheet.vocabulary[value] || shown === written(value, this.sheet.digits, this.sheet.comma)) return true;
    const told = typed(shown, true);
    return told !== null && (told.value === value || Math.abs(told.value - value) <= 10 ** -told.decimals * (1 + Math.abs(value) * 1e-12));
  }

  /** The numbers of a table as text: words of the vocabulary, or numbers with the digits that they need. */
  private texts(values: Tensors, name: string, head: string | undefined): (at: number) => string {
    const { data, shape } = values[name];
    if (this.sheet.choices.includes(name)) return (at) => this.sheet.vocabulary[data[at]] ?? String(data[at]);
    const size = shape.length === 3 ? shape[1] * shape[2] : data.length;
    const start = shape.length === 3 ? Number(head ?? 0) * size : 0;
    const digits = enough(data.subarray(start, start + size), this.sheet.digits);
    return (at) => written(data[at], digits, this.sheet.comma);
  }

  /** A table has been opened or closed: its cells are new. */
  private opened(): void {
    this.find();
    for (const cell of document.querySelectorAll<HTMLElement>(CELLS)) {
      const place = placeIn(cell, this.original);
      if (place && this.sheet.editable.includes(place.name) && !cell.querySelector("input")) this.editable(cell, place);
    }
    for (const input of this.fields.keys()) if (!input.isConnected) this.fields.delete(input);
    this.update();
  }

  private editable(cell: HTMLElement, place: Place): void {
    const { name, at } = place;
    const value = () => exact(this.inputs[name].data[at], this.sheet.comma);
    const input = field(labelOf(cell));
    input.value = value();
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
    this.fields.set(input, place);
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
    for (const [input, { name, at }] of this.fields) {
      input.value = exact(this.original[name].data[at], this.sheet.comma);
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
    for (const [name, { data }] of Object.entries(this.inputs))
      for (let at = 0; at < data.length; at++) this.edits += +(data[at] !== this.original[name].data[at]);
    for (const [input, { name, at }] of this.fields)
      input.classList.toggle("edited", this.inputs[name].data[at] !== this.original[name].data[at]);
    const tables = new Map<Element, [(at: number) => string, (at: number) => string]>();
    for (const { cell, place } of this.results) {
      const table = cell.closest("table")!;
      if (!tables.has(table)) {
        const { quantity, head } = table.dataset;
        tables.set(table, [this.texts(this.made, quantity!, head), this.texts(this.first, quantity!, head)]);
      }
      const [now, before] = tables.get(table)!;
      const text = now(place.at);
      const value = this.made[place.name].data[place.at];
      if (cell.textContent !== text) cell.textContent = text;
      cell.classList.toggle("changed", Math.abs(value - this.first[place.name].data[place.at]) > 1e-9 || (text !== before(place.at) && text.includes("∞")));
      cell.classList.toggle("infinite", text.includes("∞"));
      if (cell.style.getPropertyValue("--heat")) cell.style.setProperty("--heat", String(value || 0));
    }
    document.body.classList.toggle("edited", this.edits > 0);
    this.labels();
    this.chosen();
    this.status();
  }

  /** The arithmetic that is open on the page: of the chosen cells, and of those worked out beside them. */
  private chosen(): void {
    for (const each of this.results)
      if (each.cell.getAttribute("aria-selected") === "true") this.explain(each);
    for (const box of document.querySelectorAll(".cells")) {
      const also = [...box.querySelectorAll<HTMLElement>("td.also")];
      const told = box.querySelectorAll<HTMLElement>(".beside-told");
      told.forEach((each, place) => {
        const kept = (each.dataset.kept ??= each.innerHTML); // what the page said first
        const result = this.results.find(({ cell }) => cell === also[place]);
        each.innerHTML = (this.edits && result && this.equation(result)) || kept;
      });
    }
  }

  private equation({ place }: Result): string | null {
    const { name, index, at } = place;
    const found = this.sheet.unexplained.includes(name) ? null : arithmetic(this.sheet.graph, this.values, name, at);
    const how = manner(this.sheet);
    return found && equation(cellName(name, index, how.first), found, this.made[name].data[at], how);
  }

  private explain(result: Result): void {
    const told = result.cell.closest(".cells")?.querySelector<HTMLElement>(".told:not(.beside-told)");
    if (!told) return;
    const made = this.edits ? this.equation(result) : null;
    if (made) told.innerHTML = made;
    else {
      if (!this.edits && told.dataset.live) result.cell.dispatchEvent(new FocusEvent("focusin", { bubbles: true }));
      if (this.edits) told.prepend(this.note(this.sheet.words.arithmetic), " ");
    }
    told.dataset.live = this.edits ? "1" : "";
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
    for (const step of document.querySelectorAll("details"))
      if (this.results.some(({ cell }) => step.contains(cell)))
        for (const said of step.querySelectorAll(":scope > p:not(.formula)"))
          if (!said.textContent!.startsWith("[")) said.append(" ", this.note(this.sheet.words.original));
    for (const figure of document.querySelectorAll("figure > figcaption")) figure.append(" ", this.note(this.sheet.words.original));
    for (const table of document.querySelectorAll<HTMLTableElement>("table[data-quantity]"))
      if (this.sheet.stale.includes(table.dataset.quantity!)) (table.caption ?? table.closest(".cells"))?.append(" ", this.note(this.sheet.words.stale));
  }

  private status(): void {
    const { words } = this.sheet;
    const changed = this.results.filter(({ cell }) => cell.classList.contains("changed")).length;
    const button = this.bar.querySelector("button")!;
    button.disabled = !this.edits && !this.bad.size && document.activeElement !== button;
    const nan = Object.values(this.made).some((each) => each.data.some(Number.isNaN));
    const sums = this.sheet.editable.filter((name) => SHARES.includes(name) && this.uneven(this.inputs[name]));
    const said = this.edits ? filled(words.changed, { edited: this.edits, changed, all: this.results.length }) : words.ready;
    this.say([said, nan ? words.nan : "", ...sums.map((name) => filled(words.shares, { name }))].filter(Boolean).join(" "));
  }

  /** Whether a row of shares does not add up to one. */
  private uneven(value: Tensor): boolean {
    const width = value.shape[value.shape.length - 1];
    for (let start = 0; start < value.data.length; start += width) {
      const total = Array.from(value.data.subarray(start, start + width)).reduce((all, each) => all + each, 0);
      if (total !== 0 && Math.abs(total - 1) > 0.02) return true;
    }
    return false;
  }

  private say(text: string): void {
    say(this.bar, text);
  }
}
