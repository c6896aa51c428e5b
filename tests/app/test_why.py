"""Why a sample is bad: the reasons that follow from facts, and the commands that a training prints, run as printed."""

import io
from pathlib import Path
from typing import Any

import pytest

from tests.app.conftest import printed_commands
from vitral.doctor.sample import reasons

GOOD: dict[str, Any] = {
    "run": "runs/my",
    "text": "my text.txt",
    "is_text": True,
    "objective": "next-token",
    "step": 1000,
    "best_step": 1000,
    "tokens_per_step": 2000,
    "least_steps": 450,
    "most_passes": 16,
    "is_smallest": False,
    "seconds_per_step": 0.03,
    "parameters": 200_000,
    "tokens": 130_000,
    "characters": 150_000,
    "tokenizer": "char",
    "vocab_size": 68,
    "validation_loss": 1.5,
    "last_validation_loss": 1.5,
    "test_loss": 1.5,
    "baselines": {"1": 3.3, "2": 2.4, "3": 1.9, "4": 1.6},
    "copied": 0.0,
    "exact": None,
    "shortfalls": [],
    "problems": [],
}
"""A run that read its text 15.4 times and beats every table."""
ANSWERS = {"is_text": False, "tokens": None, "most_passes": None}
"""What differs in a run of records."""


@pytest.mark.parametrize(
    ("changes", "kinds", "command"),
    [
        ({}, ["size", "temperature"], "generate runs/my --temperature 0.5"),
        # The text allows 16 · 130,000 / 2000 = 1040 steps, of which 0.6 are 624: 574 more of 0.1 s are 0.96 minutes.
        ({"step": 50, "test_loss": 2.0, "seconds_per_step": 0.1}, ["undertrained"], "continue runs/my --minutes 1"),
        (
            {"step": 300, "least_steps": 1500, "seconds_per_step": 0.1, "shortfalls": ["300 of 900"]},
            ["undertrained", "busy"],
            "continue runs/my --minutes 2",
        ),
        ({"parameters": 820_000}, ["large"], "train 'my text.txt'"),
        (
            {"parameters": 820_000, "is_smallest": True, "step": 50, "seconds_per_step": 0.1},
            ["undertrained"],
            "continue runs/my --minutes 1",
        ),
        ({"test_loss": 2.0}, ["simple"], "train 'my text.txt'"),
        # 740 more steps of 0.25 s.
        ({"step": 300, "least_steps": 0, "seconds_per_step": 0.25}, ["passes"], "continue runs/my --minutes 4"),
        ({"last_validation_loss": 1.7}, ["overfitting"], None),
        ({"characters": 99_000}, ["short"], None),
        ({"tokenizer": "bpe", "vocab_size": 2000}, ["tokenizer"], "train 'my text.txt' --tokenizer char"),
        ({"problems": ["a leak"], "characters": 9000}, ["problem", "short"], "corpus 'my text.txt'"),
        (
            {"problems": ["a leak"], "step": 50, "baselines": {}},
            ["undertrained", "problem"],
            "continue runs/my --minutes 1",
        ),
        # Half of 1000 steps of 0.03 s are 0.25 minutes.
        ({"copied": 0.79}, ["copied", "size"], "train 'my text.txt' --minutes 0.2"),
        ({"copied": 0.79, "step": 50, "test_loss": 2.0}, ["copied", "temperature"], None),
        ({"copied": 0.1}, ["copied", "size"], "generate runs/my --temperature 0.5"),
        ({**ANSWERS, "exact": 1.0}, ["numbers"], "evaluate runs/my"),
        ({**ANSWERS, "exact": 0.2}, ["numbers"], "continue runs/my --minutes 2"),
        ({**ANSWERS, "baselines": {"1": 1.4}}, ["numbers"], "continue runs/my --minutes 2"),
        ({"objective": "masked", "baselines": {}}, ["numbers"], "evaluate runs/my"),
    ],
)
def test_reasons_follow_from_facts(changes: dict[str, Any], kinds: list[str], command: str | None) -> None:
    found = reasons({**GOOD, **changes})
    assert [one.kind for one in found][: len(kinds)] == kinds
    assert command in (None, next((one.command for one in found if one.command), None))


def test_nothing_is_known_of_a_run_without_an_evaluation() -> None:
    unknown = dict.fromkeys(("test_loss", "validation_loss", "last_validation_loss", "seconds_per_step", "best_step"))
    assert [one.kind for one in reasons({**GOOD, **unknown})] == ["temperature"]


@pytest.mark.merge
@pytest.mark.parametrize("kind", ["text", "pairs", "chats", "labels", "masked"])
def test_the_commands_that_a_training_prints_run_where_it_printed_them(
    kind: str, typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = {
        "pairs": '{"source": "ab%d", "target": "ba%d"}\n',
        "chats": '{"messages": [{"role": "user", "content": "ab%d"}, {"role": "assistant", "content": "ba%d"}]}\n',
        "labels": '{"text": "ab%d", "label": "l%d"}\n',
    }.get(kind)
    if made is None:
        text = "\n".join(f"The light of {n} windows is a light." for n in range(400))
    else:
        text = "".join(made % (n, n % 2 if kind == "labels" else n) for n in range(300))
    (tmp_path / f"my text.{'jsonl' if made else 'txt'}").write_text(text, encoding="utf-8")
    sets = ["training.steps=12", "training.evaluate_every=6", "model.num_layers=1", "model.d_model=16"]
    sets += ["model.num_heads=2", "model.d_ff=16", *["training.objective=masked"] * (kind == "masked")]
    started = ["train", next(tmp_path.glob("my*")).name, *(word for one in sets for word in ("--set", one))]
    monkeypatch.chdir(tmp_path)
    said = typed(started)
    shown = said.split("\nnext:\n")[1].strip()
    commands = printed_commands(shown)
    assert 4 <= len(shown.splitlines()) <= 5
    assert len(commands) >= 4
    for command in commands:
        monkeypatch.setattr("sys.stdin", io.StringIO("ab\n"))  # of a chat
        typed(command)
    typed(["why", "runs/my text"])
