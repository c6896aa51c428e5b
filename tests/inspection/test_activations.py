"""Activations of batches, gradients, and hooks: each text's are those that it has alone."""

from typing import Any

import pytest
import torch
from torch import Tensor
from variants import TEXT, TOKENIZER, made

from vitral.core.errors import UsageError
from vitral.core.taps import Editor
from vitral.decoding import GenerateOptions, Sampling, generate
from vitral.inspection.activations import record
from vitral.model import next_token_loss
from vitral.model.hooked import HookedTransformer

PAIRS = {"shape": "encoder-decoder", "source_length": 7, "encoder_layers": 1, "num_heads": 3, "d_head": 5, "d_ff": 11}
SOURCES = [torch.tensor(ids) for ids in ([1, 5, 2], [4], [3, 1, 5], [2, 2, 8, 7, 6])]
ROWS = [torch.from_numpy(TOKENIZER.encode(text)) for text in (TEXT, TEXT[:3], TEXT[::-1], TEXT[1:4])]


@pytest.mark.parametrize("variant", ["grouped", "bidirectional", "lstm", "post", PAIRS], ids=str)
def test_a_batch_has_what_each_text_has_alone_and_nan_behind_it(variant: str | dict[str, Any]) -> None:
    model = made(variant).double()
    sources = SOURCES if variant is PAIRS else []
    together = record(model, ROWS, sources=sources)
    assert list(together) == model.activation_names
    for at, row in enumerate(ROWS):
        assert together.tokens[at].tolist() == row.tolist() + [-1] * (8 - len(row))
        source = sources[at][None] if sources else None
        assert together.source is None or together.source[at].tolist() == (SOURCES[at].tolist() + [-1] * 4)[:5]
        for name, value in model.trace(row[None], source=source).items():
            there = (at, *map(slice, value.shape[1:]))
            torch.testing.assert_close(together[name][there], value[0], rtol=1e-9, atol=1e-9)
            assert int(together[name][at].isnan().sum()) == together[name][at].numel() - value.numel()


@pytest.mark.parametrize("variant", ["rotary", PAIRS], ids=str)
def test_gradients_are_what_a_small_change_of_the_activation_does_to_the_loss(variant: str | dict[str, Any]) -> None:
    model, name = made(variant).double(), "blocks.0.attn.weights"
    sources = SOURCES[::2] if variant is PAIRS else []
    names = [name, "blocks.1.resid_pre", *(["encoder.blocks.0.attn.z", "blocks.0.cross.k"] if sources else [])]
    measured = record(model, [ROWS[0], ROWS[2]], names, sources=sources, gradients=True)
    batch, source = torch.stack([ROWS[0], ROWS[2]]), torch.stack(sources) if sources else None

    def loss(step: float, at: str) -> float:
        moved = Editor({at: lambda value: value + step * measured.gradients[at]})
        with torch.no_grad():
            return float(next_token_loss(model(batch, source=source, tap=moved)[:, :-1], batch[:, 1:], model.mask))

    assert measured.loss == pytest.approx(loss(0.0, name), abs=1e-12)
    for at, gradient in measured.gradients.items():
        slope = (loss(1e-5, at) - loss(-1e-5, at)) / 2e-5
        assert slope == pytest.approx(float(gradient.square().sum()), rel=1e-5)


def test_the_loss_of_a_batch_is_the_mean_over_its_tokens() -> None:
    model = made("pre").double()
    alone = [record(model, [row], [], gradients=True).loss * (len(row) - 1) for row in ROWS]
    assert record(model, ROWS, [], gradients=True).loss == pytest.approx(sum(alone) / sum(len(row) - 1 for row in ROWS))
    for sources in (SOURCES, SOURCES[:3]):  # nothing here reads them; one is missing
        with pytest.raises(UsageError, match="source: "):
            record(model, ROWS, sources=sources)
    with pytest.raises(UsageError, match="no next token"):
        record(model, [ROWS[0][:1]], gradients=True)


def test_names_of_transformer_lens_find_what_was_kept() -> None:
    kept = record(made("pre"), ROWS[:1], "*.attn.hook_pattern")
    assert list(kept) == ["blocks.0.attn.weights", "blocks.1.attn.weights"]
    assert kept["pattern", 1] is kept["blocks.1.attn.hook_pattern"] is kept["blocks.1.attn.weights"]
    for name in (("pattern", 2), "blocks.0.attn.z"):
        with pytest.raises(UsageError, match="no activation is called"):
            kept[name]


def test_hooks_are_the_editors_of_the_model_and_stay_out_of_it() -> None:
    model, seen = made("grouped"), list[str]()

    def second(value: Tensor, name: str) -> Tensor:
        seen.append(name)
        return value + 1

    once = HookedTransformer.of(model, {"*.attn.pattern": lambda value: 0.5 * value, "blocks.0.*weights": second})
    hooked = HookedTransformer.of(once, {"blocks.1.mlp.out": lambda value: None, "logits": torch.neg})
    steps = {"blocks.0.attn.weights": lambda value: 0.5 * value + 1, "blocks.1.attn.weights": lambda value: 0.5 * value}
    with torch.no_grad():
        wanted = -model(ROWS[0][None], tap=Editor(steps))
        torch.testing.assert_close(hooked(ROWS[0][None]), wanted)
        torch.testing.assert_close(record(hooked, ROWS[:1], ["logits"])["logits"], wanted)
    assert seen == ["blocks.0.attn.weights"] * 2
    assert not model.is_hooked
    with pytest.raises(UsageError, match="did you mean"):
        HookedTransformer.of(model, {"blocks.0.attn.wieghts": torch.neg})
    with pytest.raises(UsageError, match="expected a tensor of the shape"):
        HookedTransformer.of(model, {"logits": lambda value: value[..., 1:]})(ROWS[0][None])


def test_a_hooked_model_generates_by_its_whole_window() -> None:
    """A hook that only lets the last position see is the same with and without a cache, and is not run in C."""
    model = made("rotary")

    def last_only(value: Tensor) -> Tensor:
        return value * torch.nn.functional.one_hot(torch.tensor(value.shape[-2] - 1), value.shape[-2])[:, None]

    hooked = HookedTransformer.of(model, {"blocks.0.attn.z": last_only})
    how = {"max_tokens": 20, "sampling": Sampling(temperature=0.7)}
    texts = [
        generate(one, TOKENIZER, ["ab"], **how, options=GenerateOptions(use_cache=cached))[0].text
        for one, cached in ((hooked, True), (hooked, False), (model, True))
    ]
    assert texts[0] == texts[1] != texts[2]
