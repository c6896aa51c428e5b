// The exercise: cells to fill in, each with its verdict at once. The answers are computed here, from the given numbers.

import { Edits, Tensors, run } from "./graph";
import { CELLS, Sheet, field, filled, givenTensors, placeIn, say, travel } from "./sheet";
import { Typed, typed } from "./typed";
import { Verdict, verdict } from "./verdicts";

export interface Exercise extends Sheet {
  /** Quantities to fill in, in the order of the computation. */
  blanks: string[];
  decimals: number;
  /** The file, cut at its blanks: texts, and the cells between them. */
  file: (string | { cell: string })[];
  fileName: string;
}

const ICONS: Record<Verdict, string> = { right: "✓", rounding: "≈", follows: "↪", doubtful: "?", short: "…", wrong: "✗" };
const FINE: Verdict[] = ["right", "rounding"];

interface Blank {
  name: string;
  at: number;
  cell: HTMLElement;
  input: HTMLInputElement;
  mark: HTMLElement;
  answer: Typed | null;
  bad: boolean;
  verdict: Verdict | null;
}

export class ExerciseSheet {
  private readonly inputs: Tensors;
  private readonly truth: Tensors;
  private readonly blanks: Blank[] = [];
  private readonly byCell = new Map<string, Blank>();
  private readonly text = document.createElement("pre");
  private readonly link: HTMLAnchorElement | null;

  constructor(private readonly sheet: Exercise, private readonly bar: HTMLElement) {
    this.inputs = givenTensors(sheet);
    this.link = bar.querySelector("a[download]");
    this.truth = run(sheet.graph, this.inputs);
    for (const cell of document.querySelectorAll<HTMLElement>(CELLS)) {
      const place = placeIn(cell, this.truth);
      if (place && sheet.blanks.includes(place.name)) this.open(cell, place.name, place.at);
    }
    const details = document.createElement("details");
    details.append(document.createElement("summary"), this.text);
    details.firstElementChild!.textContent = sheet.words.text;
    this.text.tabIndex = 0;
    if (sheet.file.length) document.querySelector("main")!.append(details);
    this.askName();
    bar.hidden = false;
    bar.querySelector("button")!.addEventListener("click", () => this.clear());
    this.judge();
  }

  /** The place of a cell in words: "q, row 1, column 4"; with several heads that of the head too. */
  private place(cell: HTMLElement): string {
    const { quantity, head } = cell.closest("table")!.dataset;
    const counted = (index?: string) => Number(index) + this.sheet.first;
    const { shape } = this.truth[quantity!];
    const words = shape.length === 3 && shape[0] > 1 ? this.sheet.words.place_head : this.sheet.words.place;
    const { row, column } = cell.dataset;
    return filled(words, { quantity: quantity!, head: counted(head), row: counted(row), column: counted(column) });
  }

  /** The file is saved under the student's name: vitral grade knows students by their files. */
  private askName(): void {
    const { link } = this;
    if (!link) return;
    const label = document.createElement("label");
    const student = document.createElement("input");
    student.autocomplete = "name";
    label.append(this.sheet.words.student, " ", student);
    link.before(label, " ");
    const file = link.download;
    const show = () => {
      const name = student.value.replace(/[^\p{L}\p{N} .'-]/gu, "").trim();
      link.hidden = !name;
      link.download = `${name} ${file}`;
      link.textContent = filled(this.sheet.words.file, { name: link.download });
    };
    student.addEventListener("input", show);
    show();
  }

  private open(cell: HTMLElement, name: string, at: number): void {
    const input = field(this.place(cell));
    const mark = document.createElement("span");
    mark.className = "mark";
    mark.id = `mark-${this.blanks.length}`;
    input.setAttribute("aria-describedby", mark.id);
    const blank: Blank = { name, at, cell, input, mark, answer: null, bad: false, verdict: null };
    cell.classList.add("blank");
    cell.replaceChildren(input, mark);
    this.blanks.push(blank);
    this.byCell.set(`${name}/${at}`, blank);
    input.addEventListener("input", () => this.wait(blank));
    input.addEventListener("change", () => this.read(blank));
    travel(input, () => {
      input.value = "";
      this.read(blank);
    });
  }

  /** While a number is typed, its old verdict is gone. */
  private wait(blank: Blank): void {
    blank.answer = null;
    blank.bad = false;
    this.show(blank, null);
  }

  private read(blank: Blank): void {
    const text = blank.input.value.trim();
    blank.answer = text ? this.answer(blank, text) : null;
    blank.bad = text !== "" && blank.answer === null;
    this.judge();
    if (blank.bad) {
      this.say(filled(this.sheet.words.unreadable_at, { cell: this.place(blank.cell), typed: text }));
    } else if (blank.verdict) this.say(`${this.place(blank.cell)}: ${this.sheet.words[blank.verdict]}. ${this.progress()}`);
  }

  private answer(blank: Blank, text: string): Typed | null {
    if (!this.sheet.choices.includes(blank.name)) return typed(text, true);
    const value = this.sheet.vocabulary.indexOf(text);
    return value < 0 ? null : { value, decimals: 0, toml: JSON.stringify(text) };
  }

  /** Judge every cell again: a later one may follow from an earlier one that has changed. */
  private judge(): void {
    const expected: Tensors = {};
    const edits: Edits = {};
    for (const name of this.sheet.blanks)
      edits[name] = (value) => {
        expected[name] = value;
        const data = value.data.slice();
        for (const blank of this.blanks) if (blank.name === name && blank.answer) data[blank.at] = blank.answer.value;
        return { shape: value.shape, data };
      };
    run(this.sheet.graph, this.inputs, edits);
    let sound = true;
    for (const name of this.sheet.blanks) {
      const here = this.blanks.filter((blank) => blank.name === name);
      for (const blank of here) {
        const goal = this.truth[name].data[blank.at];
        const made = blank.answer && verdict(blank.answer, goal, expected[name].data[blank.at], sound, this.sheet.choices.includes(name) ? 0 : this.sheet.decimals);
        this.show(blank, made);
      }
      sound = sound && here.every((blank) => !blank.verdict || FINE.includes(blank.verdict));
    }
    this.say(this.progress());
    this.write();
  }

  private show(blank: Blank, made: Verdict | null): void {
    blank.verdict = made;
    blank.cell.dataset.verdict = made ?? "";
    blank.input.setAttribute("aria-invalid", String(blank.bad));
    const words = made ? `${ICONS[made]} ${this.sheet.words[made]}` : blank.bad ? `⚠ ${this.sheet.words.unreadable}` : "";
    if (blank.mark.textContent !== words) blank.mark.textContent = words;
  }

  private progress(): string {
    const count = (wanted: Verdict[]) => this.blanks.filter((blank) => blank.verdict && wanted.includes(blank.verdict)).length;
    const answered = this.blanks.filter((blank) => blank.answer).length;
    return filled(this.sheet.words.progress, {
      answered,
      all: this.blanks.length,
      right: count(FINE),
      follows: count(["follows"]),
      open: count(["doubtful", "short"]),
      wrong: count(["wrong"]),
    });
  }

  /** The filled sheet as a file, and as text where a page may not write files. */
  private write(): void {
    const text = this.sheet.file
      .map((part) => (typeof part === "string" ? part : (this.byCell.get(part.cell)?.answer?.toml ?? '"?"')))
      .join("");
    if (this.link) this.link.href = `data:application/toml;charset=utf-8,${encodeURIComponent(text)}`;
    this.text.textContent = text;
  }

  private clear(): void {
    for (const blank of this.blanks) {
      blank.input.value = "";
      this.wait(blank);
    }
    this.judge();
    this.blanks[0]?.input.focus();
  }

  private say(text: string): void {
    say(this.bar, text);
  }
}
