"""One file of a run or a study is damaged: no command gives another result without a line that says so.

Every trial damages one file (or replaces a checkpoint), asks the gate for everything it gives, asks `vitral doctor`,
runs one command drawn at random, and restores the file.
"""

import contextlib
import csv
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.conftest import Tally, scaled
from tests.reliability.damages import DAMAGES, Tree, heard, is_one_line
from tests.reliability.test_study_links import STUDY, numbers, work
from vitral import cli
from vitral.core.errors import UsageError, VitralError
from vitral.core.files import sha256
from vitral.lab.run_health import examine_run
from vitral.lab.study_health import examine_study
from vitral.reports.run import write_run_report
from vitral.reports.study import write_report
from vitral.runs import RunFolder, SealedRun, enter
from vitral.runs.checkpoint_files import OPTIMIZER, STATE, WEIGHTS
from vitral.runs.config import comparable
from vitral.runs.loading import load_checkpoint_of
from vitral.studies import run_study
from vitral.training import Event, RunConfig, resume, train

TRIALS = scaled(100, 17_000)
STUDY_TRIALS = scaled(24, 3000)
AGAIN = 0.08
"""Share of the trials of a study in which its command is given again."""
STOP = 10
SHOWN = 40
"""Failures shown at the end."""
TIMES = {"seconds", "stepped", "tokens_per_second"}


def stopped(config: RunConfig, path: Path) -> None:
    """A run that is stopped before its end, with samples and a report."""

    def stop(event: Event) -> None:
        if event["event"] == "step" and event["step"] == STOP:
            raise RuntimeError("stop here")

    with contextlib.suppress(RuntimeError):
        train(config, path, callback=stop)
    write_run_report(path)


class Judged:
    """A run, what it answers while it is whole, and the damaged answers so far.

    Attributes:
        tree: the run's files.
        other: another run of the same shape, whose files fit in name and size.
    """

    def __init__(self, tree: Tree, other: Tree, work: Path) -> None:
        """Ask the whole run everything once."""
        self.tree, self.other, self.work = tree, other, work
        self.path = tree.root
        self.commands: dict[str, Callable[[], Any]] = {
            "generate": self._cli("generate", "--prompt", "the", "--max-tokens", "20"),
            "generate the last": self._cli("generate", "--max-tokens", "20", "--checkpoint", "last"),
            "evaluate": self._cli("evaluate", "--no-copying"),
            "explain": self._cli("explain", "--text", "the cat"),
            "inspect": self._cli("inspect", "--text", "the cat", "--format", "json"),
            "doctor": self._cli("doctor", "--format", "json"),
            "resume": self._resume,
            "report": self._report,
        }
        self.chances = [20, 10, 20, 10, 10, 10, 5, 3]
        self.right = {name: ask() for name, ask in self.questions().items()}
        self.done = {name: heard(command) for name, command in self.commands.items()}
        self.config = RunConfig.parse(RunFolder.open(self.path).config)
        tree.restore()

    def _cli(self, command: str, *arguments: str) -> Callable[[], Any]:
        return lambda: cli.run([command, str(self.path), *arguments])

    def questions(self, notes: list[str] | None = None) -> dict[str, Callable[[], Any]]:
        """Everything the gate gives, each as plain data."""
        warn = ([] if notes is None else notes).append
        folder, entered = RunFolder(self.path), list[SealedRun]()

        def gate() -> Any:
            entered.append(run := enter(self.path, warn))
            return {
                "run": run.identity.run,
                "config": comparable(run.config),
                "tokenizer": run.tokenizer.plain(),
                "step": run.newest.step if run.newest else None,
            }

        def weights(which: str) -> Any:
            run = entered[0] if entered else enter(self.path, warn)
            loaded = load_checkpoint_of(run, which, with_optimizer=which == "last", warn=warn)
            tensors = {**loaded.model, **loaded.optimizer}
            return loaded.step, {name: sha256(tensor.numpy().tobytes()) for name, tensor in tensors.items()}

        return {
            "enter": gate,
            "best": lambda: weights("best"),
            "last": lambda: weights("last"),
            "corpus": lambda: folder.document("corpus"),
            "ngrams": folder.ngrams,
            "metrics": folder.metrics,
        }

    def _resume(self) -> Any:
        copy = self.work / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.path, copy)

        def tell(event: Event) -> None:
            if event["event"] == "note":
                print(f"vitral: {event['text']}", file=sys.stderr)

        folder = resume(copy, callback=tell)
        last = folder.steps / f"step-{self.config.training.steps:08d}" if hasattr(self, "config") else None
        last = last or sorted(folder.steps.glob("step-*"))[-1]
        numbers = [
            {key: value for key, value in event.items() if key not in TIMES}
            for event in folder.metrics()
            if event["event"] in ("step", "evaluation")
        ]
        return sha256((last / WEIGHTS).read_bytes()), sha256((last / OPTIMIZER).read_bytes()), numbers

    def _report(self) -> str:
        return write_run_report(self.path).read_text(encoding="utf-8")

    def judge(self, name: str, draw: random.Random) -> list[str]:
        """Everything that is wrong with the answers now, while the file `name` is damaged."""
        faults: list[str] = []
        notes: list[str] = []
        for what, ask in self.questions(notes).items():
            try:
                found, _, said = heard(ask)
            except Exception as error:
                faults.append(f"{what}: {type(error).__name__}: {error}")
                continue
            faults += self._compared(what, found, self.right[what], [*notes, *said.splitlines()])
        now = self.tree.content()
        faults += self._examined(name, now)
        faults += self._command(name, draw)
        return faults

    def _examined(self, name: str, now: dict[str, bytes]) -> list[str]:
        try:
            diagnosis = examine_run(self.path, replay=False)
        except UsageError as error:
            return [] if is_one_line(str(error)) else [f"doctor: {error!r}"]
        except Exception as error:
            return [f"doctor: {type(error).__name__}: {error}"]
        faults = [f"doctor: {one.found!r}" for one in diagnosis.findings if not is_one_line(one.found)]
        if (
            diagnosis.healthy
            and now != self.tree.whole
            and not _may_be_well(self.path, name, now.get(name), self.tree.whole.get(name))
        ):
            faults.append("doctor: all is well")
        return faults

    def _command(self, name: str, draw: random.Random) -> list[str]:
        (command,) = draw.choices(list(self.commands), self.chances)
        try:
            found, out, said = heard(self.commands[command])
        except Exception as error:
            return [f"{command}: {type(error).__name__}: {error}"]
        right, right_out, _ = self.done[command]
        faults = [f"{command}: printed {line!r}" for line in said.splitlines() if not is_one_line(line)]
        if command == "doctor" and found in (0, 1):
            return faults  # its words differ with what it finds
        if command == "resume" and name == "config.toml" and isinstance(found, tuple):
            found, right = found[:2], right[:2]  # free keys: other lines are logged
        if command == "report" and name == "config.toml" and isinstance(found, str):
            found, right = found.split("The whole configuration")[0], right.split("The whole configuration")[0]
        if isinstance(found, int) and found != right:
            found = UsageError(said.splitlines()[-1] if said else "")
        faults += self._compared(command, (found, out), (right, right_out), said.splitlines())
        return faults

    @staticmethod
    def _compared(what: str, found: Any, right: Any, lines: list[str]) -> list[str]:
        error = found[0] if isinstance(found, tuple) and found and isinstance(found[0], Exception) else found
        if isinstance(error, Exception):
            return [] if is_one_line(str(error)) else [f"{what}: {str(error)!r}"]
        faults = [f"{what}: {line!r}" for line in lines if not is_one_line(line)]
        if found != right and not lines:
            faults.append(f"{what}: silent")
        return faults


def _may_be_well(run: Path, name: str, now: bytes | None, right: bytes | None) -> bool:
    """Whether other bytes change nothing that is sealed, or only miss what can be made again."""
    if right is None:  # a whole checkpoint was replaced
        return False
    if now == right:
        return True
    if name == "config.toml":
        sealed = next(iter((run / "steps").iterdir())) / STATE
        try:
            written = comparable(RunConfig.parse(RunFolder.open(run).config))
        except VitralError:
            return False
        return written == comparable(RunConfig.parse(json.loads(sealed.read_bytes())["config"]))
    if name == "metrics.jsonl":  # nothing seals what comes after the last checkpoint
        return now is not None and now.startswith(right)
    if name in ("best", "last"):
        return now is None or now.strip() == right.strip()
    return now is None and (name.startswith("samples/") or name == "report/MANIFEST.json")


@pytest.fixture(scope="module")
def judged(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """A run that stopped after ten steps of twelve, and another of the same shape."""
    base = tmp_path_factory.mktemp("gate")
    plain = config.plain()
    plain["training"] |= {"evaluate_every": 3, "checkpoint_every": 2, "sample_every": 4, "keep_checkpoints": 3}
    for name, seed in (("run", 1), ("other", 2)):
        stopped(RunConfig.parse({**plain, "seed": seed}), base / name)
    return Judged(Tree(base / "run"), Tree(base / "other"), base)


def damaged(tree: Tree, others: Tree, draw: random.Random) -> tuple[str, str]:
    """Damage one file, or one checkpoint; return its name and what was done."""
    whole, other = tree.whole, others.whole
    steps = sorted({name.rpartition("/")[0] for name in whole if "steps/" in name})
    if draw.random() < 0.04:
        to, source = draw.choice(steps), draw.choice(["another run", "another step"])
        of = draw.choice(steps)
        taken = other if source == "another run" else whole
        of = to if source == "another run" and draw.random() < 0.8 else of
        tree.write({name: taken.get(name.replace(to, of)) for name in whole if name.startswith(f"{to}/")})
        return to, f"replaced by {of} of {source}"
    name = draw.choice([*whole, *[name for name in whole if "/" not in name]])
    how = draw.choice([*DAMAGES, "that of another run", "that of another file"])
    if how == "that of another run":
        raw = other.get(name)
    elif how == "that of another file":
        raw = whole[draw.choice([one for one in whole if Path(one).name == Path(name).name or one.endswith(".json")])]
    else:
        raw = DAMAGES[how](whole[name], draw)
    tree.write({name: raw})
    return name, how


def test_no_damage_of_a_run_is_silent(judged: Judged, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    failures: list[str] = []
    for trial in range(TRIALS):
        draw = random.Random(f"{seed} {trial}")
        name, how = damaged(judged.tree, judged.other, draw)
        damage = judged.tree.content()
        faults = judged.judge(name, draw)
        after = judged.tree.content()
        written = {one for one in after.keys() | damage.keys() if after.get(one) != damage.get(one)}
        if not all(one.startswith("report/") for one in written):
            faults.append(f"wrote {sorted(written)}")
        failures += [f"seed {seed}, trial {trial}: {how}: {name}: {fault}" for fault in faults]
        judged.tree.restore()
    assert not failures, f"{len(failures)} faults\n" + "\n".join(failures[:SHOWN])
    assert judged.tree.content() == judged.tree.whole
    tally("edits and flips of a run's files, none silent", TRIALS)


class JudgedStudy:
    """A study, what it says while it is whole, and the same command given again."""

    def __init__(self, config: RunConfig, base: Path) -> None:
        """Make the study, and another of the same shape whose files fit in name."""
        self.config, self.path = config, base / "study"
        work(config, self.path)
        work(
            RunConfig.parse({**config.plain(), "seed": 9, "training": config.training.plain() | {"steps": 11}}),
            base / "o",
        )
        self.tree, self.other = Tree(self.path), Tree(base / "o")
        self.right = self._numbers()
        self.usual = {(one.mark, one.what) for one in examine_study(self.path).findings}

    def _numbers(self) -> dict[str, object]:
        table = csv.DictReader((self.path / "report" / "study.csv").read_text(encoding="utf-8").splitlines())
        rows = [{key: value for key, value in row.items() if key != "seconds"} for row in table]
        return {**numbers(self.path), "table": rows}

    def judge(self, name: str, *, again: bool) -> list[str]:
        """Everything that is wrong with the answers now, while the file `name` is damaged."""
        try:
            diagnosis = examine_study(self.path)
        except Exception as error:
            return [f"doctor: {type(error).__name__}: {error}"]
        faults = [f"doctor: {one.found!r}" for one in diagnosis.findings if not is_one_line(one.found)]
        told = {(one.mark, one.what) for one in diagnosis.findings} - self.usual
        if not any(mark != "ok" for mark, _ in told) and not self._may_be_well(name):
            faults.append("doctor: all is well")
        return faults + (self._again() if again else [])

    def _may_be_well(self, name: str) -> bool:
        now = self.tree.content()
        if now == self.tree.whole:
            return True
        if name.startswith("arms/"):
            arm, seed, inside = name.split("/", 3)[1:]
            return _may_be_well(self.path / "arms" / arm / seed, inside, now.get(name), self.tree.whole[name])
        if name.startswith("jobs/") and not name.endswith(("plan.json", "job.json")):
            return True  # who claimed what, which no result depends on
        return name not in now and (name.startswith("measures/") or name == "report/MANIFEST.json")

    def _again(self) -> list[str]:
        lines: list[str] = []

        def tell(event: Event) -> None:
            if event["event"] == "note":
                lines.append(event["text"])

        try:
            done = run_study(STUDY, self.config, self.path, budget="quick", callback=tell)
            write_report(done)
        except VitralError as error:
            return [] if is_one_line(str(error)) else [f"study: {error!r}"]
        except Exception as error:
            return [f"study: {type(error).__name__}: {error}"]
        faults = [f"study: {line!r}" for line in lines if not is_one_line(line)]
        try:
            found = self._numbers()
        except VitralError as error:
            return faults + ([] if lines else [f"study: silent, and its run is damaged: {error}"])
        return faults if found == self.right or lines else [*faults, "study: silent"]


@pytest.fixture(scope="module")
def study(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> JudgedStudy:
    """A study of two arms."""
    return JudgedStudy(config, tmp_path_factory.mktemp("gate of a study"))


def test_no_damage_of_a_study_is_silent(study: JudgedStudy, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    failures: list[str] = []
    for trial in range(STUDY_TRIALS):
        draw = random.Random(f"{seed} {trial}")
        name, how = damaged(study.tree, study.other, draw)
        faults = study.judge(name, again=draw.random() < AGAIN)
        failures += [f"seed {seed}, trial {trial}: {how}: {name}: {fault}" for fault in faults]
        study.tree.restore()
    assert not failures, f"{len(failures)} faults\n" + "\n".join(failures[:SHOWN])
    tally("edits and flips of a study's files, none silent", STUDY_TRIALS)
