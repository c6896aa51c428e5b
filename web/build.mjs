// Bundles the script of pages that compute into the Python package.
import { build } from "esbuild";

const banner = `// Made from web/src by "make web"; do not edit. Apache-2.0.`;

await build({
  entryPoints: ["src/main.ts"],
  outfile: process.argv[2] ?? "../src/vitral/figures/templates/live.js",
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "vitral",
  target: "es2020",
  charset: "utf8",
  legalComments: "none",
  banner: { js: banner },
});
