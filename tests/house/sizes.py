"""The size of each room beside its budget in sizes.toml, as `make sizes` prints it; `--lower` lowers the budgets.

A room of Python is measured in code tokens: those of `tokenize` without comments, docstrings, line ends and
indentation. Text that the program parses as code counts in tokens as well; other files count in bytes, TypeScript and
C without comments.
"""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
BUDGETS = Path(__file__).with_name("sizes.toml")
_LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}
_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)|//[^\n]*|/\*.*?\*/""", re.DOTALL)


def code_tokens(source: str, *, parsed: bool = False) -> int:
    """The code tokens of a Python file, alike under every Python; `parsed`: its strings are code themselves."""
    docstrings = set(_docstring_lines(ast.parse(source)))
    total = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        kind = tokenize.tok_name[token.type]  # from Python 3.12 on an f-string is several tokens: here it is one
        depth -= kind.endswith("STRING_END")
        if token.type not in _LAYOUT and depth == 0 and token.start[0] not in docstrings:
            total += (
                _words(token.string) if parsed and token.type == tokenize.STRING else not kind.endswith("STRING_START")
            )
        depth += kind.endswith("STRING_START")
    return total


def _docstring_lines(tree: ast.Module) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            for child in node.body:  # a string that stands alone documents an attribute
                value = child.value if isinstance(child, ast.Expr) else None
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield from range(child.lineno, (child.end_lineno or child.lineno) + 1)


def _words(text: str) -> int:
    return len(re.findall(r"\w+|[^\w\s]", text))


def code_bytes(path: Path) -> int:
    """The bytes of a file, without the comments of TypeScript, JavaScript and C."""
    text = path.read_text(encoding="utf-8")
    if path.suffix in {".ts", ".tsx", ".js", ".mjs", ".c", ".h"}:
        text = _COMMENT.sub(lambda found: found[1] or "", text)
    return len(text.encode())


def _room(path: str) -> list[Path]:
    """The files of a room: a folder's, or one."""
    place = ROOT / path
    return sorted(place.rglob("*.py")) if place.is_dir() else [place]


def sizes(budgets: dict) -> dict[str, dict[str, int]]:
    """Each measured thing's size, in the order and under the names of `budgets`."""
    parsed = {path for pattern in budgets["parsed"] for path in ROOT.glob(pattern)}
    rooms = {}
    for room in budgets["tokens"]:
        rooms[room] = sum(code_tokens(path.read_text("utf-8"), parsed=path in parsed) for path in _room(room))
    texts = (path for path in parsed if path.suffix != ".py")
    for path in texts:
        owner = next(room for room in rooms if path.is_relative_to(ROOT / room))
        rooms[owner] += _words(path.read_text("utf-8"))
    files = {}
    for pattern in budgets["bytes"]:
        files[pattern] = sum(code_bytes(path) for path in ROOT.glob(pattern) if path.is_file() and path not in parsed)
    return {"tokens": rooms, "bytes": files}


def read() -> dict:
    """The budgets."""
    return tomllib.loads(BUDGETS.read_text(encoding="utf-8"))


def _main() -> None:
    budgets = read()
    measured = sizes(budgets)
    for unit, rows in measured.items():
        print(f"{'':40}{unit:>10}{'budget':>10}")
        for name, size in rows.items():
            budget = budgets[unit][name]
            print(f"{name:40}{size:10,}{budget:10,}{'  above its budget' if size > budget else ''}")
        for whole in ("src/vitral/", "tests/") if unit == "tokens" else ():
            total, most = (
                sum(n for name, n in each.items() if name.startswith(whole)) for each in (rows, budgets[unit])
            )
            print(f"{'all of ' + whole:40}{total:10,}{most:10,}")
    if "--lower" in sys.argv:
        text = BUDGETS.read_text(encoding="utf-8")
        for unit, rows in measured.items():
            for name, size in rows.items():
                if size < (budget := budgets[unit][name]):
                    text = text.replace(f'"{name}" = {budget:_}\n', f'"{name}" = {size:_}\n')
        BUDGETS.write_text(text, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    _main()
