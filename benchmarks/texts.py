"""`python -m benchmarks.texts FOLDER`: a minute on each of several texts, and whether it kept its promises.

FOLDER contains the texts and a list of them, `texts.toml`:

    [[text]]
    name = "JSONL"
    file = "stories.jsonl"            # or a folder
    options = ["--field", "text"]     # further options of vitral train

Every text is trained by `vitral train TEXT --minutes 1` as a user types it, with its output on a pipe, under three
conditions: on an idle machine, beside a busy process for each core, and on an emulated processor without AVX-512 and
bfloat16. Results are kept in a JSON file after each training; texts and conditions that are not measured stay in it.
"""

import argparse
import codecs
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.options import LeftOut, Options
from benchmarks.processes import LAST_LINES, ROOT, busy, cold, finish, python, read_events
from vitral.core.machine import cores

LIST = "texts.toml"
IDLE, BUSY, AVX2 = "idle", "busy", "avx2"
CONDITIONS = {
    IDLE: "idle",
    BUSY: "beside a busy process for each core",
    AVX2: "AVX2 emulated",
}
EMULATED = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
"""Environment in which PyTorch computes as on a processor that has AVX2 and nothing newer."""
SAMPLE_BY = 20.0
"""Seconds until the first sample is on the screen."""
LATE_SHARE, LATE_SECONDS = 0.1, 5.0
"""A training may take this share, or so many seconds, longer than it was given, whichever is more."""
LONG = 300_000
"""Characters from which on a minute must beat the trigram baseline."""
TRIGRAM = "3"
SEEN = 16
"""Characters of a sample, spaces not counted, by which it is recognised on the screen."""

Cell = Mapping[str, Any]
"""One training as plain data; see `judged`."""


@dataclass(frozen=True)
class Listed:
    """A text of the list.

    Attributes:
        name: its kind, as it stands in the table.
        path: the file or folder.
        options: further options of `vitral train`.
    """

    name: str
    path: Path
    options: tuple[str, ...]


def read_list(folder: Path) -> list[Listed]:
    """The texts of a folder.

    Raises:
        LeftOut: there is no list, it is malformed, or a file in it does not exist.
    """
    try:
        entries = tomllib.loads((folder / LIST).read_text(encoding="utf-8"))["text"]
        texts = [
            Listed(one["name"], (folder / one["file"]).resolve(), tuple(one.get("options", ()))) for one in entries
        ]
    except (OSError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise LeftOut(
            f"{folder / LIST}: {type(error).__name__}: {error}; see python -m benchmarks.texts --help"
        ) from None
    for text in texts:
        if not text.path.exists():
            raise LeftOut(f"{text.path}: in {LIST}, but not there")
    return texts


@dataclass(frozen=True)
class Watched:
    """A process whose output was read as it came.

    Attributes:
        seconds: from its start to its end.
        code: its exit code.
        output: (seconds since its start, text) for each piece of its output.
    """

    seconds: float
    code: int
    output: tuple[tuple[float, str], ...]

    def seconds_of(self, text: str, least: int = SEEN) -> float | None:
        """The seconds after which the beginning of a text was in the output; spaces and line ends do not count."""
        wanted, seen = "".join(text.split())[:least], ""
        for seconds, piece in self.output:
            seen += "".join(piece.split())
            if wanted and wanted in seen:
                return seconds
        return None


def watch(command: Sequence[str], env: Mapping[str, str]) -> Watched:
    """Run a command with its output on a pipe."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    began, output = time.perf_counter(), []
    with subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        while piece := os.read(process.stdout.fileno(), 1 << 16):
            output.append((time.perf_counter() - began, decoder.decode(piece)))
        code = process.wait()
    return Watched(time.perf_counter() - began, code, tuple(output))


def train(text: Listed, condition: str, minutes: float) -> dict[str, Any]:
    """Train on a text under a condition, measure afterwards, and judge.

    Raises:
        LeftOut: a command failed; with its last lines.
    """
    with cold(Options(), own_threads=True) as (scratch, env):
        folder = scratch / "run"
        begin = python("-m", "vitral", "train", str(text.path), "--minutes", f"{minutes:g}", "--out", str(folder))
        emulated = EMULATED if condition == AVX2 else {}
        with busy(cores()) if condition == BUSY else nullcontext():
            seen = watch([*begin, *text.options], {**env, **emulated})
        if seen.code:
            said = "".join(piece for _, piece in seen.output).strip().splitlines()[-LAST_LINES:]
            raise LeftOut(f"vitral train {text.path.name} failed ({seen.code}): {' | '.join(said)}")
        evaluation = ("-m", "vitral", "evaluate", str(folder), "--format", "json", "--no-copying")
        measured = json.loads(finish(python(*evaluation), env))
        return judged(seen, read_events(folder), documents(folder), measured, 60 * minutes)


def documents(folder: Path) -> dict[str, Any]:
    """The run's corpus.json, environment.json and config.toml as plain data, by the first part of the name."""
    names = ("corpus", "environment")
    kept = {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in names}
    return {**kept, "config": tomllib.loads((folder / "config.toml").read_text(encoding="utf-8"))}


def judged(
    seen: Watched,
    events: Sequence[Mapping[str, Any]],
    described: Mapping[str, Any],
    measured: Mapping[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """A training as plain data, with a verdict on each goal.

    Args:
        seen: the process.
        events: the run's metrics.jsonl.
        described: see `documents`.
        measured: what `vitral evaluate --format json` printed.
        seconds: the time that the training was given.

    Returns:
        Numbers, and under `goals` True, False, or None where a goal does not apply.
    """
    samples = [event["text"] for event in events if event["event"] == "sample"]
    orders: Mapping[str, float] = measured["ngrams"]["orders"]
    best = min(orders, key=orders.__getitem__)
    test, characters = measured["parts"]["test"], described["corpus"]["characters"]
    sample_at = seen.seconds_of(samples[0]) if samples else None
    model, training = described["config"]["model"], described["config"]["training"]
    return {
        "characters": characters,
        "seconds": round(seen.seconds, 1),
        "given": seconds,
        "steps": measured["step"],
        "sample_at": None if sample_at is None else round(sample_at, 1),
        "test_loss": round(test["loss"], 4),
        "bits_per_character": round(test["bits_per_character"], 4),
        "trigram": round(orders[TRIGRAM], 4) if TRIGRAM in orders else None,
        "best_ngram": [int(best), round(orders[best], 4)],
        "tokenizer": described["corpus"]["tokenizer"],
        "model": {name: model.get(name) for name in ("d_model", "num_layers", "context_length")},
        "training": {name: training.get(name) for name in ("batch_size", "dtype", "compile", "threads")},
        "plan": described["environment"].get("plan", []),
        "goals": {
            "at most its minute": seen.seconds <= seconds,
            "within its tolerance": seen.seconds <= seconds + max(LATE_SHARE * seconds, LATE_SECONDS),
            "a sample in time": sample_at is not None and sample_at <= SAMPLE_BY,
            "below the trigram": _below(test["loss"], orders.get(TRIGRAM), characters),
        },
    }


def _below(loss: float, trigram: float | None, characters: int) -> bool | None:
    """Whether the loss is below the trigram baseline; None for a short text."""
    if characters < LONG or trigram is None:
        return None
    return math.isfinite(loss) and loss < trigram


HEADINGS = (
    "text",
    "characters",
    "condition",
    "seconds",
    "steps",
    "first sample",
    "test loss",
    "trigram",
    "best n-gram",
    "kept",
)


def markdown(cells: Mapping[str, Mapping[str, Cell]]) -> str:
    """A table of the trainings, one row each; numbers that miss a goal are bold."""
    rows = [f"| {' | '.join(HEADINGS)} |", "|" + "---|" * len(HEADINGS)]
    for name, conditions in cells.items():
        rows += [_row(name, condition, conditions[condition]) for condition in CONDITIONS if condition in conditions]
    return "\n".join(rows)


def _row(name: str, condition: str, cell: Cell) -> str:
    goals = cell["goals"]

    def shown(text: str, goal: str) -> str:
        return f"**{text}**" if goals[goal] is False else text

    order, loss = cell["best_ngram"]
    sample = "none" if cell["sample_at"] is None else f"{cell['sample_at']:.1f} s"
    columns = (
        name,
        f"{cell['characters']:,}",
        CONDITIONS[condition],
        shown(f"{cell['seconds']:.1f}", "within its tolerance"),
        f"{cell['steps']:,}",
        shown(sample, "a sample in time"),
        shown(f"{cell['test_loss']:.3f}", "below the trigram"),
        "" if cell["trigram"] is None else f"{cell['trigram']:.3f}",
        f"{loss:.3f} ({order}-gram)",
        kept(goals),
    )
    return f"| {' | '.join(columns)} |"


def kept(goals: Mapping[str, bool | None]) -> str:
    """How many of the goals that apply are reached; the tolerance of the minute is not a goal of its own.

    >>> kept({"at most its minute": False, "within its tolerance": True, "below the trigram": None})
    '1 of 1'
    """
    counted = [met for goal, met in goals.items() if goal != "at most its minute" and met is not None]
    return f"{sum(counted)} of {len(counted)}"


def parser() -> argparse.ArgumentParser:
    """The command line arguments."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.texts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("folder", type=Path, metavar="FOLDER", help=f"the texts, and {LIST}")
    made.add_argument("--out", type=Path, default=Path("texts.json"), help="JSON file of the results")
    made.add_argument("--table", type=Path, default=None, help="Markdown file of the table  [default: printed only]")
    made.add_argument("--minutes", type=float, default=1.0, help="for each training")
    made.add_argument("--only", action="append", default=[], metavar="NAME", help="a text of the list; repeatable")
    made.add_argument("--condition", action="append", default=[], choices=list(CONDITIONS), help="repeatable")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Train on the texts; return 1 if one could not be measured."""
    given = parser()
    said = given.parse_args(arguments)
    try:
        texts = read_list(said.folder)
    except LeftOut as reason:
        given.error(str(reason))
    if unknown := sorted(set(said.only) - {text.name for text in texts}):
        given.error(f"no text {', '.join(unknown)} in {LIST}; there are {', '.join(text.name for text in texts)}")
    results = json.loads(said.out.read_text(encoding="utf-8")) if said.out.is_file() else {"texts": {}}
    complete = True
    for text in texts:
        for condition in said.condition or CONDITIONS:
            if said.only and text.name not in said.only:
                continue
            try:
                cell = train(text, condition, said.minutes)
            except LeftOut as reason:
                print(f"{text.name}, {CONDITIONS[condition]}: {reason}", file=sys.stderr)
                complete = False
                continue
            results = {"machine": describe_machine(cores()), "texts": results["texts"]}
            results["texts"].setdefault(text.name, {})[condition] = cell
            _write(said.out, json.dumps(results, indent=2, ensure_ascii=False))
            print(_row(text.name, condition, cell), flush=True)
    table = markdown(results["texts"])
    print(table)
    if said.table is not None:
        _write(said.table, table)
    return 0 if complete else 1


def _write(path: Path, text: str) -> None:
    """Write beside and rename, so that an interrupted measurement loses nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".tmp", delete=False, encoding="utf-8") as file:
        file.write(text + "\n")
    os.replace(file.name, path)


if __name__ == "__main__":
    sys.exit(main())
