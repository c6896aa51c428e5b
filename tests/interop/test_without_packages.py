"""What a machine without the packages of ONNX is told; these tests need none of them."""

from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
import torch
from symbols import symbolic_lengths
from variants import TOKENIZER, made

from vitral.core.errors import UsageError
from vitral.data import ByteTokenizer
from vitral.interop import export_run
from vitral.interop.card import prompted
from vitral.interop.draft import PROMPT
from vitral.interop.flat_cache import cache_names, has_cache, needs_length
from vitral.interop.importing import Imported, write_run
from vitral.interop.targets.onnx import use
from vitral.lab import health
from vitral.runs import load_run


def _found(*missing: str):
    return lambda name: None if name in missing else ModuleSpec(name, None)


@pytest.mark.parametrize("package", ["onnx", "onnxscript"])
def test_a_missing_package_is_named_and_nothing_is_left(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made("no layer")
    origin = {"form": "gpt2", "source": "a test", "files": {}, "config": {}}
    made_run = Imported(model.config, model.state_dict(), TOKENIZER, origin)
    run = load_run(write_run(made_run, tmp_path / "run").path)
    monkeypatch.setattr("vitral.interop.targets.onnx_graphs.find_spec", _found(package))
    with pytest.raises(UsageError, match=f"{package} is not installed"):
        export_run(run, tmp_path / "out", to="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_doctor_names_missing_packages_and_an_older_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "find_spec", _found("onnxruntime"))
    assert health._onnx_finding().mark == "unknown"
    assert "onnxruntime" in health._onnx_finding().found
    monkeypatch.setattr(health, "find_spec", _found())
    monkeypatch.setattr(torch, "__version__", "2.6.0+cpu")
    assert health._onnx_finding().mark == "unknown"
    assert "2.6.0" in health._onnx_finding().found
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    assert health._onnx_finding().mark == "ok"


def test_the_card_tells_what_each_kind_of_model_keeps() -> None:
    window, lstm, alone = made("window"), made("lstm"), made("lstm alone")
    assert cache_names(window, before=True)[:2] == ["past_key_values.0.key", "past_key_values.0.value"]
    assert cache_names(lstm, before=False)[:2] == ["present_state.0.hidden", "present_state.0.cell"]
    assert (needs_length(window), needs_length(lstm), needs_length(alone)) == (False, True, False)
    assert "past_length" in "".join(use(lstm))
    assert 'encode("a"' in "".join(prompted(use(lstm), TOKENIZER))
    assert prompted(use(lstm), ByteTokenizer()) == use(lstm)
    for variant in ("bidirectional", "neither", "no layer"):
        assert not has_cache(made(variant))
        assert "model_with_past" not in "".join(use(made(variant)))


@pytest.mark.parametrize("to", ["gpt2", "torch-nn", "graph"])
def test_the_prompt_of_the_card_is_one_that_the_tokenizer_accepts(to: str, tmp_path: Path) -> None:
    model = made("pre")
    origin = {"form": "gpt2", "source": "a test", "files": {}, "config": {}}
    run = load_run(write_run(Imported(model.config, model.state_dict(), TOKENIZER, origin), tmp_path / "run").path)
    with symbolic_lengths():
        export_run(run, tmp_path / "out", to=to, proof=False)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert '("a"' in card
    assert PROMPT not in card
