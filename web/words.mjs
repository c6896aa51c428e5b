// The sentences of the page: the texts that its sources give to t, plural and rich. Written out, joined by + at most.
import { readFileSync, readdirSync } from "node:fs";
import { join } from "node:path";
import ts from "typescript";

const FIRST = { t: [0], rich: [0], plural: [1, 2], N: [0] };

function text(node) {
  if (ts.isStringLiteralLike(node)) return [node.text];
  if (ts.isParenthesizedExpression(node)) return text(node.expression);
  if (ts.isConditionalExpression(node)) return [...text(node.whenTrue), ...text(node.whenFalse)];
  if (ts.isBinaryExpression(node) && node.operatorToken.kind === ts.SyntaxKind.PlusToken)
    return text(node.left).flatMap((one) => text(node.right).map((other) => one + other));
  return [];
}

function files(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((each) =>
    each.isDirectory() ? files(join(folder, each.name)) : /\.tsx?$/.test(each.name) ? [join(folder, each.name)] : [],
  );
}

/** Every sentence of the sources in a folder, in the order of the alphabet. */
export function sentences(folder) {
  const found = new Set();
  for (const file of files(folder)) {
    const visit = (node) => {
      if (ts.isCallExpression(node) && ts.isIdentifier(node.expression))
        for (const place of FIRST[node.expression.text] ?? [])
          for (const each of node.arguments[place] ? text(node.arguments[place]) : []) found.add(each);
      ts.forEachChild(node, visit);
    };
    visit(ts.createSourceFile(file, readFileSync(file, "utf8"), ts.ScriptTarget.Latest, true, file.endsWith("x") ? ts.ScriptKind.TSX : ts.ScriptKind.TS));
  }
  return [...found].sort();
}
