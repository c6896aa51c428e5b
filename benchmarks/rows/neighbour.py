"""Row `neighbour`: training steps beside busy processes, by how PyTorch's threads wait for one another."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from benchmarks.options import LeftOut, Options
from benchmarks.processes import ROOT, SPIN, busy, cold, python
from benchmarks.results import OURS, Goal, Section
from benchmarks.results import measure as measure_contenders

NAMES = ("neighbour",)
STEPS, QUICK_STEPS = 60, 2
SPINNING = "300,000 times (PyTorch's default)"
WAITING: Mapping[str, Mapping[str, str]] = {
    OURS: {},
    "0 times": {SPIN: "0"},
    "10,000 times": {SPIN: "10000"},
    "100,000 times": {SPIN: "100000"},
    SPINNING: {SPIN: "300000"},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
}
"""How often a thread looks whether the others are done, before it sleeps -> the variables that say so."""
IDLE = "Vitral idle"
CONDITIONS = {0: "idle", 1: "beside one busy process", 2: "beside two busy processes"}
GOALS = {0: Goal("within", 1.02, SPINNING), 1: Goal("within", 2.2, IDLE), 2: Goal("within", 3.3, IDLE)}


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure steps by every way of waiting beside no, one and two busy processes, all in turns.

    Raises:
        LeftOut: a process failed.
    """
    steps = QUICK_STEPS if options.quick else STEPS
    with _stepping(options) as working:
        turns = {
            f"{name} {condition}": partial(_take, process, steps, number)
            for number, condition in CONDITIONS.items()
            for name, process in working.items()
        }
        measured = {one.name: one for one in measure_contenders(turns, options.rounds, warmup=0)}
    sections = list[Section]()
    for number, condition in CONDITIONS.items():
        here = {name: replace(measured[f"{name} {condition}"], name=name) for name in WAITING}
        idle = [replace(measured[IDLE], name=IDLE)] if number else []
        sections.append(
            Section(
                "neighbour",
                f"{steps} steps of the preset fast, {options.threads} threads, {condition}",
                (here.pop(OURS), *idle, *here.values()),
                unit="steps",
                work=steps,
                goals=(GOALS[number],),
                notes=("a thread looks so often whether the others are done, then it sleeps; Vitral: 1,000 times",),
            )
        )
    return sections


@contextmanager
def _stepping(options: Options) -> Iterator[dict[str, "subprocess.Popen[str]"]]:
    """A process that makes steps for each way of waiting; those that are not asked sleep."""
    with cold(options) as (_, environment):
        command = python("-m", "benchmarks.stepping", str(options.threads))
        working = {
            name: subprocess.Popen(
                command,
                env={**environment, **variables},
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for name, variables in WAITING.items()
        }
        try:
            for process in working.values():
                _answer(process)
            yield working
        finally:
            for process in working.values():
                process.kill()
                process.communicate()


def _take(process: "subprocess.Popen[str]", steps: int, neighbours: int) -> float:
    with busy(neighbours):
        assert process.stdin is not None
        process.stdin.write(f"{steps}\n")
        process.stdin.flush()
        return float(_answer(process))


def _answer(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise LeftOut("python -m benchmarks.stepping failed")
    return line
