// A process that answers questions about a GGUF file by node-llama-cpp, each a line of JSON.
"use strict";
const { createInterface } = require("node:readline");
const { pathToFileURL } = require("node:url");

const [module_, path, contextLength] = process.argv.slice(2);
// The answers alone go to the standard output.
console.log = console.info = console.warn = console.error;

async function opened() {
  const { getLlama, LlamaLogLevel } = await import(pathToFileURL(module_).href);
  const logger = (_level, message) => process.stderr.write(message + "\n");
  const llama = await getLlama({ gpu: false, maxThreads: 1, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error, logger });
  const model = await llama.loadModel({ modelPath: path });
  const size = Number(contextLength);
  // One thread: more of them wait for each other on a busy machine. One place more: a full context would be shifted.
  const context = await model.createContext({ contextSize: size + 1, batchSize: size + 1, threads: { ideal: 1, min: 1 } });
  return { model, sequence: context.getSequence() };
}

function encoded(rows) {
  const size = rows[0].next.logits.size;
  const all = new Float32Array(rows.length * size);
  rows.forEach((row, index) => row.next.logits.forEach((logit, token) => { all[index * size + token] = logit; }));
  return Buffer.from(all.buffer).toString("base64");
}

async function answer({ model, sequence }, question) {
  const options = { temperature: 0 };
  if ("text" in question) return { ids: [...model.tokenize(question.text, true)] };
  if ("ids" in question) return { text: model.detokenize(question.ids, true) };
  if ("logits" in question) {
    await sequence.clearHistory();
    const asked = question.logits.map((token) => [token, { generateNext: { logits: true, options } }]);
    return { logits: encoded(await sequence.controlledEvaluate(asked)) };
  }
  if ("greedy" in question) {
    await sequence.clearHistory();
    const ids = [];
    let fed = question.greedy;
    while (ids.length < question.count) {
      const asked = fed.map((token, index) =>
        index + 1 < fed.length ? token : [token, { generateNext: { token: true, options } }]);
      const found = await sequence.controlledEvaluate(asked);
      ids.push(found[fed.length - 1].next.token);
      fed = ids.slice(-1);
    }
    return { ids };
  }
  return { ready: true };
}

async function main() {
  const held = await opened();
  for await (const line of createInterface({ input: process.stdin })) {
    let found;
    try {
      found = await answer(held, JSON.parse(line));
    } catch (error) {
      found = { error: String(error.message || error) };
    }
    process.stdout.write(JSON.stringify(found) + "\n");
  }
}

main().catch((error) => {
  process.stderr.write(String(error.message || error) + "\n");
  process.exit(1);
});
