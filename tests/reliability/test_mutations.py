"""Take a safeguard away, and some test turns red: the tests are tested."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vitral
from tests.reliability.conftest import Tally

SOURCE = Path(vitral.__file__ or "").parent
ROOT = Path(__file__).resolve().parents[2]

LOOP, RUN, RESUMPTION = "training/loop.py", "training/run.py", "training/resumption.py"
VERIFICATION = "runs/verification.py"
FILES, FOLDER, LOG = "core/files.py", "runs/folder.py", "runs/metrics_log.py"
CHECKPOINT, CHECKPOINT_FILES = "runs/checkpoint.py", "runs/checkpoint_files.py"
CRASHES, DAMAGE, NUMBERS, KILLS, DISKS = (
    f"tests/reliability/test_{name}.py" for name in ("crashes", "damage", "numbers", "kills", "disks")
)
OF_FILES, STREAMS = "tests/core/test_files.py", "tests/core/test_streams.py"
CHECKPOINTS, LOADING, FOLDERS = (f"tests/runs/test_{name}.py" for name in ("checkpoints", "loading_runs", "run_folder"))
POWER = f"{CRASHES}::test_the_power_goes_at_every_call"

MUTATIONS: dict[str, tuple[str, str, str, str]] = {
    "the flush of a file": (
        FILES,
        "_write(path, content, os.O_TRUNC, os.fsync)",
        "_write(path, content, os.O_TRUNC)",
        POWER,
    ),
    "the flush of a folder": (FILES, "        os.fsync(descriptor)\n", "        pass\n", POWER),
    "the flush of the log": (LOG, '        if found["bytes"]:\n', "        if False:\n", POWER),
    "no link to a file": (FILES, "if not links and path.is_symlink():", "if False:", OF_FILES),
    "no link to a folder": (FILES, "if folder.is_symlink() or", "if", OF_FILES),
    "only regular files": (FILES, "if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):", "if False:", OF_FILES),
    "the cap of what is read": (FILES, "    if max(size, len(content)) > most:\n", "    if False:\n", OF_FILES),
    "the manifest's check": (
        CHECKPOINT_FILES,
        'or (name in content and sha256(content[name]) != said["sha256"])',
        "",
        f"{DAMAGE}::test_flipped_bits",
    ),
    "the manifest's own hash": (
        "core/seals.py",
        "if seal is None or raw != sealed_json(content):",
        "if False:",
        f"{DAMAGE}::test_flipped_bits",
    ),
    "the exact files of a checkpoint": (
        CHECKPOINT_FILES,
        'in sorted({*names(folder)} ^ {MANIFEST, *manifest["files"]}):',
        "in ():",
        f"{DAMAGE}::test_truncations_lost_pages_and_strangers",
    ),
    "the step in a checkpoint's name": (
        CHECKPOINT,
        'if step_name(state["step"]) != folder.name:',
        "if False:",
        f"{DAMAGE}::test_truncations_lost_pages_and_strangers",
    ),
    "the kind of a seal": (
        CHECKPOINT,
        'if not (type(seal["bytes"]) is type(seal["lines"]) is int and isinstance(seal["sha256"], str)):',
        "if False:",
        "tests/runs/test_checkpoints.py -k seal",
    ),
    "the return of a checkpoint that was being replaced": (
        CHECKPOINT,
        "insist(os.rename, steps / name, target)",
        "pass",
        CHECKPOINTS,
    ),
    "old checkpoints wait for the new one": (
        CHECKPOINT,
        "        contents(folders[-1])\n",
        "",
        CHECKPOINTS,
    ),
    "the look at the free space": (CHECKPOINT, "if free < needed:", "if False:", f"{DISKS} -k too_little_room"),
    "the sealed best, not the pointer": (
        FOLDER,
        '(best := pointed.get("best"))',
        '(best := (self.path / "best").read_text().strip())',
        f"{DAMAGE} -k pointer",
    ),
    "the hash of the tokenizer": (FOLDER, "if hashed is not None and sha256(raw) != hashed:", "if False:", LOADING),
    "a damaged checkpoint makes room": (
        FOLDER,
        "checkpoints.set_aside(folder)",
        "pass",
        FOLDERS,
    ),
    "the log is cut at a resume": (FOLDER, 'return self.log.cut(checkpoint.history["metrics"])', "return 0", FOLDERS),
    "the seal of the log": (
        LOG,
        'if found["sha256"] != seal["sha256"]:',
        "if False:",
        FOLDERS,
    ),
    "the sealed configuration": (VERIFICATION, "    if changed:\n", "    if False:\n", LOADING),
    "the sealed hash of the text's record": (
        VERIFICATION,
        "for name, hashed in hashes.items():",
        "for name, hashed in ():",
        LOADING,
    ),
    "run.json is of this run": (VERIFICATION, 'if born.get("run") != run.sealed.get("run"):', "if False:", LOADING),
    "a checkpoint is of this run": (
        "runs/loading.py",
        'if checkpoint.state.get("run", sealed.identity.run) != sealed.identity.run:',
        "if False:",
        LOADING,
    ),
    "no fine-tuned run begins at zero": (
        VERIFICATION,
        'if run.newest is None and born.get("parent") is not None:',
        "if False:",
        f"{KILLS} -k without_its_first",
    ),
    "initial weights before the name": (
        RUN,
        "first = None if parent is None else save_initial_weights",
        "first = None",
        f"{KILLS} -k has_its_weights_before",
    ),
    "a run goes on with the source of its own parts": (
        "training/parts.py",
        "if changed and not accept:",
        "if False:",
        "tests/training/test_own_parts.py -k another_source",
    ),
    "a new run records the source that it has": (
        RUN,
        '        require_same_parts(config, "config")\n',
        "",
        "tests/training/test_own_parts.py -k another_source",
    ),
    "another source is said": (
        "core/parts.py",
        "if part.sha256 != own.sha256:",
        "if False:",
        "tests/training/test_own_parts.py -k another_source",
    ),
    "the step of an own optimizer after a resume": (
        "training/own_optimizer.py",
        "if not all(torch.equal(one, other) for one, other in zip(straight, resumed, strict=True)):",
        "if False:",
        "tests/training/test_own_parts.py -k wrong_optimizer",
    ),
    "an own part that mixes positions": (
        "model/own_parts.py",
        "if part.shape != same.shape or not torch.allclose(",
        "if part.shape != same.shape and not torch.allclose(",
        "tests/model/test_own_parts.py -k wrong_factory",
    ),
    "the recorded threads": (
        RESUMPTION,
        "with using_threads(identity.current_threads):",
        "if True:",
        f"{KILLS} -k recorded_threads",
    ),
    "the lock of a run": (RUN, "        with only_writer(out):\n", "        if True:\n", f"{KILLS} -k one_writer"),
    "a decision before its first step": (
        LOOP,
        "            save(trainer, replace=trainer.saved == trainer.state.step)\n",
        "            pass\n",
        f"{KILLS} -k a_decision_is_on_the_disk",
    ),
    "a callback's failure saves": (
        "training/trainer.py",
        "            self.failure, self.request.asked = error, True\n            return\n",
        "            raise\n",
        f"{KILLS} -k callback",
    ),
    "the stop at a number that is not finite": (
        LOOP,
        "if culprit is not None or not math.isfinite(loss_value) or not math.isfinite(norm_value):",
        "if False:",
        f"{NUMBERS} -k training_stops",
    ),
    "the look at weights and optimizer": (
        LOOP,
        "    culprit = _first_not_finite(trainer, state_value)\n",
        "    culprit = None\n",
        f"{NUMBERS} -k training_stops",
    ),
    "what is due at a step is done again": (
        LOOP,
        "            if state.pending:\n                after_step(trainer, clock)\n",
        "",
        f"{KILLS} -k asked_to_stop",
    ),
    "the key of the streams": (
        "core/streams.py",
        "for part in (seed, purpose, *index))",
        "for part in (seed, purpose))",
        STREAMS,
    ),
    "the border between two parts": (
        "data/encoded.py",
        "prepend=-1) > 0 for each",
        "prepend=-1) > 99 for each",
        f"{NUMBERS} -k no_window",
    ),
    "the run and step of a measure": (
        "studies/measures.py",
        'if found.get("of") != of:',
        "if False:",
        "tests/studies/test_study_seals.py",
    ),
    "the hash of a measure": (
        "studies/measures.py",
        "    found = unsealed_json(raw)\n    if",
        "    found = json_object(raw)\n    if",
        "tests/studies/test_study_seals.py",
    ),
    "the hash of a study's record": (
        "studies/record.py",
        "found = unsealed_json(raw)",
        "found.pop(SEAL)",
        "tests/studies/test_study_seals.py",
    ),
    "the configuration of a study's run": (
        "studies/results.py",
        'if one not in (None, "auto") and key not in ("corpus.source", *free):',
        "if False:",
        "tests/studies/test_study_seals.py",
    ),
    "the last step of a run that is measured": (
        "studies/results.py",
        "if loaded.step != steps:",
        "if False:",
        "tests/studies/test_study_seals.py",
    ),
    "only a finished run of a study is published": (
        "studies/jobs.py",
        "    if not has_ended(work):\n        raise _stopped(job)\n",
        "",
        "tests/studies/test_jobs.py",
    ),
    "a run that another process trains is left to it": (
        "studies/jobs.py",
        "        if is_run(left) and not is_held(left):\n",
        "        if is_run(left):\n",
        "tests/studies/test_jobs.py",
    ),
}


def test_each_is_in_the_source_once() -> None:
    for name, (file, old, _, _) in MUTATIONS.items():
        assert (SOURCE / file).read_text(encoding="utf-8").count(old) == 1, name


@pytest.mark.full
@pytest.mark.parametrize("name", MUTATIONS)
def test_some_test_turns_red(name: str, tmp_path: Path, tally: Tally) -> None:
    file, old, new, tests = MUTATIONS[name]
    copied = _copied(tmp_path)
    mutated = copied / file
    mutated.write_text(mutated.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    code, said = _tested(tmp_path, tests)
    assert code == 1, said[-2000:]
    assert "failed" in said
    assert "SyntaxError" not in said
    tally("safeguards taken away, each noticed", 1)


@pytest.mark.full
@pytest.mark.parametrize("tests", sorted({tests for _, _, _, tests in MUTATIONS.values()}))
def test_without_a_mutation_all_is_green(tests: str, tmp_path: Path, tally: Tally) -> None:
    _copied(tmp_path)
    code, said = _tested(tmp_path, tests)
    assert code == 0, said[-2000:]
    tally("control runs of an unmutated copy, each green", 1)


def _copied(folder: Path) -> Path:
    return Path(shutil.copytree(SOURCE, folder / "vitral", ignore=shutil.ignore_patterns("__pycache__")))


def _tested(folder: Path, tests: str) -> tuple[int, str]:
    """The exit code of tests but those of a night, run with the package in `folder`, and what they print."""
    environment = {key: value for key, value in os.environ.items() if key != "VITRAL_FULL"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    where = [sys.executable, "-c", "import vitral; print(vitral.__file__)"]
    used = subprocess.run(where, env=environment, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert used.startswith(str(folder)), used
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", "-m", "not full", *tests.split()]
    ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    return ran.returncode, ran.stdout
