"""A sheet as a file, with the student's spelling of numbers."""

import random
from decimal import Decimal

from students.paper import Paper
from students.problems import PER_HEAD, Problem, typed_given

VECTORS = ("temperature", "top_k", "top_p")
SCALARS = ("mean_loss", "perplexity")

Typed = dict[str, list[list[list[str]]]]
"""The numbers of each printed step, as typed."""
Place = tuple[str, int, int, int]
"""A cell: step, head, row, column, from 0."""


class Writer:
    """How one student types.

    Attributes:
        zeros: at the end of a number: "kept", "lost", or lost where the number is "whole".
        spelling: "plain", "comma" for decimal commas, "capital" for W_Q instead of w_q.
    """

    def __init__(self, rng: random.Random, problem: Problem, title: str) -> None:
        """Draw a way of typing."""
        self.problem, self.title = problem, title
        self.zeros = rng.choice(("kept", "kept", "lost", "whole"))
        self.spelling = rng.choice(("plain",) * 8 + ("comma", "capital"))

    def typed_steps(self, paper: Paper) -> Typed:
        """The printed steps as typed."""
        return {
            step: [[[self.typed(x) for x in row] for row in rows] for rows in paper.shown[step]]
            for step in self.problem.steps
            if step in paper.printed
        }

    def typed(self, value: Decimal) -> str:
        """A number as typed: with its zeros, without them, or without them where it is whole."""
        if not value.is_finite():
            return "-inf"
        text = format(value, "f")
        if value == 0:
            text = text.removeprefix("-")
        if "." in text and (self.zeros == "lost" or (self.zeros == "whole" and value == value.to_integral_value())):
            text = text.rstrip("0").rstrip(".")
        return text

    def write(self, typed: Typed, hidden: set[Place]) -> str:
        problem = self.problem
        lines = [f'title = "{self.title}"', *problem.top, "[given]", *problem.settings.get("given", [])]
        for name, value in problem.given.items():
            texts = [
                [
                    [self.spelt(typed_given(x, problem.given_digits if name[:2] == "w_" else None)) for x in row]
                    for row in rows
                ]
                for rows in value
            ]
            key = name.upper() if self.spelling == "capital" and name[1:2] in ("", "_") else name
            vector = name.startswith("b_") or name.endswith(("_gain", "_bias"))
            lines.append(f"{key} = {self.nested(name, texts, vector)}")
        if "free" in problem.settings:
            lines += ["[steps]", *problem.settings["free"]]
        lines.append("[claimed]")
        for step, texts in typed.items():
            if step == "greedy":
                index = int(Decimal(texts[0][0][0]))
                lines.append(f'greedy = "{self.vocabulary[index]}"')
                continue
            cells = [
                [
                    [
                        '"?"' if (step, h, i, j) in hidden else '"-inf"' if text == "-inf" else self.spelt(text)
                        for j, text in enumerate(row)
                    ]
                    for i, row in enumerate(rows)
                ]
                for h, rows in enumerate(texts)
            ]
            if step in SCALARS:
                lines.append(f"{step} = {cells[0][0][0]}")
                continue
            key = f'"{step}"' if step.startswith(VECTORS) else step
            lines.append(f"{key} = {self.nested(step, cells, step.startswith(VECTORS))}")
        return "\n".join(lines) + "\n"

    def spelt(self, text: str) -> str:
        """A number as this student spells it, with a decimal comma or a point."""
        return f'"{text.replace(".", ",")}"' if self.spelling == "comma" and "." in text else text

    @property
    def vocabulary(self) -> list[str]:
        [line] = [line for line in self.problem.top if line.startswith("vocabulary")]
        return [word.strip(' "') for word in line.partition("[")[2].rstrip("]").split(",")]

    def nested(self, name: str, value: list[list[list[str]]], vector: bool) -> str:
        """A value as nested lists, without the axis of heads where there is one head."""
        heads = [_listed(rows[0]) if vector else _listed([_listed(row) for row in rows]) for rows in value]
        return _listed(heads) if name in PER_HEAD and self.problem.heads > 1 else heads[0]


def _listed(parts: list[str]) -> str:
    return f"[{', '.join(parts)}]"
