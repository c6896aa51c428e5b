"""What a machine without the packages of ONNX is told; these tests need none of them."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch
from foreign import run_of
from symbols import symbolic_lengths
from variants import made

from vitral.core.errors import UsageError
from vitral.doctor import machine as health
from vitral.doctor.health import HealthCheck
from vitral.interop import export_run
from vitral.interop.proof import PROMPT


def _found(*missing: str):
    return lambda name: None if name in missing else ModuleSpec(name, None)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_and_nothing_is_left(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(made("no layer"), tmp_path / "run")
    monkeypatch.setattr("vitral.interop.targets.onnx_graphs.find_spec", _found(package))
    with pytest.raises(UsageError, match=f"{package} is not installed"):
        export_run(run, tmp_path / "out", to="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def _onnx() -> HealthCheck:
    return next(check for check in health.examine_machine().findings if check.what == "export to ONNX")


def test_the_doctor_names_missing_packages_and_an_older_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "find_spec", _found("onnxruntime"))
    assert _onnx().mark == "unknown"
    assert "onnxruntime" in _onnx().found
    monkeypatch.setattr(health, "find_spec", _found())
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    assert _onnx().mark == "unknown"
    assert "2.6.0" in _onnx().found
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    assert _onnx().mark == "ok"


@pytest.mark.parametrize("to", ["gpt2", pytest.param("graph", marks=pytest.mark.merge)])
def test_the_prompt_of_the_card_is_one_that_the_tokenizer_accepts(to: str, tmp_path: Path) -> None:
    run = run_of(made("pre"), tmp_path / "run")
    with symbolic_lengths():
        export_run(run, tmp_path / "out", to=to, proof=False)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert '("a"' in card
    assert PROMPT not in card
