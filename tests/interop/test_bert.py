"""BERT: the library's own model is a run with the same logits and fillings, and an export of it fills the same."""

import importlib
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from foreign import NAMED, WORDS, difference, needs_transformers, of_form, wordpiece, write_source

import vitral
from vitral.interop.card import PURPOSES
from vitral.model import Transformer

pytestmark = pytest.mark.usefixtures("quiet")


def filled(pipeline: Any, text: str) -> list[dict[int, float]]:
    """The probability of each token, of each gap."""
    found = pipeline(text, top_k=len(WORDS))
    return [{one["token"]: one["score"] for one in gap} for gap in (found if isinstance(found[0], list) else [found])]


@pytest.mark.merge
@needs_transformers
def test_it_has_the_librarys_logits_with_padding_and_fills_gaps_as_its_pipeline_does(tmp_path: Path) -> None:
    library, source = importlib.import_module("transformers"), tmp_path / "source"
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    theirs = library.BertForPreTraining(
        library.BertConfig(vocab_size=len(WORDS), max_position_embeddings=20, **sizes)
    ).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    theirs.save_pretrained(source)  # with a pooler and a head for the next sentence
    library.PreTrainedTokenizerFast(tokenizer_object=wordpiece(), **NAMED).save_pretrained(source)
    run = vitral.import_(source, tmp_path / "run")
    tokens = torch.tensor([[2, 5, 6, 7, 4, 5, 6, 3], [2, 5, 4, 3, 0, 0, 0, 0]])
    real = torch.tensor([[1] * 8, [1] * 4 + [0] * 4]).bool()
    with torch.inference_mode():
        expected = theirs(tokens, attention_mask=real.long()).prediction_logits[real]
        found = run.model(tokens.where(real, -1))[real]
    assert difference(found, expected) < 1e-5
    vitral.export(run, tmp_path / "out", to="bert")
    assert PURPOSES[False] in (tmp_path / "out" / "README.md").read_text("utf-8")
    for text in ("To be or [MASK] to be", "to [MASK] or not to [MASK]."):
        gaps = filled(library.pipeline("fill-mask", str(source)), text)
        again = filled(library.pipeline("fill-mask", str(tmp_path / "out")), text)
        ours = vitral.fill(run, text, top=len(WORDS)).found.gaps
        for gap, other, mine in zip(gaps, again, ours, strict=True):
            assert other == pytest.approx(gap, abs=1e-6)
            gap[WORDS.index("[MASK]")] = 0.0  # which fills no gap here
            assert {one.tokens[0]: one.probability for one in mine} == pytest.approx(gap, abs=1e-6)


def test_norms_of_older_files_segments_and_weights_of_no_logit(tmp_path: Path) -> None:
    model, source = of_form("bert"), tmp_path / "source"
    held = write_source(source, "bert", model)
    norms = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    older = {}
    for name, tensor in held.items():
        end = next((end for end in norms if name.endswith(end)), "")
        older[name.removesuffix(end) + norms.get(end, "")] = tensor
    segment = torch.arange(32.0).reshape(2, 16)
    older["bert.embeddings.token_type_embeddings.weight"] = segment
    older["bert.pooler.dense.weight"] = torch.ones(16, 16)
    older["cls.predictions.decoder.bias"] = held["cls.predictions.bias"].clone()
    safetensors.torch.save_file(older, source / "model.safetensors")
    found: Transformer = vitral.import_(source, tmp_path / "run").model
    expected = model.state_dict()
    expected["positions.weight"] = expected["positions.weight"] + segment[0]
    assert all(tensor.equal(expected[name]) for name, tensor in found.state_dict().items())
