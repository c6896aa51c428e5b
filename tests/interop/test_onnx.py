"""onnxruntime computes what is exported: logits, token by token too, and every named activation."""

import importlib
import json
import logging
import os
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from variants import TOKENIZER, VARIANTS, made

from vitral import export
from vitral.core.errors import UsageError
from vitral.core.parts import register
from vitral.data import ByteTokenizer, Tokenizer
from vitral.interop import Proof, export_run
from vitral.interop.importing import Imported, write_run
from vitral.model import Positions, Transformer
from vitral.runs import load_run

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
MISSING = [name for name in PACKAGES if find_spec(name) is None]
FULL = "VITRAL_FULL" in os.environ
pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")

QUICK: dict[str, dict[str, Any]] = {
    "rotary, grouped, windows by block": {
        **{"d_head": 6, "num_heads": 2, "num_kv_heads": 1, "parallel": True, "norm_type": "rmsnorm", "bias": False},
        "positions": {
            **{"name": "rotary", "base": 50.0, "fraction": 0.7, "pairing": "interleaved"},
            "scaling": {"name": "llama3", "factor": 3.0, "original_context_length": 17},
        },
        **{"attention": {"mask": ["causal", {"name": "window", "size": 3}]}, "feed_forward": "swiglu"},
    },
    "relative, adaptive, prefix, post": {
        **{"positions": "relative", "norm": "post", "num_layers": 1, "tie_head": True},
        "attention": {"mask": {"name": "prefix", "length": 3}, "scale": "adaptive"},
    },
    "lstm": {"attention": "none", "recurrence": "lstm", "num_layers": 1},
}
POSITIONS: dict[str, Any] = {
    **{name: name for name in ("learned", "sinusoidal", "alibi", "relative", "none")},
    "rotary": {"name": "rotary"},
    "rotary of a part": {"name": "rotary", "fraction": 0.6, "scaling": {"name": "linear", "factor": 3.0}},
}
MASKS: dict[str, Any] = {
    "causal": "causal",
    "window": {"name": "window", "size": 3},
    "prefix": {"name": "prefix", "length": 4},
    "by block": [{"name": "window", "size": 2}, "causal"],
}
REST: list[dict[str, Any]] = [
    {"scale": "adaptive", "parallel": True, "feed_forward": "relu", "norm_type": "rmsnorm"},
    {"scale": "learned-per-head", "norm": "post", "feed_forward": "gelu_tanh", "num_kv_heads": 1},
    {"scale": 0.3, "norm": "none", "feed_forward": "squared_relu", "bias": False},
    {"scale": "none", "norm": "pre", "feed_forward": "swiglu", "tie_head": True, "num_kv_heads": 3},
    {"scale": "linear", "residual": False, "feed_forward": "none"},
]


def product() -> dict[str, dict[str, Any]]:
    """Every kind of positions under every mask; the other parts take turns."""
    every: dict[str, dict[str, Any]] = {}
    pairs = [(place, mask) for place in POSITIONS for mask in MASKS]
    for (place, mask), rest in zip(pairs, cycle(REST), strict=False):
        others = {key: value for key, value in rest.items() if key != "scale"}
        attention = {"mask": MASKS[mask], "scale": rest["scale"]}
        every[f"{place}, {mask}"] = {"d_model": 12, "positions": POSITIONS[place], "attention": attention, **others}
    return every


def run_of(model: Transformer, folder: Path, tokenizer: Tokenizer = TOKENIZER) -> Path:
    origin = {"form": "gpt2", "source": "a test", "files": {"of": str(model.config)}, "config": {}}
    return write_run(Imported(model.config, model.state_dict(), tokenizer, origin), folder).path


def proved(model: Transformer, folder: Path) -> Proof:
    proof = export_run(load_run(run_of(model, folder / "run")), folder / "out", to="onnx").proof
    assert proof is not None
    return proof


def require_equal(model: Transformer, proof: Proof) -> None:
    """What export_run itself requires, asked once more without it."""
    assert proof.relative_difference < 1e-5
    assert list(proof.activation_differences) == model.activation_names
    assert max(proof.activation_differences.values()) < 1e-5
    assert (proof.cached_difference or 0) < 1e-5


@pytest.mark.parametrize("name", QUICK)
def test_a_model_of_many_parts_is_the_same_in_onnxruntime(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    model = made(QUICK[name])
    disabled = logging.root.manager.disable
    proof = proved(model, tmp_path)
    require_equal(model, proof)
    assert proof.cached_difference is not None
    assert capfd.readouterr() == ("", "")  # the exporter writes a log
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]
    assert logging.root.manager.disable == disabled
    assert json.loads((tmp_path / "out" / "PROOF.json").read_text())["activation_differences"]


@pytest.mark.skipif(not FULL, reason="every variant is part of make test-full")
# A bidirectional model cannot be a run of its own, only a masked one.
@pytest.mark.parametrize("name", [name for name in VARIANTS if name != "bidirectional"])
def test_every_variant_is_the_same_in_onnxruntime(name: str, tmp_path: Path) -> None:
    model = made(name)
    require_equal(model, proved(model, tmp_path))


@pytest.mark.skipif(not FULL, reason="the product of parts is part of make test-full")
@pytest.mark.parametrize("name", product())
def test_the_product_of_parts_is_the_same_in_onnxruntime(name: str, tmp_path: Path) -> None:
    model = made(product()[name])
    proof = proved(model, tmp_path)
    require_equal(model, proof)
    assert proof.cached_difference is not None


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Path]:
    """A small model of bytes as an export."""
    folder = tmp_path_factory.mktemp("onnx")
    config = {"context_length": 12, "d_model": 8, "num_heads": 2, "num_layers": 1, "num_kv_heads": 1}
    from variants import enlarged

    from vitral.model import ModelConfig

    model = enlarged(Transformer(ModelConfig.parse(config), 256).eval())
    run = run_of(model, folder / "run", ByteTokenizer())
    export(run, folder / "out", to="onnx")
    return model, folder / "out"


def test_the_lines_of_the_card_write_what_this_model_writes(
    exported: tuple[Transformer, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, folder = exported
    card = (folder / "README.md").read_text(encoding="utf-8")
    code = card.partition("```python\n")[2].partition("```")[0]
    monkeypatch.chdir(folder)
    exec(compile(code, "card", "exec"), {})
    ids = list(b"A prompt")
    with torch.inference_mode():
        while len(ids) < 12:
            ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert capsys.readouterr().out == bytes(ids).decode("utf-8", "replace") + "\n"


def test_graphs_take_rows_and_lengths_by_their_names(exported: tuple[Transformer, Path]) -> None:
    model, folder = exported
    runtime = importlib.import_module("onnxruntime")
    session = runtime.InferenceSession(folder / "model_with_past.onnx")
    shapes = {one.name: one.shape for one in [*session.get_inputs(), *session.get_outputs()]}
    assert shapes == {
        "input_ids": ["batch", "time"],
        "past_key_values.0.key": ["batch", 1, "past", 4],
        "past_key_values.0.value": ["batch", 1, "past", 4],
        "logits": ["batch", "time", 256],
        "present.0.key": ["batch", 1, shapes["present.0.key"][2], 4],
        "present.0.value": ["batch", 1, shapes["present.0.key"][2], 4],
    }
    assert set(shapes["present.0.key"][2].split(" + ")) == {"past", "time"}
    tokens = torch.arange(36).reshape(3, 12) * 5
    with torch.inference_mode():
        expected = model(tokens).numpy()
    past = {name: np.zeros((3, 1, 0, 4), np.float32) for name in list(shapes)[1:3]}
    found = []
    for start, end in ((0, 5), (5, 6), (6, 12)):
        logits, *now = session.run(None, {"input_ids": tokens[:, start:end].numpy(), **past})
        past = dict(zip(past, now, strict=True))
        found.append(logits)
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, atol=1e-5 * np.abs(expected).max())
    for rows, time in ((1, 1), (2, 12)):
        whole = runtime.InferenceSession(folder / "model.onnx").run(None, {"input_ids": tokens[:rows, :time].numpy()})
        np.testing.assert_allclose(whole[0], expected[:rows, :time], atol=1e-5 * np.abs(expected).max())
    with pytest.raises(Exception, match=r"(?i)indices|out of"):  # no position has been given a thirteenth row
        runtime.InferenceSession(folder / "model.onnx").run(None, {"input_ids": np.zeros((1, 13), np.int64)})


def test_the_graphs_have_one_file_of_weights_and_no_paths_of_this_machine(exported: tuple[Transformer, Path]) -> None:
    model, folder = exported
    onnx = importlib.import_module("onnx")
    size = 4 * sum(parameter.numel() for parameter in model.parameters())
    assert (folder / "model.onnx.data").stat().st_size < 1.2 * size
    for name in ("model.onnx", "model_with_past.onnx", "model_activations.onnx"):
        onnx.checker.check_model(folder / name, full_check=True)
        graph = onnx.load(folder / name, load_external_data=False)
        assert {one.key for one in graph.metadata_props} == {"run", "step", "context_length"}
        assert b"site-packages" not in (folder / name).read_bytes()
        assert b"vitral/" not in (folder / name).read_bytes()


class _Deciding(Positions):
    """Positions that look at the numbers, which a graph cannot."""

    def rotate(self, x: torch.Tensor, start: int) -> torch.Tensor:
        return x if float(x.sum()) > 0 else -x


def test_what_has_no_graph_is_refused_with_the_reason_and_nothing_is_left(tmp_path: Path) -> None:
    register("positions", "deciding", lambda config: _Deciding())
    run = load_run(run_of(made({"positions": "deciding"}), tmp_path / "run"))
    with pytest.raises(UsageError, match="onnx: PyTorch cannot"):
        export_run(run, tmp_path / "out", to="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_graph_that_computes_something_else_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = importlib.import_module("vitral.interop.targets.onnx_graphs")
    kept = graphs.graph_files
    run = load_run(run_of(made({"num_layers": 0}), tmp_path / "run"))

    def spoiled(model: Transformer, told: dict[str, str]) -> dict[str, bytes]:
        files = kept(model, told)
        data = np.frombuffer(files["model.onnx.data"], np.float32) * np.float32(1.001)
        return files | {"model.onnx.data": data.tobytes()}

    monkeypatch.setattr("vitral.interop.targets.onnx.graph_files", spoiled)
    with pytest.raises(UsageError, match="proof: the logits differ"):
        export_run(run, tmp_path / "out", to="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
