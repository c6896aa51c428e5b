"""docs/first-steps.md is a transcript: its commands run in its order, and print what it shows.

Every block ```console is run: a line that begins with `$ ` is a command, the lines after it are its output, and a line
`…` stands for any number of lines. Commands run as they are written, on the play that comes with Vitral, as in the
document; a training ends after a quarter of a pass over the text (PASSES) instead of after its minutes. What depends on
the time and the machine is not compared: numbers, except where no training is involved (EXACT); text that a model
wrote; lines of progress and measured plans (DROPPED); the words in VARIES; and the output of OF_THE_MACHINE.
"""

import re
import shlex
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import pytest

from vitral.cli import run
from vitral.training import plans

DOCUMENT = Path(__file__).parents[2] / "docs" / "first-steps.md"
PLAY = "the-window-of-aldermere.txt"
PASSES = 0.25
COMMANDS = {"corpus", "train", "generate", "continue", "explain", "doctor"}
EXACT = ("corpus",)
"""Commands whose numbers are those of the document."""
OF_THE_MACHINE = ("vitral doctor", "vitral --version")
"""Commands whose output describes the machine: they are run, and their output is not compared."""
ANY = "…"
SAMPLE, SAMPLE_END = "--- sample after step", "---"
NUMBER = re.compile(r"[-−+]?\d[\d.,:]*(?:e[-+]?\d+)?")
DROPPED = re.compile(r"step \S+ · loss|note: plan: .*(\d steps|a step[: ])")
VARIES = (
    (re.compile(r"[─━═\[\]]+"), ""),
    (re.compile(r"(above|below|between) the .*$"), "RANK"),
    (re.compile(r"\b(threads?|float32|bfloat16)\b"), "CHOSEN"),
)
"""Words that depend on the time or the machine: the rank among the n-gram baselines, the plan of a step."""


class Step(NamedTuple):
    """A command and the output that the document shows."""

    command: str
    shown: tuple[str, ...]


def transcript(markdown: str) -> Iterator[Step]:
    """The commands of a document."""
    for block in re.findall(r"^```console\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL):
        for entry in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = entry.rstrip("\n").split("\n")
            yield Step(command, tuple(shown))


def without_samples(lines: list[str]) -> Iterator[str]:
    """The lines, without the texts that the model wrote while it was trained."""
    inside = False
    for line in lines:
        if not inside:
            yield SAMPLE if line.startswith(SAMPLE) else line
        inside = line.startswith(SAMPLE) or (inside and line != SAMPLE_END)


def stable(lines: list[str], exact: bool) -> list[str]:
    """What has to be equal of each line; empty lines have nothing."""
    kept = []
    for line in without_samples(lines):
        if DROPPED.match(line):
            continue
        for pattern, instead in () if exact else VARIES:
            line = pattern.sub(instead, line)
        kept.append(" ".join((line if exact else NUMBER.sub("#", line)).split()))
    return [line for line in kept if line]


def missing(shown: list[str], printed: list[str]) -> list[str]:
    """The first piece of the transcript, between two `…`, that the output does not have where it should."""
    pieces: list[list[str]] = [[]]
    for line in shown:
        if line == ANY:
            pieces.append([])
        else:
            pieces[-1].append(line)
    at = 0
    for number, piece in enumerate(pieces):
        places = range(at, len(printed) - len(piece) + 1)
        if number == 0:
            places = places[:1]
        if number == len(pieces) - 1:
            places = [place for place in places if place + len(piece) == len(printed) or not piece]
        found = next((place for place in places if printed[place : place + len(piece)] == piece), None)
        if found is None:
            return piece
        at = found + len(piece)
    return []


def test_pieces_between_ellipses_are_found_in_order() -> None:
    printed = ["a", "b", "c", "d"]
    for shown in (["a", "b", "c", "d"], ["a", ANY], [ANY, "d"], ["a", ANY, "c", "d"], [ANY, "b", "c", ANY], [ANY]):
        assert missing(shown, printed) == []
    for shown in (["a", "b"], ["b", ANY], [ANY, "c"], ["a", "c", ANY], [ANY, "c", ANY, "b", ANY]):
        assert missing(shown, printed)


def test_numbers_and_the_rank_are_not_compared() -> None:
    one = "step 35/70: test 2.206 nats per token, between the bigram and the trigram"
    other = "step 9/1,200:  test 1.9 nats per token, above the 4-gram"
    assert stable([one], exact=False) == stable([other], exact=False)
    assert stable(["tokens 1.0"], exact=True) != stable(["tokens 2.0"], exact=True)


def test_progress_and_measured_plans_are_not_compared() -> None:
    lines = [
        "note: plan: 107 steps instead of 304",
        "step 3/107 · loss 4.142",
        "note: plan: context 128: usual",
        "step 3: x",
    ]
    assert stable(lines, exact=False) == ["note: plan: context #: usual".replace("#:", "#"), "step # x"]


def test_samples_are_not_compared() -> None:
    printed = ["step 1", "--- sample after step 1 · 8 words stand in the text", "a", "--", "---", "step 2"]
    assert list(without_samples(printed)) == ["step 1", "--- sample after step", "step 2"]


def test_the_document_is_a_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(plans, "most_epochs", lambda config: PASSES)
    play = resources.files("vitral.data") / "texts" / PLAY
    Path("my.txt").write_text(play.read_text(encoding="utf-8"), encoding="utf-8")
    steps = list(transcript(DOCUMENT.read_text(encoding="utf-8")))
    assert {shlex.split(step.command)[1] for step in steps} >= COMMANDS
    for step in steps:
        program, *arguments = shlex.split(step.command)
        assert program == "vitral", step.command
        capsys.readouterr()
        assert run(arguments) == 0, step.command
        printed = capsys.readouterr().out
        exact = arguments[0] in EXACT
        shown = stable(list(step.shown), exact)
        if shown and step.command not in OF_THE_MACHINE:
            assert missing(shown, stable(printed.split("\n"), exact)) == [], f"{step.command}\n{printed}"
        for page in re.findall(r"^(?:report|page): +(\S+)$", printed, re.MULTILINE):
            assert Path(page).is_file()
