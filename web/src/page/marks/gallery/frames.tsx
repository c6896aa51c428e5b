// Frames of the two marks with most cells: one map of 1024² that is zoomed and panned, 144 small maps scrubbed by a slider.

import { render } from "preact";
import { useState } from "preact/hooks";
import { Heat } from "../heat";
import { Thumbnails } from "../thumbnails";

const letters = [..."the cat sat on a mat, and villainy "];
const named = (count: number) => Array.from({ length: count }, (_, at) => letters[at % letters.length]);
const causal = (count: number, seed: number) =>
  Float64Array.from({ length: count * count }, (_, at) => (at % count > Math.floor(at / count) ? NaN : Math.abs(Math.sin(at * 12.9898 + seed)) ** 9));

const large = { tokens: named(1024), values: causal(1024, 1) };
const small = { tokens: named(64), maps: Array.from({ length: 12 }, (_, block) => Array.from({ length: 12 }, (_, head) => ({ values: causal(64, block * 12 + head), name: `${block}.${head}` }))) };

let scrub: (row: number) => void = () => {};

function Both() {
  const [row, setRow] = useState(63);
  scrub = setRow;
  return (
    <>
      <Heat label="map" values={large.values} tokens={large.tokens} kind="share" width={900} say={({ row, column }) => `${row} ${column}`} />
      <Thumbnails label="thumbnails" maps={small.maps} tokens={small.tokens} kind="share" width={1100} row={row} say={({ row, column }) => `${row} ${column}`} />
    </>
  );
}

/** The times between frames while something is done in each. */
async function frames(count: number, act: (at: number) => void): Promise<number[]> {
  const times: number[] = [];
  for (let at = 0; at <= count; at++) {
    times.push(await new Promise<number>(requestAnimationFrame));
    act(at);
  }
  return times.slice(1).map((each, at) => each - times[at]).sort((one, other) => one - other);
}

/** What is measured: nothing, the wheel on the large map, the pointer over it, the slider of the small ones. */
async function measure(what: "idle" | "zoom" | "hover" | "scrub") {
  const node = document.querySelector(".heat-free")!;
  const frame = node.getBoundingClientRect();
  const wheel = (at: number) =>
    node.dispatchEvent(new WheelEvent("wheel", { deltaY: at % 60 < 30 ? -40 : 40, ctrlKey: true, clientX: frame.left + 300 + (at % 50), clientY: frame.top + 500, cancelable: true }));
  const hover = (at: number) =>
    node.querySelector("[role=grid]")!.dispatchEvent(new PointerEvent("pointermove", { clientX: frame.left + 100 + (at % 300), clientY: frame.top + 880, bubbles: true }));
  return frames(120, { idle: () => {}, zoom: wheel, hover, scrub: (at: number) => scrub(at % 64) }[what]);
}

render(<Both />, document.getElementById("root")!);
Object.assign(globalThis, { measure });
