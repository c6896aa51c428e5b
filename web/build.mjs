// Bundles the scripts into the Python package: live.js of pages that compute, and the page's own files. With a folder
// as argument, everything is written there instead.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { sentences } from "./words.mjs";

const banner = (source) => `Made from web/${source} by "make web"; do not edit. Apache-2.0.`;
const [given] = process.argv.slice(2);
const [templates, page] = given ? [given, given] : ["../src/vitral/figures/templates", "../src/vitral/page/assets"];
mkdirSync(page, { recursive: true });

const common = { bundle: true, minify: true, charset: "utf8", legalComments: "none" };

await build({
  ...common,
  entryPoints: ["src/main.ts"],
  outfile: join(templates, "live.js"),
  format: "iife",
  globalName: "vitral",
  target: "es2020",
  banner: { js: `// ${banner("src")}` },
});
await build({
  ...common,
  entryPoints: ["src/page/main.tsx"],
  outfile: join(page, "page.js"),
  format: "iife",
  globalName: "vitralPage",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  banner: { js: `// ${banner("src/page")}` },
});
await build({
  ...common,
  entryPoints: ["src/page/style.css"],
  outfile: join(page, "page.css"),
  target: "es2022",
  banner: { css: `/* ${banner("src/page")} */` },
});
writeFileSync(join(page, "sentences.txt"), sentences("src/page").map((each) => `${each}\n`).join(""));
