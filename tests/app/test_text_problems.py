"""A training says which problems of its text make losses misleading; its record, page and measurements repeat it."""

import random
from pathlib import Path
from typing import Any

import pytest

import vitral
from vitral.core.errors import UsageError
from vitral.report.run import write_run_report
from vitral.runs import summarize_run

TINY: dict[str, Any] = {
    "model": {"d_model": 6, "num_layers": 1, "num_heads": 3, "d_ff": 7, "context_length": 13},
    "training": {"steps": 1, "threads": 1, "batch_size": 3, "sample_tokens": 5},
}


def prose(letters: str, size: int) -> str:
    draw = random.Random(size)
    return "".join(draw.choice(letters) for _ in range(size))


LATIN, GREEK = "abcdefg hij\n", "αβγδε ζηθι\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (prose(LATIN, 4999), []),
        (prose(LATIN, 3999) + "ж" + prose(LATIN, 199), []),
        (prose(LATIN, 499) * 10, ["100.0%"]),
        (prose(LATIN, 4499) + prose(GREEK, 499), ["U+03B1"]),
        ("a" * 997, ["single character", "100.0%"]),
    ],
    ids=["none", "one letter", "repeated", "another alphabet", "one character"],
)
def test_problems_of_a_text(text: str, told: list[str], tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(text, encoding="utf-8")
    said: list[str] = []
    run = vitral.train(
        tmp_path / "text.txt", tmp_path / "run", callback=lambda event: said.append(str(event.get("text"))), **TINY
    )
    problems = run.sealed.document("corpus").get("problems", [])
    assert [one in problem for one, problem in zip(told, problems, strict=True)] == [True] * len(told)
    assert [line.removeprefix("problem: ") for line in said if line.startswith("problem: ")] == problems
    assert (summarize_run(run.path).baselines is None) == bool(told)  # with a problem no table is compared with
    measures = vitral.evaluate(run, copying=False)
    assert ("not comparable" in measures.plain()["standing"]) == bool(told)
    assert measures.plain()["problems"] == problems
    shown = write_run_report(run.path).read_text(encoding="utf-8")
    for one in told:
        assert one in str(measures)
        assert one in shown


@pytest.mark.parametrize(("text", "told"), [("é", "character"), ("", "empty")])
def test_a_text_with_nothing_to_score(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(prose(LATIN, 999), encoding="utf-8")
    run = vitral.train(tmp_path / "text.txt", tmp_path / "run", tokenizer="byte", **TINY)
    (tmp_path / "other.txt").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=told) as refused:
        vitral.evaluate(run, text=tmp_path / "other.txt")
    assert "target" not in str(refused.value)
    assert "train" not in str(refused.value)
