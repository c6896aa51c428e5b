// Fails where modules import values in a circle; types, of which the bundle has nothing, may.
import { build } from "esbuild";

const { metafile } = await build({ entryPoints: ["src/main.ts", "src/page/main.tsx"], bundle: true, write: false, metafile: true, outdir: "none", jsx: "automatic", jsxImportSource: "preact" });
const done = new Set();

function follow(file, way) {
  if (way.includes(file)) throw new Error(`a circle of imports: ${[...way.slice(way.indexOf(file)), file].join(" → ")}`);
  if (done.has(file)) return;
  for (const { path } of metafile.inputs[file]?.imports ?? []) follow(path, [...way, file]);
  done.add(file);
}

for (const file of Object.keys(metafile.inputs).filter((each) => each.startsWith("src"))) follow(file, []);
