"""Live pages: the browser's sheet is Python's, for other numbers too; an exercise judges; pages tell no answers."""

import json
import math
import random
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from browser import NODE, driven, in_node, needs_chromium, needs_node, plain, run_graphs, same
from redrawn import changed, recomputed

from vitral.explanation import Exercise, ExerciseSheet, parse_example, walk_example
from vitral.explanation.examples.by_name import find_example, gallery
from vitral.explanation.examples.example import Example
from vitral.explanation.formulas import number, text
from vitral.explanation.formulas.notation import Number
from vitral.explanation.phrasebook import phrases
from vitral.explanation.sheet import Sheet, sheet_graph
from vitral.report.live import blanks_of, exercise_page, live_tables
from vitral.report.walkthrough import to_page

ROOT = Path(__file__).parents[2]
NAMES = [name for name in gallery() if find_example(name).sheet.quantities and "parameters" not in name]


@cache
def graphs(step: int) -> dict[str, tuple[Sheet, dict[str, Any]]]:
    """Every `step`-th sheet of the gallery."""
    made = {name: find_example(name).sheet for name in NAMES[::step]}
    return {name: (sheet, sheet_graph(sheet)) for name, sheet in made.items()}


some_now = pytest.mark.parametrize(
    "step", [pytest.param(6, marks=pytest.mark.merge), pytest.param(1, marks=pytest.mark.full)]
)


@some_now
@needs_node
def test_edited_numbers_give_what_python_computes_from_them(step: int) -> None:
    """The numbers as they stand too."""
    cases, expected = [], []
    for name, (sheet, graph) in graphs(step).items():
        assert set(graph["outputs"]) == {quantity.name for quantity in sheet.quantities}, name
        for seed in (None, 0, 1):
            given = {each: sheet.values[each] for each in graph["inputs"]}
            given |= {} if seed is None else changed(sheet, seed)
            cases.append({"graph": graph, "inputs": given})
            expected.append((f"{name} seed {seed}", recomputed(sheet, given)))
    for (name, values), made in zip(expected, run_graphs(cases), strict=True):
        for quantity, value in made.items():
            same(value, values[quantity], f"{name} {quantity}")


BACKWARD = """
vocabulary = ["a", "b"]
mask = "causal"
scale = "none"
[given]
x = [[2, 0], [0.5, 2]]
w_q = [[1, 1], [1, -1]]
w_k = "identity"
w_v = [[0.5, 0], [0, 0.5]]
w_u = [[1, -1], [-1, 1]]
target = "a"
[steps]
loss = "cross_entropy(logits[1], target)"
d_v = "grad(loss, v)"
d_w_q = "grad(loss, w_q)"
"""


@pytest.mark.merge
@needs_node
def test_losses_and_gradients_are_computed_in_the_browser_too() -> None:
    sheet = parse_example(BACKWARD).sheet
    graph = sheet_graph(sheet)
    given = {each: sheet.values[each] for each in graph["inputs"]}
    given["x"] = given["x"] + 0.3
    other, wrong = run_graphs(
        [{"graph": graph, "inputs": given}, {"graph": graph, "inputs": given | {"target": torch.tensor([0.5])}}]
    )
    values = recomputed(sheet, given)
    for quantity, value in other.items():
        same(value, values[quantity], quantity)
    assert bool(wrong["loss"].isnan().all())  # half a word


ARITHMETIC = """
const values = vitral.evaluate(given.graph, tensors(given.inputs));
const manner = { digits: 3, comma: false, first: 1, more: "{count} more: {total}" };
return Object.entries(given.graph.outputs).flatMap(([name, node]) => Array.from(values[node].data, (value, cell) => {
  const formula = vitral.arithmetic(given.graph, values, name, cell);
  if (!formula) return null;
  const equation = vitral.equation("x", formula, value, manner);
  return [name, String(vitral.worth(formula)), String(value), equation];
}));
"""


@some_now
@needs_node
def test_the_arithmetic_of_every_cell_gives_its_value(step: int) -> None:
    """Read from the graph, with the edited numbers."""
    cases = []
    for sheet, graph in graphs(step).values():
        given = {each: sheet.values[each] for each in graph["inputs"]} | changed(sheet, 1)
        cases.append({"graph": graph, "inputs": {each: plain(value) for each, value in given.items()}})
    checked = 0
    for name, cells in zip(graphs(step), in_node(ARITHMETIC, cases), strict=True):
        for quantity, worth, value, written in filter(None, cells):
            checked += 1
            assert float(worth) == pytest.approx(float(value), rel=1e-9, abs=1e-9), (name, quantity)
            assert written.startswith("<math>x<mo>=</mo>")
            assert "undefined" not in written
            assert "NaN" not in written
    assert checked > 1000 / step


@pytest.mark.merge
@needs_node
def test_numbers_are_written_as_python_writes_them() -> None:
    draw = random.Random(3)
    values = [0.5, 1.5, 2.5, -2.5, 0.125, 0.375, -0.0001, 1e-9, 1e6 + 0.0005, 1.005, 0.285, 8.345, 0.0, -0.0]
    values += [draw.gauss(0, 10 ** draw.randint(-4, 4)) for _ in range(300)]
    values += [draw.randint(-4000, 4000) / 2 ** draw.randint(0, 8) for _ in range(300)]
    cases = [[value, digits] for value in values for digits in (0, 1, 2, 3, 6)]
    body = "return [vitral.written(given[0], given[1], false), vitral.written(given[0], given[1], true)];"
    for (value, digits), (plain_, comma) in zip(cases, in_node(body, cases), strict=True):
        assert plain_ == number(value, digits), (value, digits)
        assert comma == number(value, digits).replace(".", ",")
    body = "return vitral.shortest(given[0], { digits: given[1], comma: false, first: 1, more: '' });"
    say = phrases("en")
    for (value, digits), written in zip(cases, in_node(body, cases), strict=True):
        assert written == text(Number(value), digits, say), (value, digits)


@pytest.mark.merge
@needs_node
def test_numbers_are_read_as_people_type_them() -> None:
    expected = {
        **{
            "0.5": 0.5,
            "0,5": 0.5,
            ".5": 0.5,
            "5.": 5.0,
            "-2": -2.0,
            "−2": -2.0,
            "+3": 3.0,
            " 1/3 ": 1 / 3,
            "-1/4": -0.25,
        },
        **{"1e-3": 0.001, "007": 7.0, "1.5/0.5": 3.0},
        **dict.fromkeys(("", "-", ".", "1/0", "1/2/3", "abc", "1 000 x", "1.2.3", "0x10", "NaN", "--1", "1/")),
    }
    body = "const read = vitral.typed(given); return read && [read.value, read.toml];"
    for (written, value), parsed in zip(expected.items(), in_node(body, list(expected)), strict=True):
        assert (parsed and parsed[0]) == value, written
        if parsed is not None:
            assert f"x = {parsed[1]}".count('"') == (2 if "/" in written else 0)
    infinite = in_node("return vitral.typed(given, true).toml;", ["-inf", "−∞", "inf"])
    assert infinite == ['"-inf"', '"-inf"', '"inf"']
    assert in_node("return vitral.typed(given);", ["-inf"]) == [None]


VERDICTS = [
    # typed, decimals, truth, from the own numbers, earlier numbers right, digits asked, verdict
    (0.33, 2, 1 / 3, 1 / 3, True, 2, "right"),
    (0.667, 3, 2 / 3, 2 / 3, True, 2, "right"),
    (3.0, 0, 3.0, 3.0, True, 2, "right"),
    (0.5, 1, 0.5, 0.5, True, 3, "right"),
    (1 / 3, 15, 1 / 3, 1 / 3, True, 2, "right"),
    (-math.inf, 15, -math.inf, -math.inf, True, 2, "right"),
    (0.35, 2, 0.3333, 0.3501, True, 2, "rounding"),
    (0.45, 2, 0.3333, 0.4501, False, 2, "follows"),
    (0.34, 2, 0.3334, 0.3334, True, 2, "doubtful"),
    (0.3, 1, 1 / 3, 1 / 3, True, 2, "short"),
    (0.0, 0, 1 / 3, 1 / 3, True, 2, "short"),
    (0.36, 2, 1 / 3, 1 / 3, True, 2, "wrong"),
    (1.0, 0, 2.0, 2.0, True, 0, "doubtful"),
    (1.0, 0, 3.0, 3.0, True, 0, "wrong"),
    (0.0, 0, -math.inf, -math.inf, True, 2, "wrong"),
]


@pytest.mark.merge
@needs_node
def test_each_answer_has_its_verdict() -> None:
    body = """
      const read = (each) => (typeof each === "string" ? Number(each) : each);
      const [value, decimals, truth, follows, sound, asked] = given.map(read);
      return vitral.verdict({ value, decimals }, truth, follows, sound, asked);"""
    spelled = {math.inf: "Infinity", -math.inf: "-Infinity"}
    cases = [[spelled.get(each, each) if isinstance(each, float) else each for each in case[:-1]] for case in VERDICTS]
    assert in_node(body, cases) == [case[-1] for case in VERDICTS]


def data_of(page: str) -> dict[str, Any]:
    [stored] = re.findall(r'<script type="application/json" id="live-data">(.*?)</script>', page, re.DOTALL)
    return json.loads(stored)


def exercise() -> Example:
    return parse_example(ExerciseSheet(Exercise(num_heads=2)).toml, Path("own.toml"))


def test_an_exercise_page_has_blanks_and_no_answers() -> None:
    example = exercise()
    page = exercise_page(example)
    blank = re.findall(r'<table role="grid" data-quantity="(\w+)".*?</table>', page, re.DOTALL)
    assert set(blanks_of(example)) <= set(blank)
    for table in re.findall(r'<table role="grid" data-quantity="(?:weights|out)".*?</table>', page, re.DOTALL):
        assert not re.search(r"<td[^>]*>[^<]", table)
    data = data_of(page)
    assert set(data["given"]) == {"x", "w_q", "w_k", "w_v", "w_o"}
    assert data["blanks"] == list(blanks_of(example))


def test_the_filled_sheet_is_a_file_that_check_reads() -> None:
    example = exercise()
    file = data_of(exercise_page(example))["file"]
    cells = [part["cell"] for part in file if not isinstance(part, str)]
    values = example.sheet.values
    assert len(cells) == len(set(cells)) == sum(values[name].numel() for name in blanks_of(example))

    def answer(cell: str) -> str:
        name, index = cell.split("/")
        value = float(values[name].flatten()[int(index)])
        return f"{value:.2f}" if math.isfinite(value) else '"-inf"'

    written = "".join(part if isinstance(part, str) else answer(part["cell"]) for part in file)
    again = parse_example(written)
    assert [claim.name for claim in again.claims] == list(blanks_of(example))
    assert all(not bool(claim.values.isnan().any()) for claim in again.claims)


TYPE = """
const type = (table, row, column, text, head = 0) => {
  const shown = [...document.querySelectorAll(`table[data-quantity="${table}"]`)][head];
  const input = shown.querySelector(`td[data-row="${row}"][data-column="${column}"] input`);
  input.value = text;
  input.dispatchEvent(new Event("input"));
  input.dispatchEvent(new Event("change"));
};
"""


BAD = r'<input[^>]* aria-invalid="true"'


def cells(dom: str, quantity: str) -> list[str]:
    """The texts of the cells of the first table of a quantity."""
    table = re.search(rf'<table[^>]*data-quantity="{quantity}".*?</table>', dom, re.DOTALL)
    assert table
    return [re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", table[0], re.DOTALL)]


@pytest.mark.merge
@needs_chromium
def test_numbers_typed_on_the_page_change_the_page(tmp_path: Path) -> None:
    walk, sheet = walk_example(find_example("three-words")), find_example("three-words").sheet
    page = to_page(walk, before=live_tables(walk, 3))
    typed = TYPE + 'type("x", 0, 1, "-1,5"); type("w_q", 2, 0, "1/3"); type("x", 1, 1, "many");'
    dom = driven(page, typed, tmp_path)
    given = {name: sheet.values[name].clone() for name in sheet.given_names}
    given["x"][0, 1], given["w_q"][0, 2, 0] = -1.5, 1 / 3
    values = recomputed(sheet, given)
    for quantity in ("scores", "weights", "out"):
        expected = values[quantity].flatten().tolist()
        shown = [float(cell.replace("−", "-").replace("∞", "inf")) for cell in cells(dom, quantity)]
        assert shown == pytest.approx(expected, abs=6e-4)
    assert len(re.findall(BAD, dom)) == 1
    undone = driven(page, typed + 'document.querySelector(".live button").click();', tmp_path)
    assert cells(undone, "out") == cells(page, "out")
    assert not re.search(BAD, undone)


@pytest.mark.merge
@needs_chromium
def test_answers_typed_on_the_page_are_judged(tmp_path: Path) -> None:
    example = exercise()
    values = {name: value.clone() for name, value in example.sheet.values.items()}
    values["q"][0, 0, 0] += 2
    q, scores = values["q"], example.sheet["scores"].make(values)
    lines = [
        f'type("{name}", {row}, {column}, "{value[head, row, column]:.4f}", {head});'
        for name, value in (("q", q), ("k", values["k"]), ("scores", scores))
        for head, row, column in torch.ones_like(value).nonzero().tolist()
    ]
    dom = driven(exercise_page(example), TYPE + "".join(lines), tmp_path)
    verdicts = re.findall(r'<td[^>]* data-verdict="(\w+)"', dom)
    moved = int((scores != example.sheet.values["scores"]).sum())
    assert verdicts.count("wrong") == 1
    assert verdicts.count("follows") == moved > 0
    assert verdicts.count("right") == q.numel() + values["k"].numel() + scores.numel() - 1 - moved


WEB = ROOT / "web"


@pytest.mark.full
@pytest.mark.skipif(NODE is None or not (WEB / "node_modules" / "esbuild").exists(), reason="web is not installed")
def test_the_scripts_are_made_from_their_sources(tmp_path: Path) -> None:
    subprocess.run([NODE or "node", "build.mjs", str(tmp_path)], cwd=WEB, check=True, capture_output=True)
    made = {file.name: file.read_text(encoding="utf-8") for file in tmp_path.iterdir()}
    assert made.keys() == {"live.js", "page.js", "page.css", "sentences.txt"}
    for name, built in made.items():
        folder = "report/templates" if name == "live.js" else "page/assets"
        assert built == (ROOT / "src/vitral" / folder / name).read_text(encoding="utf-8"), "run make web"
    types = subprocess.run([NODE or "node", "node_modules/typescript/bin/tsc"], cwd=WEB, capture_output=True)
    assert types.returncode == 0, types.stdout.decode()


def test_the_lock_file_names_no_registry() -> None:
    lock = json.loads((WEB / "package-lock.json").read_text())
    assert not [name for name, package in lock["packages"].items() if "resolved" in package]
