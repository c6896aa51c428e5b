// The sentences of the page: the texts that its sources give to t, plural, rich and N, and those of its tour. They are written out, joined by + at
// most. The page's data have them in every language, so in the script a number stands for each: its place among all.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

const FIRST = { t: [0], rich: [0], plural: [1, 2], N: [0] };
/** Said where the data are damaged, so the script keeps their sentences. */
const WITHOUT_DATA = /Refusing\.tsx$/;

/** The texts that an expression may be, and the parts of it that are one text each. */
function texts(node) {
  const one = (text) => ({ all: [text], parts: [{ node, text }] });
  if (ts.isStringLiteralLike(node)) return one(node.text);
  if (ts.isParenthesizedExpression(node)) return texts(node.expression);
  if (ts.isConditionalExpression(node)) {
    const [yes, no] = [texts(node.whenTrue), texts(node.whenFalse)];
    return { all: [...yes.all, ...no.all], parts: [...yes.parts, ...no.parts] };
  }
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.PlusToken) {
    const [left, right] = [texts(node.left), texts(node.right)];
    const all = left.all.flatMap((start) => right.all.map((end) => start + end));
    return all.length === 1 ? one(all[0]) : { all, parts: [] };
  }
  return { all: [], parts: [] };
}

/** What a source gives to the functions that translate. */
function given(file, source) {
  const found = [];
  const visit = (node) => {
    if (ts.isCallExpression(node) && ts.isIdentifier(node.expression))
      for (const place of FIRST[node.expression.text] ?? []) if (node.arguments[place]) found.push(texts(node.arguments[place]));
    ts.forEachChild(node, visit);
  };
  visit(ts.createSourceFile(file, source, ts.ScriptTarget.Latest, true, file.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS));
  return found;
}

function files(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((each) =>
    each.isDirectory() ? files(join(folder, each.name)) : /\.tsx?$/.test(each.name) ? [join(folder, each.name)] : [],
  );
}

/** What the page's own tour says. */
const TOUR = "../src/vitral/page/tour.toml";
const toured = () => [...readFileSync(TOUR, "utf8").matchAll(/^(?:title|sentence|then) = "(.*)"$/gm)].map(([, text]) => text);

/** Every sentence of the sources in a folder and of the tour, in the order of the alphabet. */
export function sentences(folder) {
  const all = [...toured(), ...files(folder).flatMap((file) => given(file, readFileSync(file, "utf8")).flatMap((each) => each.all))];
  return [...new Set(all)].sort();
}

/** Puts numbers for the sentences of the sources: 1 for the first of all. */
export const numbers = (all) => ({
  name: "sentences",
  setup(build) {
    build.onLoad({ filter: /\/src\/page\/.*\.tsx?$/ }, ({ path }) => {
      let contents = readFileSync(path, "utf8");
      const parts = WITHOUT_DATA.test(path) ? [] : given(path, contents).flatMap((each) => each.parts);
      for (const { node, text } of parts.sort((one, other) => other.node.pos - one.node.pos))
        contents = contents.slice(0, node.getStart()) + (all.indexOf(text) + 1) + contents.slice(node.end);
      return { contents, loader: path.endsWith("x") ? "tsx" : "ts" };
    });
  },
});
