"""One file of a run or a study is damaged: no command gives another result without a line that says so.

Every trial damages one file (or replaces a checkpoint), asks the gate for everything it gives, asks `vitral doctor`,
runs one command drawn at random, and restores the file.
"""

import contextlib
import json
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.reliability.conftest import Tally, changed, measured, trials
from tests.reliability.damages import DAMAGES, Tree, heard, is_one_line
from tests.training.conftest import at, fail
from vitral.app import terminal as cli
from vitral.core.errors import UsageError, VitralError
from vitral.core.files import sha256
from vitral.doctor.folders import examine_run, examine_study
from vitral.report.run import write_run_report
from vitral.runs import RunFolder, SealedRun, enter
from vitral.runs.checkpoint import STATE
from vitral.runs.config import comparable
from vitral.training import Event, RunConfig, resume, train

STOP = 10


def stopped(config: RunConfig, path: Path) -> None:
    """A run that is stopped before its end, with samples and a report."""

    with contextlib.suppress(KeyError):
        train(config, path, callback=at(fail, "step", STOP))
    write_run_report(path)


class Judged:
    """A run, what it answers while it is whole, and the damaged answers so far.

    Attributes:
        tree: the run's files.
    """

    def __init__(self, tree: Tree, work: Path) -> None:
        """Ask the whole run everything once."""
        self.tree, self.work, self.path = tree, work, tree.root
        self.commands: dict[str, Callable[[], Any]] = {
            "generate": self._cli("generate", "--prompt", "the", "--max-tokens", "20"),
            "evaluate": self._cli("evaluate", "--no-copying"),
            "explain": self._cli("explain", "--text", "the cat"),
            "inspect": self._cli("inspect", "--text", "the cat", "--format", "json"),
            "doctor": self._cli("doctor", "--format", "json"),
            "resume": self._resume,
            "report": self._report,
        }
        self.chances = [30, 20, 10, 10, 10, 5, 3]
        self.right = {name: ask() for name, ask in self.questions([]).items()}
        self.done = {name: heard(command) for name, command in self.commands.items()}
        tree.restore()

    def _cli(self, command: str, *arguments: str) -> Callable[[], Any]:
        return lambda: cli.run([command, str(self.path), *arguments])

    def questions(self, notes: list[str]) -> dict[str, Callable[[], Any]]:
        """Everything the gate gives, each as plain data."""
        folder, entered = RunFolder(self.path), list[SealedRun]()

        def gate() -> Any:
            entered.append(run := enter(self.path, notes.append))
            step = run.newest.step if run.newest else None
            return run.identity.run, comparable(run.config), run.tokenizer.plain(), step

        def weights(which: str) -> Any:
            run = entered[0] if entered else enter(self.path, notes.append)
            loaded = run.load(which, with_optimizer=which == "last", warn=notes.append)
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
        shutil.rmtree(self.work / "copy", ignore_errors=True)

        def tell(event: Event) -> None:
            if event["event"] == "note":
                print(f"vitral: {event['text']}", file=sys.stderr)

        folder = resume(shutil.copytree(self.path, self.work / "copy"), callback=tell)
        last = sorted(folder.steps.glob("step-*"))[-1]
        logged = [event for event in measured(folder) if '"event": "note"' not in event]
        return *(sha256(path.read_bytes()) for path in sorted(last.glob("*.safetensors"))), logged

    def _report(self) -> str:
        return write_run_report(self.path).read_text(encoding="utf-8")

    def judge(self, name: str, draw: random.Random) -> list[str]:
        """Everything that is wrong with the answers now, while the file `name` is damaged."""
        faults: list[str] = []
        notes: list[str] = []
        for what, ask in self.questions(notes).items():
            found, _, said = heard(ask)
            faults += self._compared(what, found, self.right[what], [*notes, *said.splitlines()])
        return faults + self._examined(name) + self._command(name, draw)

    def _examined(self, name: str) -> list[str]:
        now = self.tree.content()
        try:
            diagnosis = examine_run(self.path, replay=False)
        except UsageError as error:
            return [] if is_one_line(str(error)) else [f"doctor: {error!r}"]
        faults = [f"doctor: {one.found!r}" for one in diagnosis.findings if not is_one_line(one.found)]
        whole = now == self.tree.whole or _may_be_well(self.path, name, now.get(name), self.tree.whole.get(name))
        return faults if whole or not diagnosis.healthy else [*faults, "doctor: all is well"]

    def _command(self, name: str, draw: random.Random) -> list[str]:
        (command,) = draw.choices(list(self.commands), self.chances)
        found, out, said = heard(self.commands[command])
        right, right_out, _ = self.done[command]
        if command == "doctor" and found in (0, 1):  # its words differ with what it finds
            return [f"doctor: printed {line!r}" for line in said.splitlines() if not is_one_line(line)]
        if name == "config.toml" and isinstance(found, tuple):
            found, right = found[:-1], right[:-1]  # free keys: other lines are logged
        if name == "config.toml" and isinstance(found, str):
            found, right = (text.split("The whole configuration")[0] for text in (found, right))
        if isinstance(found, int) and found != right:
            found = UsageError(said.splitlines()[-1] if said else "")
        return self._compared(command, (found, out), (right, right_out), said.splitlines())

    @staticmethod
    def _compared(what: str, found: Any, right: Any, lines: list[str]) -> list[str]:
        error = found[0] if isinstance(found, tuple) and found else found
        lines = [str(error)] if isinstance(error, Exception) else lines
        faults = [f"{what}: {line!r}" for line in lines if not is_one_line(line)]
        return faults if found == right or lines else [*faults, f"{what}: silent"]


def _may_be_well(run: Path, name: str, now: bytes | None, right: bytes | None) -> bool:
    """Whether other bytes change nothing that is sealed, or only miss what can be made again."""
    if right is None:  # a whole checkpoint was replaced
        return False
    if now == right:
        return True
    if name == "config.toml":
        sealed = next(iter((run / "steps").iterdir())) / STATE
        try:
            written = comparable(RunConfig.parse(RunFolder.open(run).written))
        except VitralError:
            return False
        return written == comparable(RunConfig.parse(json.loads(sealed.read_bytes())["config"]))
    if name == "metrics.jsonl":  # nothing seals what comes after the last checkpoint
        return now is not None and now.startswith(right)
    return now is None and (name.startswith("samples/") or name == "report/MANIFEST.json")


def damaged(tree: Tree, others: Tree, draw: random.Random) -> tuple[str, str]:
    """Damage one file, or one checkpoint; return its name and what was done."""
    whole, other = tree.whole, others.whole
    steps = sorted({name.rpartition("/")[0] for name in whole if "steps/" in name})
    if draw.random() < 0.04:
        to, of = draw.choice(steps), draw.choice(steps)
        taken = draw.choice([other, whole])
        of = to if taken is other and draw.random() < 0.8 else of
        tree.write({name: taken.get(name.replace(to, of)) for name in whole if name.startswith(f"{to}/")})
        return to, f"replaced by {of} of {'another run' if taken is other else 'another step'}"
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


@pytest.fixture(scope="module")
def judged(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Judged, Tree]:
    """A run that stopped after ten steps of twelve, and another of the same shape, whose files fit in name and size."""
    base = tmp_path_factory.mktemp("gate")
    plain = changed(config, evaluate_every=3, checkpoint_every=2, keep_checkpoints=3).plain()
    for name, seed in (("run", 1), ("other", 2)):
        stopped(RunConfig.parse({**plain, "seed": seed}), base / name)
    return Judged(Tree(base / "run"), base), Tree(base / "other")


@trials(9, 20, 17_000)
def test_no_damage_of_a_run_is_silent(
    trials: int, judged: tuple[Judged, Tree], draw: random.Random, tally: Tally
) -> None:
    run, other = judged
    for trial in range(trials):
        name, how = damaged(run.tree, other, draw)
        damage = run.tree.content()
        assert run.judge(name, draw) == [], (trial, how, name)
        after = run.tree.content()
        written = {one for one in after.keys() | damage.keys() if after.get(one) != damage.get(one)}
        assert all(one.startswith("report/") for one in written), (trial, how, name)
        run.tree.restore()
    tally("edits and flips of a run's files, none silent", trials)


@pytest.mark.parametrize("place", ["study.json", "measures/gradients/pre-seed-3.json", "report/MANIFEST.json"])
def test_what_was_changed_in_a_study_is_named(place: str, whole_study: Path, tmp_path: Path) -> None:
    out = Path(shutil.copytree(whole_study, tmp_path / "study"))
    raw = (out / place).read_bytes()
    (out / place).unlink()
    if "MANIFEST" not in place:
        middle = len(raw) // 2
        (out / place).write_bytes(raw[:middle] + bytes([raw[middle] ^ 1]) + raw[middle + 1 :])
    told = [one for one in examine_study(out).findings if one.mark != "ok"]
    assert any(Path(place).stem in one.what + one.found for one in told)
    assert all(is_one_line(one.found) and "arms/" not in one.what for one in told)
