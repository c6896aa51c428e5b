"""onnxruntime computes what is exported: logits, token by token too, and every named activation."""

import importlib
import json
import logging
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign import run_of
from symbols import symbolic_lengths
from variants import VARIANTS, enlarged, made

from vitral import export, train
from vitral.core.errors import UsageError
from vitral.core.parts import register
from vitral.data import byte_tokenizer
from vitral.decoding import GREEDY, GenerateOptions, generate
from vitral.interop import export_run
from vitral.interop.card import ANSWERS
from vitral.interop.model_graphs import has_cache
from vitral.model import ModelConfig, Positions, Transformer

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
MISSING = [name for name in PACKAGES if find_spec(name) is None]
pytestmark = [pytest.mark.merge, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]


@pytest.fixture(autouse=True, scope="module")
def _any_lengths() -> Iterator[None]:
    with symbolic_lengths():
        yield


MANY = "rotary, grouped, window"
MODELS: dict[str, dict[str, Any]] = VARIANTS | {
    MANY: {
        **{"d_head": 6, "num_heads": 2, "num_kv_heads": 1, "parallel": True, "norm_type": "rmsnorm", "bias": False},
        "positions": {
            **{"name": "rotary", "base": 50.0, "fraction": 0.7, "pairing": "interleaved"},
            "scaling": {"name": "llama3", "factor": 3.0, "original_context_length": 17},
        },
        **{"attention": {"mask": {"name": "window", "size": 3}}, "feed_forward": "swiglu"},
    },
}


@pytest.mark.parametrize(
    "name",
    [
        MANY,
        # A bidirectional model cannot be a run of its own, only a masked one.
        *(
            pytest.param(name, marks=pytest.mark.full)
            for name in VARIANTS
            if name != "bidirectional" and "recurrence" not in VARIANTS[name]
        ),
    ],
)
def test_a_model_is_the_same_in_onnxruntime(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """What export_run itself requires, asked once more without it."""
    model = made(MODELS[name] | ({"num_layers": 1} if name == MANY else {}))
    disabled = logging.root.manager.disable
    proof = export_run(run_of(model, tmp_path / "run"), tmp_path / "out", to="onnx").proof
    assert proof is not None
    assert proof.relative_difference < 1e-5
    assert list(proof.activation_differences) == model.activation_names
    assert (proof.cached_difference or 0) < 1e-5
    assert proof.cached_difference is not None or not has_cache(model)
    assert capfd.readouterr() == ("", "")  # the exporter writes a log
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]
    assert logging.root.manager.disable == disabled


def test_an_encoder_decoder_reads_a_source_with_padding_there_and_nothing_else_has_one(tmp_path: Path) -> None:
    sizes = {"d_model": 12, "num_heads": 2, "num_layers": 1, "d_ff": 7, "positions": "rotary"}
    steps = {"steps": 1, "evaluate_every": 1}
    model = {"shape": "encoder-decoder", **sizes}
    run = train("task:reverse", tmp_path / "run", model=model, training=steps, progress=False)
    out = tmp_path / "out"
    proof = export(run, out, to="onnx").proof
    assert proof is not None
    assert ANSWERS in (out / "README.md").read_text()
    generation = json.loads((out / "generation_config.json").read_text())
    assert generation["eos_token_id"] == run.tokenizer.declared["<|end|>"]
    assert list(proof.activation_differences) == run.model.activation_names
    session = importlib.import_module("onnxruntime").InferenceSession(out / "model.onnx")
    tokens, source = torch.arange(10).reshape(2, 5), torch.tensor([[1, 2, 3, 4], [5, 6, -1, -1]])
    with torch.inference_mode():
        expected = run.model(tokens, source=source).numpy()
    (found,) = session.run(None, {"input_ids": tokens.numpy(), "source": source.numpy()})
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
    assert answered(out, run.model, source, run.tokenizer.specials) == [
        generate(run.model, run.tokenizer, [(10,)], max_tokens=13, sampling=GREEDY, options=options)[0].tokens
        for options in (GenerateOptions(sources=(run.tokenizer.decode(row[row >= 0]),)) for row in source)
    ]
    for to in ("hf", "gguf", "torch-nn", "graph"):
        with pytest.raises(UsageError, match="encoder-decoder"):
            export(run, tmp_path / to, to=to)


def answered(folder: Path, model: Transformer, source: torch.Tensor, never: Sequence[int]) -> list[tuple[int, ...]]:
    """What the graphs write after token 10 of each source, always the most probable one, by the cache."""
    open_ = importlib.import_module("onnxruntime").InferenceSession
    encoder, step = open_(folder / "encoder.onnx"), open_(folder / "model_with_past.onnx")
    (states,) = encoder.run(None, {"source": source.numpy()})
    kept = [one.name for one in step.get_inputs() if one.name.startswith("past")]
    past = dict.fromkeys(kept, np.zeros((len(source), model.config.kv_heads, 0, model.config.d_head), np.float32))
    ids, found = np.full((len(source), 1), 10), []
    for _ in range(13):
        read = {"input_ids": ids, "source": source.numpy(), "encoder.final_norm": states}
        logits, *now = step.run(None, {**read, **past})
        logits[..., list(never)] = -np.inf
        past, ids = dict(zip(kept, now, strict=True)), logits[:, -1:].argmax(-1)
        found.append(ids)
    return list(map(tuple, np.concatenate(found, axis=1).tolist()))


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Transformer, Path]:
    """A small model of bytes as an export."""
    folder = tmp_path_factory.mktemp("onnx")
    config = {"context_length": 12, "d_model": 8, "num_heads": 2, "num_layers": 1, "num_kv_heads": 1}
    model = enlarged(Transformer(ModelConfig.parse(config), 256).eval())
    run = run_of(model, folder / "run", byte_tokenizer())
    export(run.folder.path, folder / "out", to="onnx")
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
    session = importlib.import_module("onnxruntime").InferenceSession(folder / "model_with_past.onnx")
    kept = [f"{which}.0.{kind}" for which in ("past_key_values", "present") for kind in ("key", "value")]
    assert [one.name for one in session.get_inputs()] == ["input_ids", *kept[:2]]
    assert [one.name for one in session.get_outputs()] == ["logits", *kept[2:]]
    tokens = torch.arange(36).reshape(3, 12) * 5
    with torch.inference_mode():
        expected = model(tokens).numpy()
    past = dict.fromkeys(kept[:2], np.zeros((3, 1, 0, 4), np.float32))
    found = []
    for start, end in ((0, 5), (5, 6), (6, 12)):
        logits, *now = session.run(None, {"input_ids": tokens[:, start:end].numpy(), **past})
        past = dict(zip(past, now, strict=True))
        found.append(logits)
    np.testing.assert_allclose(np.concatenate(found, axis=1), expected, atol=1e-5 * np.abs(expected).max())


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
    run = run_of(made({"positions": "deciding"}), tmp_path / "run")
    with pytest.raises(UsageError, match="onnx: PyTorch cannot"):
        export_run(run, tmp_path / "out", to="onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
