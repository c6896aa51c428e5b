// The script of pages that compute; for tests, its parts by name.

import { arithmetic, worth } from "./arithmetic";
import { Exercise, ExerciseSheet } from "./exercise";
import { evaluate, run } from "./graph";
import { OPERATIONS } from "./operations";
import { LiveSheet } from "./sheet";
import { tensor } from "./tensors";
import { typed } from "./typed";
import { verdict } from "./verdicts";
import { equation, shortest, written } from "./writing";

export { OPERATIONS, arithmetic, equation, evaluate, run, shortest, tensor, typed, verdict, worth, written };

if (typeof document !== "undefined") {
  const bar = document.querySelector<HTMLElement>(".live");
  const data = document.getElementById("live-data")?.textContent;
  if (bar && data) {
    const sheet: Exercise = JSON.parse(data);
    if (sheet.blanks.length) new ExerciseSheet(sheet, bar);
    else new LiveSheet(sheet, bar);
  }
}
