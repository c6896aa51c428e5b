"""A problem worked out step by step by one student."""

import math
import random
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Decimal
from itertools import pairwise
from typing import TYPE_CHECKING

from students.pen import NEVER, ONE, ZERO, Again, Matrix, Pen, Row, Value
from students.problems import Problem, transposed

if TYPE_CHECKING:
    from students.slips import SlipKind


class Paper:
    """A student's calculation of one problem.

    Attributes:
        have: the numbers with which the student goes on, by name.
        shown: the numbers as written, by step.
        full: the numbers of each step before they were written.
    """

    def __init__(self, problem: Problem, pen: Pen, printed: set[str], slip: "SlipKind | None" = None, salt: str = ""):
        self.problem, self.pen, self.printed, self.slip = problem, pen, printed, slip
        self.rng = random.Random(salt)
        self.have: dict[str, Value] = dict(problem.given)
        self.shown: dict[str, Value] = {}
        self.full: dict[str, Value] = {}
        self.where = ""
        self.work()

    def work(self) -> None:
        slip, where = self.slip, ""
        if slip:
            where = self.where = slip.place(self)
        for step in self.problem.steps:
            value = slip.make(self, step) if slip and step == where and slip.make else self.own(step)
            value = self.pen.stored(value)
            written = self.pen.written(step, value)
            carried = self.pen.carried(step, value, written, step in self.printed)
            if slip and step == where and slip.misprint:
                written, carried = slip.misprint(self, step, written, carried)
            self.full[step], self.shown[step], self.have[step] = value, written, carried

    def own(self, step: str) -> Value:
        """A step as it should be done, from the numbers that the student has."""
        name, _, number = step.rpartition("_")
        if name in ("temperature", "top_k", "top_p"):
            return [[self.filtered(name, Decimal(number))]]
        return getattr(self, "step_" + step.replace(".", "_"))()

    @property
    def lone(self) -> bool:
        return self.problem.heads == 1

    # Attention.

    def step_position_embedding(self) -> Value:
        [tokens] = self.have["token_embedding"]
        return [self.sines(len(tokens), len(tokens[0]))]

    @staticmethod
    def sines(
        time: int, width: int, start: int = 0, *, swap: bool = False, single: bool = False, degrees: bool = False
    ) -> Matrix:
        def entry(position: int, column: int) -> Decimal:
            exponent = column if single else column - column % 2
            angle = position / 10_000 ** (exponent / width)
            if degrees:
                angle = math.radians(angle)
            return Decimal(math.cos(angle) if (column % 2 == 1) != swap else math.sin(angle))

        return [[entry(position + start, column) for column in range(width)] for position in range(time)]

    def step_x(self) -> Value:
        return self.sum("token_embedding", "position_embedding")

    def sum(self, left: str, right: str) -> Value:
        return [
            [[a + b for a, b in zip(one, other, strict=True)] for one, other in zip(*rows, strict=True)]
            for rows in zip(self.have[left], self.have[right], strict=True)
        ]

    @property
    def source(self) -> str:
        """The input of queries, keys and values."""
        if self.problem.kind != "block":
            return "x"
        return "attn_norm" if self.problem.settings["norm"] == "pre" else "resid_pre"

    def project(self, letter: str, matrix: str = "") -> Value:
        [rows] = self.have[self.source]
        shifts = self.have.get(f"b_{letter}")
        return [
            self.pen.times(rows, weight, shifts[head][0] if shifts else None)
            for head, weight in enumerate(self.have[matrix or f"w_{letter}"])
        ]

    def step_q(self) -> Value:
        return self.project("q")

    def step_k(self) -> Value:
        return self.project("k")

    def step_v(self) -> Value:
        return self.project("v")

    def step_scores(self, left: str = "q", right: str = "k") -> Value:
        pairs = zip(self.have[left], self.have[right], strict=True)
        return [self.pen.times(q, transposed(k)) for q, k in pairs]

    def step_scaled(self) -> Value:
        return self.each("scores", self.scaled)

    def scaled(self, score: Decimal) -> Decimal:
        width, scale = self.problem.settings["d_k"], self.problem.scale
        if scale == "sqrt":
            return self.pen.divided_by_root(score, width)
        return score / width if scale == "linear" else score * Decimal(scale)

    def each(self, name: str, function: Callable[[Decimal], Decimal]) -> Value:
        return [[[function(entry) for entry in row] for row in rows] for rows in self.have[name]]

    @property
    def before_mask(self) -> str:
        return "scaled" if "scaled" in self.have else "scores"

    @property
    def before_softmax(self) -> str:
        return "masked" if "masked" in self.have else self.before_mask

    def step_masked(self, allowed: list[list[bool]] | None = None, hidden: Decimal = NEVER) -> Value:
        allowed = allowed or self.problem.mask or []
        return [
            [
                [entry if sees else hidden for entry, sees in zip(row, line, strict=True)]
                for row, line in zip(rows, allowed, strict=True)
            ]
            for rows in self.have[self.before_mask]
        ]

    def step_weights(self) -> Value:
        return [[self.pen.softmax(row) for row in rows] for rows in self.have[self.before_softmax]]

    def step_z(self, of: str = "v") -> Value:
        pairs = zip(self.have["weights"], self.have[of], strict=True)
        return [self.pen.times(weights, v) for weights, v in pairs]

    def joined(self, heads: list[Matrix] | None = None) -> Matrix:
        """The heads side by side."""
        heads = heads or self.heads()
        return [[entry for rows in heads for entry in rows[place]] for place in range(len(heads[0]))]

    def heads(self) -> list[Matrix]:
        return self.have["z"] if "z" in self.have else self.step_z()

    def step_output(self, joined: Matrix | None = None) -> Value:
        joined = joined or self.joined()
        if "w_o" not in self.have:
            return [joined]
        shift = self.have["b_o"][0][0] if "b_o" in self.have else None
        return [self.pen.times(joined, self.have["w_o"][0], shift)]

    def step_out(self) -> Value:
        return self.step_output()

    # Blocks.

    def norm(self, source: str, name: str, change: "Callable[..., Row] | None" = None) -> Value:
        gain = self.have[f"{name}_gain"][0][0] if f"{name}_gain" in self.have else None
        shift = self.have[f"{name}_bias"][0][0] if f"{name}_bias" in self.have else None
        return [[self.normal(row, gain, shift, change) for row in rows] for rows in self.have[source]]

    def normal(self, row: Row, gain: Row | None, shift: Row | None, change: "Callable[..., Row] | None" = None) -> Row:
        inner, width = self.pen.inner, len(row)
        mean = inner(sum(row, ZERO) / width)
        variance = inner(sum(((x - mean) ** 2 for x in row), ZERO) / width)
        if variance < Decimal("0.1"):
            raise Again
        epsilon = self.problem.settings["epsilon"]
        if change:
            made = change(row, mean, variance)
        else:
            root = inner((variance + epsilon).sqrt())
            made = [(x - mean) / root for x in row]
        made = [a * b for a, b in zip(made, gain or [ONE] * width, strict=True)]
        return [a + b for a, b in zip(made, shift or [ZERO] * width, strict=True)]

    def step_attn_norm(self) -> Value:
        return self.norm("resid_pre", "attn_norm")

    def step_attn_sum(self) -> Value:
        return self.sum("resid_pre", "out")

    def step_resid_mid(self) -> Value:
        if self.problem.settings["norm"] == "pre":
            return self.sum("resid_pre", "out")
        return self.norm("attn_sum", "attn_norm")

    def step_mlp_norm(self) -> Value:
        return self.norm("resid_mid", "mlp_norm")

    def linear(self, source: str, matrix: str, bias: str) -> Value:
        shift = self.have[bias][0][0] if bias in self.have else None
        return [self.pen.times(self.have[source][0], self.have[matrix][0], shift)]

    def step_mlp_pre(self) -> Value:
        return self.linear("mlp_norm" if "mlp_norm" in self.have else "resid_mid", "w_up", "b_up")

    def step_mlp_hidden(self) -> Value:
        gelu = self.problem.settings["activation"] == "gelu"
        return self.each("mlp.pre", self.pen.gelu if gelu else lambda x: max(x, ZERO))

    def step_mlp_out(self) -> Value:
        return self.linear("mlp.hidden", "w_down", "b_down")

    def step_mlp_sum(self) -> Value:
        return self.sum("resid_mid", "mlp.out")

    def step_resid_post(self) -> Value:
        if self.problem.settings["norm"] == "pre":
            return self.sum("resid_mid", "mlp.out")
        return self.norm("mlp_sum", "mlp_norm")

    # Choice.

    def step_logits(self) -> Value:
        return [self.pen.times(self.have["x"][0], self.have["w_u"][0])]

    def step_probabilities(self) -> Value:
        return [[self.pen.softmax(row) for row in rows] for rows in self.have["logits"]]

    @property
    def last(self) -> Row:
        """The last position's probabilities; the student must not meet negative ones."""
        row = self.have["probabilities"][0][-1]
        if min(row) < 0:
            raise Again
        return row

    def step_greedy(self) -> Value:
        return [[[Decimal(self.ranked()[0])]]]

    def ranked(self) -> list[int]:
        """The words from the most probable on; never two that a rounding could exchange."""
        order = sorted(range(len(self.last)), key=lambda place: -self.last[place])
        room = 3 * ONE.scaleb(-self.pen.digits)
        if any(abs(self.last[a] - self.last[b]) < room for a, b in pairwise(order)):
            raise Again
        return order

    def filtered(self, rule: str, number: Decimal, change: int = 0) -> Row:
        """The distribution under a rule, with `change` more words kept."""
        if rule == "temperature":
            return self.warmed(number)
        return self.pen.shares(self.kept(rule, number, change))

    def warmed(self, temperature: Decimal) -> Row:
        if "logits" in self.have and self.pen.habit.carry == "full":
            return self.pen.softmax([logit / temperature for logit in self.have["logits"][0][-1]])
        return self.pen.shares([share ** (1 / temperature) if share else ZERO for share in self.last])

    def kept(self, rule: str, number: Decimal, change: int = 0) -> Row:
        order = self.ranked()
        count = int(number) if rule == "top_k" else self.nucleus(order, number)
        if not 1 <= count + change < len(order) + (not change):
            raise Again
        keep = order[: count + change]
        return [share if place in keep else ZERO for place, share in enumerate(self.last)]

    def nucleus(self, order: list[int], mass: Decimal) -> int:
        """The number of words that reach the mass, which no rounding can change."""
        total = ZERO
        for count, place in enumerate(order, 1):
            total += self.last[place]
            if abs(total - mass) < max(Decimal("0.01"), 3 * ONE.scaleb(-self.pen.digits)):
                raise Again
            if total > mass:
                return count
        raise Again

    # Loss.

    def step_losses(self, targets: list[int] | None = None) -> Value:
        [rows] = self.have["probabilities"]
        chosen = [row[target] for row, target in zip(rows, targets or self.problem.settings["targets"], strict=True)]
        if min(chosen) <= ONE.scaleb(-self.pen.digits) * 20:
            raise Again
        return [[[-share.ln() for share in chosen]]]

    def step_mean_loss(self) -> Value:
        losses = self.have["losses"][0][0]
        return [[[sum(losses, ZERO) / len(losses)]]]

    def step_perplexity(self) -> Value:
        return [[[self.pen.exp(self.have["mean_loss"][0][0][0])]]]


def clean(value: Decimal) -> Decimal:
    """A number without the last digits: three thirds are 1."""
    return value.quantize(Decimal(1).scaleb(-25), rounding=ROUND_HALF_EVEN) if value.is_finite() else value


def is_short(value: Decimal, places: int) -> bool:
    """Whether a number has no more decimals than these."""
    if not value.is_finite():
        return True
    return clean(value) == value.quantize(Decimal(1).scaleb(-places), rounding=ROUND_HALF_EVEN)
