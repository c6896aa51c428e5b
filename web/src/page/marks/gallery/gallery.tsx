// All marks on one page, to be looked at while they are made. It is in no bundle; data.json is traced from a run.

import { render } from "preact";
import { useState } from "preact/hooks";
import { Arcs } from "../arcs";
import { BarList, Hanging, Unrolled } from "../bars";
import { layOut } from "../columns";
import { useWidth } from "../drawn";
import { Flow } from "../flow";
import { seriate } from "../glass";
import { Heat } from "../heat";
import { Lens } from "../lens";
import { Panes } from "../panes";
import { length, written } from "../plain";
import { Rod } from "../rod";
import { Thumbnails } from "../thumbnails";
import { Tree } from "../tree";
import { Walk } from "../walk";
import "../../reading";

interface Data { tokens: string[]; ids: number[]; vocab: string[]; layers: number; values: Record<string, { shape: number[]; data: (number | null)[] }> }
declare const DATA: Data;

const { tokens, ids, vocab, layers, values } = DATA;
const T = tokens.length;
const numbers = (name: string) => Float64Array.from(values[name].data, (each) => each ?? -Infinity);
const heads = values["blocks.0.attn.weights"].shape[1];
const d = values.embed.shape[2];
const map = (block: number, head: number, step = "weights") => {
  const masked = numbers(`blocks.${block}.attn.masked`);
  const made = numbers(`blocks.${block}.attn.${step}`);
  return made.map((each, at) => (step === "weights" && masked[at] === -Infinity ? NaN : each)).subarray(head * T * T, (head + 1) * T * T);
};
const mean = (block: number) => {
  const all = numbers(`blocks.${block}.attn.weights`);
  return Float64Array.from({ length: T * T }, (_, at) => Array.from({ length: heads }, (_, head) => all[head * T * T + at]).reduce((a, b) => a + b, 0) / heads);
};
const stream = ["embed", ...Array.from({ length: layers }, (_, at) => [`blocks.${at}.resid_mid`, `blocks.${at}.resid_post`]).flat()];
const V = vocab.length;
const lens = stream.map((name) => numbers(`lens.${name}`));
const best = (cells: Float64Array, time: number) => {
  let at = 0;
  for (let each = 1; each < V; each++) if (cells[time * V + each] > cells[time * V + at]) at = each;
  return at;
};
const order = seriate(Float64Array.from(stream.flatMap((name) => [...numbers(name)])), d);
const maps = Array.from({ length: layers }, (_, block) => Array.from({ length: heads }, (_, head) => ({ values: map(block, head), name: `${block}.${head}`, kind: "previous" })));

function Gallery() {
  const [node, width] = useWidth();
  const [row, setRow] = useState(T - 1);
  const [step, setStep] = useState("weights");
  const [head, setHead] = useState({ row: layers - 1, column: 0 });
  const [u, setU] = useState(0.62);
  const narrow = width < 700;
  const gutter = narrow ? 0 : 132;
  const lane = narrow ? 46 : 104;
  const inner = width - gutter;
  const columns = layOut(tokens, inner - (narrow ? lane + 60 : 250), row);
  const final = lens[lens.length - 1];
  const losses = Float64Array.from(tokens, (_, at) => (at ? -Math.log(final[(at - 1) * V + ids[at]]) : NaN));
  const lines = losses.map((each) => each * 0.7 + 0.6);
  const shares = final.subarray(row * V, (row + 1) * V);
  const ranked = Array.from(shares, (_, at) => at).sort((a, b) => shares[b] - shares[a]);
  const at = (name: string) => numbers(name).subarray(row * d, (row + 1) * d);
  const rows = stream.map((name, index) => {
    const says = best(lens[index], row);
    return { name, vectors: numbers(name), says: { token: vocab[says], probability: lens[index][row * V + says], text: written(lens[index][row * V + says]) } };
  });
  const parts = Array.from({ length: layers }, (_, block) => {
    const links = mean(block);
    return [
      { kind: "attention" as const, length: length(at(`blocks.${block}.attn.out`)), weights: links.subarray(row * T, (row + 1) * T), links },
      { kind: "feed-forward" as const, length: length(at(`blocks.${block}.mlp.out`)) },
    ];
  }).flat();
  const terms = [1.42, 0.47, -0.81, 1.1, -0.3, 0.2, -0.05].map((value, place) => ({ name: `part ${place}`, value }));
  return (
    <div ref={node}>
      {width > 0 && (
        <div style={{ paddingLeft: `${gutter}px` }}>
          <h1>Which letter comes after <em>“{tokens.join("")}”</em>?</h1>
          <Panes label="The sentence" panes={tokens.map((token) => ({ token }))} columns={columns} chosen={row} open="?" say={(at) => tokens[at]} onPick={({ column }) => setRow(column)} />
          <p />
          <Hanging label="Surprise" tokens={tokens} columns={columns} values={losses} lines={lines} unit="nats" say={(at) => `${tokens[at]} ${written(losses[at])}`} />
          <h2>Each letter becomes a pane of glass, and gathers light from the panes before it.</h2>
          <Flow label="Flow" tokens={tokens} columns={columns} chosen={row} rows={rows} parts={parts} start={length(at("embed"))} order={order} lane={lane} margin={narrow ? 30 : 96}
            say={(spot) => `${tokens[spot.column]} ${stream[spot.row]}`} onPick={({ column }) => setRow(column)} />
          <Unrolled label="Vector" values={at(stream[stream.length - 1])} token={tokens[row]} width={columns.edges[T]} order={order} name={(dimension) => `dimension ${dimension}`} />
          <h2>A head decides who looks at whom.</h2>
          <input aria-label="row" type="range" min={0} max={T - 1} value={row} onInput={(event) => setRow(Number(event.currentTarget.value))} />
          <Thumbnails label="Heads" maps={maps} tokens={tokens} kind="share" width={Math.min(inner, 620)} picked={head} onPick={setHead} say={(spot) => `${spot.row}.${spot.column}`} />
          <Arcs label="Arcs" tokens={tokens} columns={columns} weights={map(head.row, head.column)} row={row} say={(at) => written(map(head.row, head.column)[row * T + at])} />
          <p>{["scores", "scaled", "masked", "weights"].map((each) => <button key={each} onClick={() => setStep(each)} aria-pressed={each === step}>{each}</button>)}</p>
          <div style={{ marginLeft: `${-gutter}px` }}>
            <Heat label="Map" values={map(head.row, head.column, step)} tokens={tokens} kind={step === "weights" ? "share" : "signed"} columns={columns} row={row} gutter={gutter}
              picked={{ row, column: Math.max(0, row - 1) }} say={({ row: time, column }) => `${tokens[time]} → ${tokens[column]} ${written(map(head.row, head.column, step)[time * T + column], 3)}`} onPick={(spot) => setRow(spot.row)} />
          </div>
          <h2>When does it know?</h2>
          <Lens label="Lens" columns={columns} chosen={row} truth={[...tokens.slice(1), ""]} say={(line, column) => `${stream[line]} ${vocab[best(lens[line], column)]}`}
            rows={stream.map((name, line) => ({ name, cells: tokens.map((_, time) => { const one = best(lens[line], time); return { token: vocab[one], probability: lens[line][time * V + one], right: one === ids[time + 1] }; }) }))} />
          <h2>Why?</h2>
          <Walk label="Walk" terms={terms} total={2.03} width={Math.min(inner, 900)} plus="n" minus="i" say={(line) => terms[line].name} />
          <Walk label="Walk" terms={[...terms, ...Array.from({ length: 12 }, (_, place) => ({ name: "", value: Math.sin(place) / 6, small: true }))]} total={2.1} width={Math.min(inner, 900)} plus="e" say={(line) => terms[line]?.name ?? ""} />
          <h2>Then it draws.</h2>
          <BarList label="Likeliest" width={Math.min(inner, 620)} rows={ranked.slice(0, 8).map((each) => ({ token: vocab[each], value: shares[each], before: written(Math.log(shares[each])), after: written(shares[each], 3), tick: shares[each] * 0.6 + 0.02 }))} say={(line) => vocab[ranked[line]]} />
          <p />
          <Rod label="The draw" tokens={vocab} shares={shares} others={[shares]} u={u} onDraw={setU} width={Math.min(inner, 1100)} say={(value, token) => `${value} ${vocab[token]}`} />
          <p />
          <Tree label="Beams" width={Math.min(inner, 800)} say={(each) => String(each)} nodes={[
            { token: "n", parent: -1, share: 0.5, kept: true, best: true, note: "−0.69" }, { token: "i", parent: -1, share: 0.43, kept: true, note: "−0.84" }, { token: "r", parent: -1, share: 0.02 },
            { token: "y", parent: 0, share: 0.7, kept: true, best: true, note: "−1.05" }, { token: "e", parent: 0, share: 0.2 }, { token: "n", parent: 1, share: 0.95, kept: true, note: "−0.89" },
            { token: " ", parent: 3, share: 0.8, kept: true, best: true }, { token: ",", parent: 3, share: 0.1 }, { token: "o", parent: 5, share: 0.8, kept: true },
          ]} />
        </div>
      )}
    </div>
  );
}

render(<Gallery />, document.getElementById("root")!);
