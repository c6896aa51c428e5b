"""Take a safeguard away, and some test turns red: the tests are tested."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import vitral
from tests.reliability.conftest import FULL, Tally

SOURCE = Path(vitral.__file__ or "").parent
ROOT = Path(__file__).resolve().parents[2]

MUTATIONS = {
    "the flush of a file": (
        "core/files.py",
        "        file.flush()\n        os.fsync(file.fileno())\n",
        "",
        "tests/reliability/test_crashes.py",
    ),
    "the flush of a folder": (
        "core/files.py",
        "        os.fsync(descriptor)\n",
        "        pass\n",
        "tests/reliability/test_crashes.py",
    ),
    "the manifest's check": (
        "runs/checkpoint.py",
        'if listed.get(name) != {"bytes": len(data), "sha256": sha256(data)}:',
        "if name not in listed:",
        "tests/reliability/test_damage.py",
    ),
    "the manifest's own hash": (
        "runs/checkpoint.py",
        "if not intact or not isinstance(files, dict):",
        "if not isinstance(files, dict):",
        "tests/reliability/test_damage.py",
    ),
    "the stop at a number that is not finite": (
        "training/loop.py",
        "if culprit is not None or not math.isfinite(loss_value) or not math.isfinite(norm_value):",
        "if False:",
        "tests/reliability/test_numbers.py",
    ),
    "the look at weights and optimizer": (
        "training/loop.py",
        "    culprit = not_finite_state(trainer)\n",
        "    culprit = None\n",
        "tests/reliability/test_numbers.py",
    ),
    "the key of the streams": (
        "core/streams.py",
        "for part in (seed, purpose, *index))",
        "for part in (seed, purpose))",
        "tests/core/test_streams.py",
    ),
    "the border between two parts": (
        "data/dataset.py",
        "        lengths.append(0)\n",
        "        lengths or lengths.append(0)\n",
        "tests/reliability/test_numbers.py",
    ),
    "the lock of a run": (
        "training/run.py",
        "        with only_writer(out):\n",
        "        if True:\n",
        "tests/reliability/test_kills.py",
    ),
    "what is due at a step is done again": (
        "training/loop.py",
        "        if state.pending:\n            after_step(trainer)\n",
        "",
        "tests/reliability/test_kills.py",
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
        'if one not in (None, "auto") and key != "corpus.source":',
        "if False:",
        "tests/studies/test_study_seals.py",
    ),
    "the last step of a run that is measured": (
        "studies/results.py",
        "if loaded.step != steps:",
        "if False:",
        "tests/studies/test_study_seals.py",
    ),
    "the sweep before a study asks for checkpoints": (
        "studies/execution.py",
        "    _sweep(folder, begun)\n",
        "",
        "tests/studies/test_study_seals.py",
    ),
    "pages that are written beside and renamed": (
        "reports/folder.py",
        "            self.folder.write(name, content)\n",
        "            (self.folder.path / name).write_bytes(content)\n",
        "tests/reliability/test_study_links.py",
    ),
}


def test_each_is_in_the_source_once() -> None:
    for name, (file, old, _, _) in MUTATIONS.items():
        assert (SOURCE / file).read_text(encoding="utf-8").count(old) == 1, name


@pytest.mark.skipif(not FULL, reason="ten test runs: make test-full")
@pytest.mark.parametrize("name", MUTATIONS)
def test_some_test_turns_red(name: str, tmp_path: Path, tally: Tally) -> None:
    file, old, new, tests = MUTATIONS[name]
    shutil.copytree(SOURCE, tmp_path / "vitral")
    mutated = tmp_path / "vitral" / file
    mutated.write_text(mutated.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    environment = {key: value for key, value in os.environ.items() if key != "VITRAL_FULL"}
    environment |= {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", tests]
    ran = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1, ran.stdout[-2000:]
    assert str(tmp_path) in ran.stdout or "failed" in ran.stdout
    tally("safeguards taken away, each noticed", 1)
