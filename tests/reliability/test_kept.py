"""A checkpoint of every format that was ever released is kept for ever, and can be loaded."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from vitral.doctor.folders import examine_run
from vitral.runs import load_run
from vitral.runs.environment import describe_environment
from vitral.training import continue_run, resume

KEPT = Path(__file__).parent / "kept"


FORMATS = [
    pytest.param(path.name, marks=[pytest.mark.merge] if "bfloat16" in path.name else [])
    for path in sorted(KEPT.iterdir())
    if path.is_dir()
]


@pytest.mark.parametrize("name", FORMATS)
def test_it_computes_the_same_is_healthy_and_goes_on(name: str, tmp_path: Path) -> None:
    told = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
    run = load_run(KEPT / name, "last")
    with torch.inference_mode():
        logits = run.model(torch.tensor([told["tokens"]]))[0, -1]
    torch.testing.assert_close(logits, torch.tensor(told["logits"]), rtol=1e-4, atol=1e-5)
    shutil.copytree(KEPT / name, tmp_path / "run")
    found = {finding.what: finding.mark for finding in examine_run(tmp_path / "run").findings}
    assert "wrong" not in found.values()
    recorded, here = json.loads((KEPT / name / "environment.json").read_text(encoding="utf-8")), describe_environment()
    same = all(
        recorded.get(key) == here[key] for key in ("numerics", "packages", "processor", "cpu_capability", "dispatch")
    )
    assert found["recomputed step"] == "ok" or not same  # otherwise NUMERICS must grow
    newest = sorted((tmp_path / "run" / "steps").iterdir())[-1]
    shutil.rmtree(newest)
    assert resume(tmp_path / "run").metrics("end")[-1]["finished"]
    assert newest.is_dir()
    assert continue_run(KEPT / name, tmp_path / "on", steps=2).metrics("end")[-1]["step"] == 6
