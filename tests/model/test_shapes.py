"""Encoders, and encoders before decoders: what each position sees, with every part, and as PyTorch computes them."""

from typing import Any, cast

import pytest
import torch
from configs import configs, encoder_decoders
from hypothesis import given
from hypothesis import strategies as st
from pieces import letters
from small_models import attentive, lively, tokens
from torch import Tensor, nn

from vitral.core.errors import UsageError
from vitral.decoding import GREEDY, generate
from vitral.model import ModelConfig, Transformer, parameter_table
from vitral.model.counts import is_block_matrix
from vitral.model.stack import PADDING
from vitral.training.optimizers import stacked_matrices

TIME, SOURCE = 7, 5
PAIR = {"shape": "encoder-decoder", "source_length": SOURCE, "encoder_layers": 1}


def same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9 * (1 + float(other.abs().max())))


def padded(rows: Tensor, lengths: list[int]) -> Tensor:
    """Rows of which only the first ids are real."""
    return rows.masked_fill(torch.arange(rows.shape[1]) >= torch.tensor(lengths)[:, None], PADDING)


@given(encoder_decoders(), st.integers(1, TIME - 1))
def test_every_encoder_decoder(chosen: dict[str, Any], first: int) -> None:
    """Traced is fused, cached is uncached; the decoder's future and the padding of a source change nothing."""
    lengths = [5, 3, 1]
    model, ids, source = lively(**chosen), tokens(3, TIME), padded(tokens(3, SOURCE), lengths)
    with torch.inference_mode():
        whole, kept, cache = (
            model(ids, source=source),
            model.trace(ids, source=source),
            model.new_cache(3, source=source),
        )
        same(kept["logits"], whole)
        assert list(kept) == model.activation_names

        pieces = ids.split([first, 1, TIME - first - 1], dim=1)
        same(torch.cat([model(piece, cache=cache) for piece in pieces if piece.shape[1]], dim=1), whole)
        cache.select(torch.tensor([1, 2, 1]))
        cache.clear()
        same(model(ids[:, :2], cache=cache), model(ids[:, :2], source=source[[1, 2, 1]]))

        changed = ids.clone()
        changed[:, first:] = (changed[:, first:] + 1) % model.vocab_size
        same(model(changed, source=source)[:, :first], whole[:, :first])
        for row, length in enumerate(lengths):
            same(model(ids[row, None], source=source[row, None, :length])[0], whole[row])
        for weights in (kept[f"blocks.{layer}.cross.weights"] for layer in range(3)):
            assert weights.shape[-2:] == (TIME, SOURCE)
            assert all(weights[row, ..., length:].eq(0).all() for row, length in enumerate(lengths))


@given(configs(), st.sampled_from([None, 3]))
def test_every_encoder(chosen: dict[str, Any], num_labels: int | None) -> None:
    """The padding of a row changes nothing, and every position sees every other."""
    if num_labels:
        chosen = {**chosen, "tie_head": False, "num_labels": num_labels}
    if chosen["attention"] != "none":
        chosen = {**chosen, "attention": {"scale": chosen["attention"]["scale"]}}
    model, rows = lively(**{**chosen, "shape": "encoder"}), padded(tokens(2, TIME), [TIME, 3])
    kept = model.trace(rows)
    with torch.inference_mode():
        same(model(rows), kept["logits"])
        alone = model(rows[1:, :3])
    same(kept["logits"][1:] if num_labels else kept["logits"][1:, :3], alone)
    if num_labels:
        assert alone.shape == (1, num_labels)
        same(kept["pooled"][1], kept["final_norm"][1, :3].mean(dim=0))
    elif chosen["attention"] != "none":
        assert model.mask == lively(attention={"mask": "bidirectional"}).mask


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("norm", ["pre", "post", "none"])
def test_cross_attention_stands_between_attention_and_feed_forward(norm: str, residual: bool) -> None:
    model = lively(**PAIR, norm=norm, residual=residual)
    kept, block = model.trace(tokens(2, TIME), source=tokens(2, SOURCE)), cast(Any, model.blocks[1])
    at = {name.removeprefix("blocks.1."): value for name, value in kept.items() if name.startswith("blocks.1.")}
    with torch.inference_mode():
        read = block.cross_norm(at["resid_mid"])
        given = block.cross.given(kept["encoder.final_norm"], torch.ones(2, SOURCE, dtype=torch.bool))
        same(block.cross(read if norm == "pre" else at["resid_mid"], given=given), at["cross.out"])
        after = at["cross.out"] + (at["resid_mid"] if residual else 0)
        same(at["resid_cross"], block.cross_norm(after) if norm == "post" else after)
        same(block.mlp(at["mlp_norm"] if norm == "pre" else at["resid_cross"]), at["mlp.out"])


def test_one_pass_of_a_decoder_may_see_both_ways() -> None:
    opened = lively(attention={"mask": "bidirectional"})
    model, ids = lively(attention={"mask": ["causal", {"name": "window", "size": 2}]}), tokens(2, TIME)
    with torch.inference_mode():
        same(model.trace(ids, bidirectional=True)["logits"], opened(ids))
    with pytest.raises(UsageError, match="under a bidirectional mask"):
        model(ids, bidirectional=True, cache=model.new_cache(2))


def test_an_encoder_with_a_causal_mask_has_a_cache() -> None:
    model, ids = lively(shape="encoder", attention={"mask": "causal"}), tokens(2, TIME)
    cache = model.new_cache(2)
    with torch.inference_mode():
        same(torch.cat([model(piece, cache=cache) for piece in ids.split([4, 3], dim=1)], dim=1), model(ids))


THEIRS = {
    **{"encoder.blocks": "encoder.layers", "encoder.final_norm": "encoder.norm"},
    **{"decoder.blocks": "decoder.layers", "decoder.final_norm": "decoder.norm"},
    **{"attn.": "self_attn.", "cross.": "multihead_attn.", "in_proj.": "in_proj_", "mlp.up": "linear1"},
    **{"mlp.down": "linear2", "attn_norm": "norm1", "cross_norm": "norm2"},
}


def of_torch(model: Transformer, activation: str, *, norm_first: bool) -> nn.Transformer:
    """`torch.nn.Transformer` with the weights of a model."""
    layer: Any = {"dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": norm_first}
    encoder = nn.TransformerEncoderLayer(12, 3, 11, **layer)
    encoder = nn.TransformerEncoder(encoder, 1, nn.LayerNorm(12), enable_nested_tensor=False)
    theirs = nn.Transformer(12, 3, num_decoder_layers=2, dim_feedforward=11, custom_encoder=encoder, **layer).double()
    weights = dict[str, Tensor]()
    for name, value in model.state_dict().items():
        name = name if name.startswith("encoder.") else f"decoder.{name}"
        for ours, other in THEIRS.items():
            name = name.replace(ours, other)
        weights[name.replace("mlp_norm", "norm2" if name.startswith("encoder") else "norm3")] = value
    embeddings = ("encoder.positions", "decoder.positions", "decoder.token_embedding", "decoder.head")
    theirs.load_state_dict({name: value for name, value in weights.items() if not name.startswith(embeddings)})
    return theirs.eval()


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_it_is_torch_nn_transformer(norm: str, activation: str) -> None:
    model = lively(**PAIR, norm=norm, final_norm=True, feed_forward=activation)
    theirs = of_torch(model, activation, norm_first=norm == "pre")
    ids, source = tokens(3, TIME), padded(tokens(3, SOURCE), [5, 3, 1])
    kept, hidden = model.trace(ids, source=source), source == PADDING
    masks = {"src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
    with torch.inference_mode():
        result = theirs(
            kept["encoder.embed"], kept["embed"], tgt_mask=torch.ones(TIME, TIME, dtype=torch.bool).triu(1), **masks
        )
    torch.testing.assert_close(kept["final_norm"], result, rtol=0, atol=1e-9)


def test_muon_moves_every_matrix_inside_a_block() -> None:
    model = lively(**PAIR)
    rows = parameter_table(model.config, model.vocab_size)
    assert set(stacked_matrices(model)) == {row.name for row in rows if is_block_matrix(row)}


def test_what_follows_from_the_sizes_is_left_out_and_follows_them() -> None:
    config = ModelConfig.parse({"shape": "encoder-decoder", "num_layers": 3, "context_length": 11})
    assert (config.source_length, config.encoder_layers) == (11, 3)
    assert not {"source_length", "encoder_layers", "d_head"} & config.plain().keys()
    longer = config.model_copy(update={"context_length": 13})
    assert (longer.source_length, ModelConfig.parse({**config.plain(), "context_length": 13})) == (13, longer)
    assert "shape" not in ModelConfig().plain()


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"shape": "encoder-decoder", "attention": "none"}, "shape: "),
    ({"source_length": 3}, "source_length: "),
    ({"shape": "encoder", "encoder_layers": 3}, "encoder_layers: "),
    ({"num_labels": 3}, "num_labels: "),
    ({"shape": "encoder", "num_labels": 3, "tie_head": True}, "num_labels: "),
]


@pytest.mark.parametrize(("config", "what"), REFUSED, ids=str)
def test_a_shape_without_its_parts_is_refused(config: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=f"^config: {what}"):
        ModelConfig.parse(config)


def test_a_pass_that_a_shape_does_not_have_is_refused_in_one_line() -> None:
    pair, ids, source = lively(**PAIR), tokens(2, TIME), tokens(2, SOURCE)
    labels, letters_ = attentive(shape="encoder", num_labels=3), letters(11)
    passes = {
        "only an encoder-decoder reads one": lambda: lively()(ids, source=source),
        "reads a source beside its tokens": lambda: pair(ids),
        "to the cache if there is one": lambda: pair(ids, source=source, cache=pair.new_cache(2, source=source)),
        "token id -2 is not": lambda: pair(ids, source=source.fill_(-2)),
        "token id -1 is not": lambda: lively()(ids.fill_(-1)),
        "writes none": lambda: generate(labels, letters_, ["a"], max_tokens=1, sampling=GREEDY),
    }
    for what, refused in passes.items():
        with pytest.raises(UsageError, match=what):
            refused()
