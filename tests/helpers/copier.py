"""A model whose weights copy a repeated string by construction: a previous-token head and an induction head."""

import torch

from vitral.model import ModelConfig, Transformer

SYMBOLS, TIME = 6, 16
SHARP = 60.0


def copier() -> Transformer:
    """Two heads a layer: the previous-token head and one that does nothing, then the induction head and another.

    The stream is: the token, the place, the token before, the prediction; every head is as wide as the stream.
    """
    width = 3 * SYMBOLS + TIME
    token, place = slice(0, SYMBOLS), slice(SYMBOLS, SYMBOLS + TIME)
    before, ahead = slice(SYMBOLS + TIME, 2 * SYMBOLS + TIME), slice(2 * SYMBOLS + TIME, width)
    config = {
        "context_length": TIME, "d_model": 2 * width, "num_layers": 2, "num_heads": 2, "norm": "none", "bias": False,
        "feed_forward": "none", "attention": {"scale": "none"},
    }  # fmt: skip
    model = Transformer(ModelConfig.parse(config), SYMBOLS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.token_embedding.weight[:, token] = torch.eye(SYMBOLS)
        model.get_parameter("positions.weight")[:, place] = torch.eye(TIME)
        model.get_parameter("head.weight")[:, ahead] = SHARP * torch.eye(SYMBOLS)
        shift = torch.diag(torch.ones(TIME - 1), 1)  # row t - 1, column t
        _set_head(model, 0, query=(place, SHARP * shift), key=(place, torch.eye(TIME)), value=token, into=before)
        _set_head(model, 1, query=(token, SHARP * torch.eye(SYMBOLS)), key=(before, torch.eye(SYMBOLS)), value=token, into=ahead)  # fmt: skip  # noqa: E501
        # The first place has no token before it, so the previous-token head reads its own; no key is offered there.
        keys = model.get_parameter("blocks.1.attn.in_proj.weight")[2 * width : 2 * width + SYMBOLS]
        keys[:, place.start] = -1.0
    return model


def _set_head(model: Transformer, layer: int, *, query: tuple, key: tuple, value: slice, into: slice) -> None:
    """Weights of head 0: which part of the stream it reads and writes."""
    attention = model.blocks[layer].get_submodule("attn")
    inside, out = attention.get_parameter("in_proj.weight"), attention.get_parameter("out_proj.weight")
    width = model.config.d_model
    for index, (part, matrix) in enumerate((query, key)):
        inside[index * width : index * width + len(matrix), part] = matrix
    size = value.stop - value.start
    inside[2 * width : 2 * width + size, value] = torch.eye(size)
    out[into, :size] = torch.eye(size)
