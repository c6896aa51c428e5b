// A worker of the page: its own script once more, from a blob, which the policy of a page that carries its model allows.

import type { Tensors } from "../../graph";
import type { Swept, Tell } from "../source";
import { ModelGraph, Program } from "./program";
import { swept } from "./swept";

/** Milliseconds after which a worker tells what it has. */
const PIECE = 40;

/** The model, once; then questions, of which the last one counts, and which null ends. */
type Said = { graph: ModelGraph; weights: Tensors } | { ask: number; asked: Swept | null };
/** Some differences; the last answer has none. */
interface Answer { ask: number; first: number; differences: readonly number[] }

/** Whether this script runs as a worker. */
export const isBackground = typeof document === "undefined" && "importScripts" in globalThis;

/** What a worker does. */
export function work(): void {
  let program: Program;
  let last = 0;
  addEventListener("message", ({ data }: MessageEvent<Said>) => {
    if ("graph" in data) return void (program = new Program(data.graph, data.weights));
    const { ask, asked } = data;
    last = ask;
    const tell: Tell = (first, differences) => postMessage({ ask, first, differences } satisfies Answer);
    const fail = (error: unknown) => setTimeout(() => { throw error; }); // the page hears of errors alone
    if (asked) swept(program, asked, tell, () => last === ask, PIECE).then(() => tell(0, []), fail);
  });
}

export class Background {
  private worker: Worker | null = null;
  private last = 0;

  constructor(graph: ModelGraph, weights: Tensors) {
    const script = typeof document === "undefined" ? null : document.querySelector("body > script:not([type])");
    if (!script || typeof Worker === "undefined") return;
    this.worker = new Worker(URL.createObjectURL(new Blob([script.textContent])));
    this.worker.postMessage({ graph, weights } satisfies Said);
  }

  /** Whether a worker has answered; what is overtaken gets no answer. */
  sweep(asked: Swept, tell: Tell, isWanted: () => boolean): Promise<boolean> {
    const { worker } = this;
    if (!worker) return Promise.resolve(false);
    const ask = ++this.last;
    return new Promise((resolve) => {
      worker.onerror = () => {
        this.worker = null;
        resolve(false);
      };
      worker.onmessage = ({ data }: MessageEvent<Answer>) => {
        if (data.ask !== ask) return;
        if (!isWanted()) worker.postMessage({ ask: 0, asked: null } satisfies Said);
        else if (data.differences.length) tell(data.first, data.differences);
        else resolve(true);
      };
      worker.postMessage({ ask, asked } satisfies Said);
    });
  }
}
