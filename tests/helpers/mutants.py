"""Worked examples made at random, correct or with one slip, by arithmetic of their own: lists, floats, no tensors.

Nothing here is shared with the checker it tests. `make_case(seed)` gives an example's file, the slip made in it (or
None), and the name of the first printed quantity that the slip makes wrong: the step where it is made if that is
printed, else the first printed one after it. A slip always changes a printed number by more than one unit of its last
digit, since one unit counts as rounding.
"""

import copy
import math
import random
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

SLIPS = (
    "other-row",
    "scale-missing",
    "mask-late",
    "zero-for-infinity",
    "wrong-axis",
    "transposed",
    "term-dropped",
    "digits-swapped",
)
STEPS = ("x", "q", "k", "v", "scores", "scaled", "masked", "weights", "z", "output")
Matrix = list[list[float]]


@dataclass(frozen=True)
class Case:
    """An example's file and what is wrong with it."""

    text: str
    slip: str | None
    step: str
    carried: bool
    about: str


class Again(Exception):
    """This draw will not do: the slip does not show, or cannot be made here."""


def make_case(seed: int) -> Case:
    """The example of a seed: even seeds are correct, odd ones have a slip; the kinds take turns."""
    for attempt in range(500):
        rng = random.Random(seed * 1000 + attempt)
        try:
            return _Maker(rng, SLIPS[seed // 2 % len(SLIPS)] if seed % 2 else None, seed // 32 % 2 == 0).case()
        except Again:
            continue
    raise AssertionError(f"no example for seed {seed}")


def times(a: Matrix, b: Matrix) -> Matrix:
    return [
        [math.fsum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a
    ]


def transposed(a: Matrix) -> Matrix:
    return [list(column) for column in zip(*a, strict=True)]


def softmax(row: list[float]) -> list[float]:
    finite = [value for value in row if value != -math.inf]
    if not finite:
        return [0.0] * len(row)
    powers = [0.0 if value == -math.inf else math.exp(value - max(finite)) for value in row]
    return [power / math.fsum(powers) for power in powers]


class _Maker:
    def __init__(self, rng: random.Random, slip: str | None, carried: bool) -> None:
        self.rng, self.slip, self.carried = rng, slip, carried
        self.decimals = rng.choice((1, 2, 2, 2, 3, 3, 3, 4))
        self.salt = rng.random()
        self.time = rng.randint(2, 5)
        self.heads = rng.choice((1, 1, 2, 3, 4))
        self.d_head = rng.randint(1, 4)
        self.d_model = rng.choice((self.heads * self.d_head, rng.randint(2, 6)))
        self.start = rng.choice(("embeddings", "x", "x", "x", "qkv", "scores"))
        self.has_w_o = rng.random() < 0.5
        self.chained = rng.random() < 0.5
        self.scale = rng.choice(("none", "sqrt", "sqrt", "linear", "number", "adaptive"))
        self.given: dict[str, Any] = {}
        self.about = ""

    def case(self) -> Case:
        self.draw()
        self.printed = self.choose_printed()
        honest = self.author(None)
        if self.slip is None:
            return Case(self.write(honest), None, "", False, "")
        self.where = self.choose_step()
        slipped = self.author(self.slip)
        step = self.first_difference(honest, slipped)
        expected = self.where if self.where in self.printed else None
        if step is None or (expected is not None and step != expected):
            raise Again
        return Case(self.write(slipped), self.slip, step, self.carried, f"{self.where}: {self.about}")

    def numbers(self, rows: int, columns: int) -> Matrix:
        tenths = self.rng.random() < 0.4
        draw = (
            (lambda: self.rng.randint(-20, 20) / 10)
            if tenths
            else (lambda: float(self.rng.choice((-1, 0, 0, 1, 1, 2))))
        )
        return [[draw() for _ in range(columns)] for _ in range(rows)]

    def draw(self) -> None:
        n, rng = self.time, self.rng
        self.allowed, self.mask = self.draw_mask(n)
        given = self.given
        if self.start == "embeddings":
            given["token_embedding"] = self.numbers(n, self.d_model)
            given["position_embedding"] = self.numbers(n, self.d_model)
        if self.start == "x":
            given["x"] = self.numbers(n, self.d_model)
        if self.start in ("embeddings", "x"):
            for name in "qkv":
                given[f"w_{name}"] = [self.numbers(self.d_model, self.d_head) for _ in range(self.heads)]
        if self.start == "qkv":
            for name in "qkv":
                given[name] = [self.numbers(n, self.d_head) for _ in range(self.heads)]
        if self.start == "scores":
            given["scores"] = [self.numbers(n, n) for _ in range(self.heads)]
            given["v"] = [self.numbers(n, self.d_head) for _ in range(self.heads)]
        if self.has_w_o:
            width = self.heads * self.d_head
            given["w_o"] = self.numbers(width, width if rng.random() < 0.7 else rng.randint(1, 5))
        self.number = rng.choice((0.1, 0.25, 0.5, 2.0))

    def draw_mask(self, n: int) -> tuple[list[list[bool]], str]:
        kind = self.rng.choice(("causal", "causal", "bidirectional", "prefix", "window", "padding", "explicit"))
        if kind == "prefix":
            size = self.rng.randint(1, n)
            return [[j <= i or j < size for j in range(n)] for i in range(n)], f'{{ name = "prefix", length = {size} }}'
        if kind == "window":
            size = self.rng.randint(1, n)
            return [[i - size < j <= i for j in range(n)] for i in range(n)], f'{{ name = "window", size = {size} }}'
        if kind == "padding":
            real = [True] * (n - 1) + [self.rng.random() < 0.3]
            return [list(real) for _ in range(n)], f'{{ name = "padding", real = {str(real).lower()} }}'
        if kind == "explicit":
            table = [[i == j or self.rng.random() < 0.6 for j in range(n)] for i in range(n)]
            return table, str(table).lower()
        return [[kind == "bidirectional" or j <= i for j in range(n)] for i in range(n)], f'"{kind}"'

    def choose_printed(self) -> list[str]:
        steps = [step for step in STEPS if step not in self.given and (step != "x" or self.start == "embeddings")]
        if self.start in ("qkv", "scores"):
            steps = [step for step in steps if step not in ("x", "q", "k", "v")]
        if self.start == "scores":
            steps.remove("scores") if "scores" in steps else None
        return [step for step in steps if self.rng.random() < 0.75 or step in ("weights", "output")]

    def choose_step(self) -> str:
        """Where the slip is made."""
        made = {
            "other-row": ("scores", "z", "q", "k", "v"),
            "scale-missing": ("scaled",),
            "mask-late": ("weights",),
            "zero-for-infinity": ("masked",),
            "wrong-axis": ("weights",),
            "transposed": ("q", "k", "v", "z", "output"),
            "term-dropped": ("q", "k", "v", "scores", "weights", "z", "output"),
            "digits-swapped": STEPS,
        }[self.slip or ""]
        computed = [
            step for step in made if step not in self.given and not (step in "qkv" and f"w_{step}" not in self.given)
        ]
        computed = [step for step in computed if step != "x" or self.start == "embeddings"]
        if not self.carried or self.slip == "digits-swapped":
            computed = [step for step in computed if step in self.printed]
        if not computed:
            raise Again
        return self.rng.choice(computed)

    # How each step is made, from the author's numbers so far; per head a matrix.

    def make(self, step: str, have: dict) -> list:
        given, heads = self.given, range(self.heads)
        if step == "x":
            pairs = zip(given["token_embedding"], given["position_embedding"], strict=True)
            return [[[a + b for a, b in zip(*rows, strict=True)] for rows in pairs]]
        if step in ("q", "k", "v"):
            return [times(have["x"][0], given[f"w_{step}"][h]) for h in heads]
        if step == "scores":
            return [times(have["q"][h], transposed(have["k"][h])) for h in heads]
        if step == "scaled":
            return [self.scaled(have["scores"][h]) for h in heads]
        if step == "masked":
            return [
                [
                    [s if ok else -math.inf for s, ok in zip(row, seen, strict=True)]
                    for row, seen in zip(have["scaled"][h], self.allowed, strict=True)
                ]
                for h in heads
            ]
        if step == "weights":
            return [[softmax(row) for row in have["masked"][h]] for h in heads]
        if step == "z":
            return [times(have["weights"][h], have["v"][h]) for h in heads]
        together = [[entry for h in heads for entry in have["z"][h][i]] for i in range(self.time)]
        return [times(together, given["w_o"]) if self.has_w_o else together]

    def scaled(self, scores: Matrix) -> Matrix:
        width = self.d_head
        if self.scale != "adaptive":
            factor = {"none": 1.0, "sqrt": width**-0.5, "linear": 1 / width, "number": self.number}[self.scale]
            return [[factor * value for value in row] for row in scores]
        made = []
        for row, seen in zip(scores, self.allowed, strict=True):
            visible = [value for value, ok in zip(row, seen, strict=True) if ok]
            mean = sum(visible) / max(1, len(visible))
            sigma = math.sqrt(sum((value - mean) ** 2 for value in visible) / max(1, len(visible)))
            factor = 1 / sigma if len(visible) > 1 and sigma > 1e-6 else width**-0.5
            made.append([factor * value for value in row])
        return made

    def author(self, slip: str | None) -> dict[str, list]:
        """All steps as the author has them, printed ones rounded."""
        have: dict[str, list] = {}
        shown: dict[str, list] = {}
        for name in ("x", "q", "k", "v", "scores"):
            if name in self.given:
                value = self.given[name]
                have[name] = [value] if name == "x" else value
        for step in STEPS:
            if (
                step in have
                or (step == "x" and self.start != "embeddings")
                or (step in "qkv" and f"w_{step}" not in self.given)
            ):
                continue
            if step == "scores" and "q" not in have:
                continue
            right = self.make(step, have)
            own = self.slipped(step, right, have) if slip and step == self.where else right
            printed = self.rounded(own)
            if slip == "digits-swapped" and step == self.where:
                printed = own = self.swapped(printed)
            shown[step] = printed
            go_on = own if self.carried or not slip or step != self.where else right
            in_print = step in self.printed
            have[step] = self.rounded(go_on) if self.chained and in_print else go_on
        return shown

    def rounded(self, value: list) -> list:
        return [
            [[entry if math.isinf(entry) else round(entry, self.decimals) + 0.0 for entry in row] for row in head]
            for head in value
        ]

    # The slips.

    def slipped(self, step: str, right: list, have: dict) -> list:
        slip = self.slip
        if slip == "digits-swapped":
            return right
        made = copy.deepcopy(right)
        head = random.Random(self.salt).randrange(len(made))
        self.about = "all of it"
        if slip == "scale-missing":
            if self.scale == "none":
                raise Again
            return copy.deepcopy(have["scores"])
        if slip == "zero-for-infinity":
            return [[[0.0 if value == -math.inf else value for value in row] for row in rows] for rows in made]
        if slip == "mask-late":
            return [
                [
                    [w if ok else 0.0 for w, ok in zip(softmax(row), seen, strict=True)]
                    for row, seen in zip(rows, self.allowed, strict=True)
                ]
                for rows in have["scaled"]
            ]
        if slip == "wrong-axis":
            return [transposed([softmax(column) for column in transposed(rows)]) for rows in have["masked"]]
        if slip == "transposed":
            return self.transpose_slip(step, made, have)
        if slip == "term-dropped":
            return self.drop_term(step, made, have, head)
        return self.other_row(step, made, have, head)

    def transpose_slip(self, step: str, made: list, have: dict) -> list:
        self.about = "a matrix transposed"
        if step in ("q", "k", "v"):
            if self.d_model != self.d_head:
                raise Again
            return [times(have["x"][0], transposed(self.given[f"w_{step}"][h])) for h in range(self.heads)]
        if step == "z":
            return [times(transposed(have["weights"][h]), have["v"][h]) for h in range(self.heads)]
        if not self.has_w_o or len(self.given["w_o"]) != len(self.given["w_o"][0]):
            raise Again
        together = [[entry for h in range(self.heads) for entry in have["z"][h][i]] for i in range(self.time)]
        return [times(together, transposed(self.given["w_o"]))]

    def drop_term(self, step: str, made: list, have: dict, head: int) -> list:
        pick = random.Random(f"{self.salt}{step}")
        i, j = pick.randrange(len(made[head])), pick.randrange(len(made[head][0]))
        if step == "weights":
            row = have["masked"][head][i]
            finite = [place for place, value in enumerate(row) if value != -math.inf]
            if len(finite) < 3:
                raise Again
            lost = pick.choice(finite)
            total = math.fsum(math.exp(row[place]) for place in finite if place != lost)
            made[head][i] = [0.0 if value == -math.inf else math.exp(value) / total for value in row]
            self.about = f"row {i}: exponential {lost} left out of the denominator"
            return made
        left, right = {
            "q": lambda: (have["x"][0], self.given["w_q"][head]),
            "k": lambda: (have["x"][0], self.given["w_k"][head]),
            "v": lambda: (have["x"][0], self.given["w_v"][head]),
            "scores": lambda: (have["q"][head], transposed(have["k"][head])),
            "z": lambda: (have["weights"][head], have["v"][head]),
            "output": lambda: self.output_factors(have),
        }[step]()
        terms = [left[i][t] * right[t][j] for t in range(len(right))]
        if len(terms) < 2:
            raise Again
        lost = pick.randrange(len(terms))
        made[head][i][j] = math.fsum(terms) - terms[lost]
        self.about = f"cell {i},{j}: term {lost} left out"
        return made

    def output_factors(self, have: dict) -> tuple[Matrix, Matrix]:
        if not self.has_w_o:
            raise Again
        return [[entry for h in range(self.heads) for entry in have["z"][h][i]] for i in range(self.time)], self.given[
            "w_o"
        ]

    def other_row(self, step: str, made: list, have: dict, head: int) -> list:
        pick = random.Random(f"{self.salt}{step}row")
        place = pick.randrange(self.time)
        if step in ("q", "k", "v"):
            return self.other_projection(step, made, have, head, place, pick)
        pool = [(name, row) for name in ("q", "k", "v") if name in have for row in range(self.time)]
        pool += [(f"w_{name}", row) for name in "qkv" if f"w_{name}" in self.given for row in range(self.d_model)]
        name, row = pick.choice(pool)
        other = have[name][head][row] if name in have else self.given[name][head][row]
        replaced = "v" if step == "z" else pick.choice("qk")
        if (name, row) == (replaced, place):
            raise Again
        self.about = f"{name}[{row}] for {replaced}[{place}]"
        own = {each: [list(line) for line in have[each][head]] for each in ("q", "k", "v") if each in have}
        own[replaced][place] = list(other)
        made[head] = times(have["weights"][head], own["v"]) if step == "z" else times(own["q"], transposed(own["k"]))
        return made

    def other_projection(self, step: str, made: list, have: dict, head: int, place: int, pick: random.Random) -> list:
        """A row of queries, keys or values that comes of another matrix, or is a row of one."""
        others = [name for name in ("w_q", "w_k", "w_v") if name != f"w_{step}"]
        name = pick.choice(others)
        if pick.random() < 0.5:
            self.about = f"x[{place}] through {name}"
            [made[head][place]] = times([have["x"][0][place]], self.given[name][head])
        else:
            row = pick.randrange(self.d_model)
            self.about = f"{name}[{row}] for row {place}"
            made[head][place] = list(self.given[name][head][row])
        return made

    def swapped(self, printed: list) -> list:
        pick = random.Random(f"{self.salt}{self.where}")
        made = copy.deepcopy(printed)
        cells = [(h, i, j) for h, rows in enumerate(made) for i, row in enumerate(rows) for j in range(len(row))]
        pick.shuffle(cells)
        for h, i, j in cells:
            if math.isinf(made[h][i][j]):
                continue
            written = list(f"{made[h][i][j]:.{self.decimals}f}")
            digits = [place for place, sign in enumerate(written) if sign.isdigit()]
            pairs = [(a, b) for a, b in pairwise(digits) if written[a] != written[b]]
            pick.shuffle(pairs)
            for a, b in pairs:
                changed = list(written)
                changed[a], changed[b] = changed[b], changed[a]
                value = float("".join(changed))
                if abs(value - made[h][i][j]) > 1.5 * 10**-self.decimals and not self.masking.get(
                    (self.where, h, i, j)
                ):
                    made[h][i][j] = value
                    self.about = f"cell {h},{i},{j}"
                    return made
        raise Again

    @property
    def masking(self) -> dict:
        """Cells that are not printed, by step, head, row and column."""
        pick = random.Random(f"{self.salt}blank")
        some = {step for step in self.printed if pick.random() < 0.15 and step not in ("weights", "output")}
        return {
            (step, h, i, j): pick.random() < 0.2
            for step in STEPS
            if step in some
            for h in range(self.heads)
            for i in range(self.time)
            for j in range(16)
        }

    def first_difference(self, honest: dict, slipped: dict) -> str | None:
        """The first printed step in which a printed number is more than one unit off."""
        masking, unit = self.masking, 10**-self.decimals
        for step in STEPS:
            if step not in self.printed or step not in honest:
                continue
            for h, (before, after) in enumerate(zip(honest[step], slipped[step], strict=True)):
                for i, rows in enumerate(zip(before, after, strict=True)):
                    for j, (a, b) in enumerate(zip(*rows, strict=True)):
                        if a != b and not abs(a - b) <= 1.5 * unit and not masking.get((step, h, i, j)):
                            return step
        return None

    # The file.

    def write(self, shown: dict) -> str:
        lines = [
            'title = "made at random"',
            f"mask = {self.mask}",
            f"scale = {self.number if self.scale == 'number' else chr(34) + self.scale + chr(34)}",
            f"heads = {self.heads}",
            f"decimals = {self.decimals}",
            "[given]",
        ]
        if self.start == "scores":
            lines.append(f"d_k = {self.d_head}")
        single = self.heads == 1 and self.rng.random() < 0.8
        for name, value in self.given.items():
            per_head = name not in ("x", "token_embedding", "position_embedding", "w_o")
            lines.append(f"{name} = {value[0] if per_head and single else value}")
        lines.append("[claimed]")
        masking = self.masking
        for step in STEPS:
            if step not in self.printed or step not in shown:
                continue
            heads = [
                "["
                + ", ".join(
                    "["
                    + ", ".join(self.cell(value, masking.get((step, h, i, j), False)) for j, value in enumerate(row))
                    + "]"
                    for i, row in enumerate(rows)
                )
                + "]"
                for h, rows in enumerate(shown[step])
            ]
            lone = step in ("x", "output") or single
            lines.append(f"{step} = {heads[0] if lone else '[' + ', '.join(heads) + ']'}")
        return "\n".join(lines) + "\n"

    def cell(self, value: float, blank: bool) -> str:
        if blank:
            return '"?"'
        if math.isinf(value):
            return '"-inf"'
        written = f"{value:.{self.decimals}f}"
        return str(int(value)) if value == int(value) and self.rng.random() < 0.7 else written
