"""The generator of examples with slips is right: everything it prints is worked out again, in plain loops."""

import math
import tomllib
from collections import Counter
from typing import Any

import pytest
from mutants import SLIPS, STEPS, Case, make_case, softmax, times

CASES = [make_case(seed) for seed in range(320)]
WRONG = [case for case in CASES if case.slip]


def heads_of(value: list) -> list:
    """One matrix for each head, whether or not the outer list was left out."""
    return value if isinstance(value[0][0], list) else [value]


class Author:
    """Somebody who works an example out with care, unrounded or from the printed numbers on.

    Continuing from what is printed, a printed number that is wrong is taken over unless the slip is dropped again.
    """

    def __init__(self, case: Case, from_printed: bool) -> None:
        self.data, self.from_printed = tomllib.loads(case.text), from_printed
        self.dropped = None if case.carried else case.step
        self.unit = 10 ** -self.data["decimals"]
        self.have = {name: heads_of(value) for name, value in self.data["given"].items() if isinstance(value, list)}
        # How many units each printed quantity is off, by its worst cell.
        self.off: dict[str, float] = {}
        claimed = self.data["claimed"]
        for step in STEPS:
            if step in self.have or not self.is_computable(step):
                continue
            own = self.work_out(step)
            self.have[step] = self.compare(step, own, heads_of(claimed[step])) if step in claimed else own

    def is_computable(self, step: str) -> bool:
        need = {"x": "token_embedding", "q": "w_q", "k": "w_k", "v": "w_v", "scores": "q"}.get(step)
        return need is None or need in self.have

    def compare(self, step: str, own: list, printed: list) -> list:
        assert [[len(row) for row in head] for head in own] == [[len(row) for row in head] for head in printed]
        self.off[step] = 0.0
        kept = []
        for own_head, printed_head in zip(own, printed, strict=True):
            rows = zip(own_head, printed_head, strict=True)
            kept.append([[self.cell(step, *pair) for pair in zip(*row, strict=True)] for row in rows])
        return kept

    def cell(self, step: str, own: float, printed: Any) -> float:
        if printed == "?":
            return round(own, self.data["decimals"]) if self.from_printed else own
        off = 0.0 if float(printed) == own else abs(float(printed) - own) / self.unit
        self.off[step] = max(self.off[step], off)
        if not self.from_printed:
            return own
        return float(printed) if step != self.dropped else round(own, self.data["decimals"])

    def work_out(self, step: str) -> list:
        have, heads = self.have, range(self.data["heads"])
        if step == "x":
            tokens, positions = have["token_embedding"][0], have["position_embedding"][0]
            return [[[tokens[i][d] + positions[i][d] for d in range(len(tokens[i]))] for i in range(len(tokens))]]
        if step in ("q", "k", "v"):
            return [self.product(have["x"][0], have[f"w_{step}"][h]) for h in heads]
        if step == "scores":
            return [[[self.dot(q, k) for k in have["k"][h]] for q in have["q"][h]] for h in heads]
        if step == "scaled":
            return [[self.scale_row(row, i) for i, row in enumerate(head)] for head in have["scores"]]
        if step == "masked":
            return [
                [[s if self.sees(i, j) else -math.inf for j, s in enumerate(row)] for i, row in enumerate(head)]
                for head in have["scaled"]
            ]
        if step == "weights":
            return [[self.shares(row) for row in head] for head in have["masked"]]
        if step == "z":
            return [self.product(have["weights"][h], have["v"][h]) for h in heads]
        joined = [[entry for h in heads for entry in have["z"][h][i]] for i in range(len(have["z"][0]))]
        return [self.product(joined, have["w_o"][0]) if "w_o" in have else joined]

    @staticmethod
    def dot(a: list[float], b: list[float]) -> float:
        return math.fsum(a[c] * b[c] for c in range(len(a)))

    def product(self, a: list, b: list) -> list:
        return [[self.dot(row, [b[d][c] for d in range(len(b))]) for c in range(len(b[0]))] for row in a]

    @staticmethod
    def shares(row: list[float]) -> list[float]:
        # One over the sum of e^(t - s): no exponential of a large score, no highest score to subtract.
        def share(s: float) -> float:
            return 1 / sum(math.exp(min(t - s, 700)) for t in row)

        return [0.0 if s == -math.inf else share(s) for s in row]

    def sees(self, i: int, j: int) -> bool:
        mask = self.data["mask"]
        if isinstance(mask, list):
            return mask[i][j]
        if isinstance(mask, str):
            return mask == "bidirectional" or j <= i
        if mask["name"] == "padding":
            return mask["real"][j]
        return j <= i and i - j < mask["size"] if mask["name"] == "window" else j <= i or j < mask["length"]

    def scale_row(self, row: list[float], i: int) -> list[float]:
        scale = self.data["scale"]
        width = self.data["given"].get("d_k") or len(self.have["q"][0][0])
        if scale != "adaptive":
            factor = {"none": 1.0, "sqrt": 1 / math.sqrt(width), "linear": 1 / width}.get(scale, scale)
            return [s * factor for s in row]
        visible = [s for j, s in enumerate(row) if self.sees(i, j)]
        mean = sum(visible) / max(len(visible), 1)
        spread = math.sqrt(sum((s - mean) ** 2 for s in visible) / max(len(visible), 1))
        return [s / spread if spread > 1e-6 else s / math.sqrt(width) for s in row]


def careful(case: Case) -> list[Author]:
    return [Author(case, from_printed=False), Author(case, from_printed=True)]


def wrong_steps(author: Author) -> set[str]:
    return {step for step, off in author.off.items() if off > 0.51}


def test_a_seed_is_an_example() -> None:
    assert [make_case(seed) for seed in range(40)] == CASES[:40]
    assert len({case.text for case in CASES}) == len(CASES)


def test_half_are_correct_and_the_slips_take_turns() -> None:
    assert [case.slip for case in CASES[:4]] == [None, SLIPS[0], None, SLIPS[1]]
    counts = Counter((case.slip, case.carried) for case in WRONG)
    assert {slip for slip, _ in counts} == set(SLIPS)
    assert set(counts.values()) == {len(WRONG) // (2 * len(SLIPS))}


def test_all_kinds_of_examples_occur() -> None:
    data = [tomllib.loads(case.text) for case in CASES]
    masks = {one["mask"] if isinstance(one["mask"], str) else type(one["mask"]).__name__ for one in data}
    assert masks == {"causal", "bidirectional", "dict", "list"}
    assert {one["mask"]["name"] for one in data if isinstance(one["mask"], dict)} == {"prefix", "window", "padding"}
    assert {one["heads"] for one in data} == {1, 2, 3, 4}
    scales = {one["scale"] if isinstance(one["scale"], str) else "number" for one in data}
    assert scales == {"none", "sqrt", "linear", "adaptive", "number"}
    for start in ("token_embedding", "x", "q", "scores"):
        assert {"w_o" in one["given"] for one in data if start in one["given"]} == {True, False}
    assert any('"?"' in case.text for case in CASES)
    assert any('"-inf"' in case.text for case in CASES)


def test_its_arithmetic_by_hand() -> None:
    assert times([[1.0, 2.0]], [[3.0, 0.0], [1.0, -1.0]]) == [[5.0, -2.0]]
    assert softmax([0.0, math.log(3), -math.inf]) == pytest.approx([0.25, 0.75, 0])
    assert softmax([-math.inf]) == [0.0]


def test_a_correct_example_is_what_a_careful_author_prints() -> None:
    for case in CASES:
        if case.slip is None:
            assert any(not wrong_steps(author) for author in careful(case)), case.text


@pytest.mark.parametrize("case", [case for case in WRONG if not case.carried], ids=lambda case: case.slip)
def test_a_slip_that_is_not_carried_on_is_alone(case: Case) -> None:
    assert {case.step} in [wrong_steps(author) for author in careful(case)]
    assert all(author.off[case.step] > 1.5 for author in careful(case))


@pytest.mark.parametrize("case", [case for case in WRONG if case.carried], ids=lambda case: case.slip)
def test_what_comes_before_a_slip_is_right(case: Case) -> None:
    for author in careful(case):
        first = next((step for step, off in author.off.items() if off > 1.51), None)
        if first == case.step:
            return
    pytest.fail(f"{case.step}: {case.text}")


def changed_cells(author: Author, step: str) -> list[tuple[str, str]]:
    """What a careful author would have printed, and what is printed there."""
    pairs = [
        (own, float(printed))
        for heads in zip(author.have[step], heads_of(author.data["claimed"][step]), strict=True)
        for rows in zip(*heads, strict=True)
        for own, printed in zip(*rows, strict=True)
        if printed != "?" and own != float(printed) and abs(own - float(printed)) > 0.51 * author.unit
    ]
    # 10.15 becomes 01.15, and its first digit is not written.
    return [(f"{own:012.{author.data['decimals']}f}", f"{off:012.{author.data['decimals']}f}") for own, off in pairs]


def test_swapped_digits_are_two_of_one_number() -> None:
    for case in WRONG:
        if case.slip == "digits-swapped" and not case.carried:
            [own, printed] = next(cells[0] for one in careful(case) if len(cells := changed_cells(one, case.step)) == 1)
            assert own != printed
            assert sorted(own) == sorted(printed)
