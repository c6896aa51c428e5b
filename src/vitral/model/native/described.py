"""A model as `step.c` takes it: whole numbers, and tensors in a fixed order."""

from typing import Any

import torch
from torch import Tensor, nn

from vitral.attention.masks import Bidirectional, ByLayer, Causal, Mask, Prefix, Window
from vitral.core.language import N_
from vitral.model.activations import ACTIVATIONS
from vitral.model.block import Block, has_taps
from vitral.model.counts import parameter_table
from vitral.model.decode_step import KNOWN, has_only
from vitral.model.norms import norm_of
from vitral.model.positions import ALiBi, Relative, Rotary, build_positions
from vitral.model.recurrence import Recurrence
from vitral.model.transformer import Transformer

NORM_ORDERS = ("none", "pre", "post")
MIXERS = ("none", "attention", "lstm")
FEED_FORWARDS = ("none", "relu", "squared_relu", "gelu", "gelu_tanh", "swiglu")
EVERYWHERE = 2**62
"""A prefix as long as any window: every position sees every other."""
Numbers = list[int]
Arrays = list[Tensor | None]


def why_not(model: Transformer) -> str | None:
    """Why `step.c` cannot compute this model, in a few words of English; None if it can."""
    mask = model.mask
    if model.config.shape != "decoder":
        return N_("it is no decoder")
    if not isinstance(mask, Causal | Bidirectional | Prefix | Window | ByLayer | None):
        return N_("it has a mask of its own kind")
    tensors = [*model.parameters(), *model.buffers()]
    if any(tensor.device.type != "cpu" for tensor in tensors):
        return N_("it is not on the CPU")
    if any(tensor.dtype != torch.float32 or not tensor.is_contiguous() for tensor in model.parameters()):
        return N_("its weights are not plain float32")
    if not has_only(model, KNOWN | {Recurrence, nn.LSTM}):
        return N_("it has parts of its own kind, or hooks")
    if not all(_is_known(block) for block in model.blocks):
        return N_("it has parts of its own kind, or hooks")
    return None if _is_as_configured(model) else N_("its parts are not those of its configuration")


def _is_known(block: nn.Module) -> bool:
    if not isinstance(block, Block):
        return False
    part = block.mlp
    return part is None or (has_taps(part) and _name_of(part) in FEED_FORWARDS)


def _is_as_configured(model: Transformer) -> bool:
    """Whether no part was exchanged for another one: `step.c` has one kind and one size for all blocks."""
    config = model.config
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    if shapes != {row.name: row.shape for row in parameter_table(config, model.vocab_size)}:
        return False
    with torch.random.fork_rng(devices=[]):
        positions = build_positions(config)
        with torch.device("meta"):  # no memory
            block, final_norm = Block(config), norm_of(config)
    pairs = [(model.positions, positions), *((each, block) for each in model.blocks)]
    pairs += [(model.final_norm, final_norm)] if config.has_final_norm else []
    return all(_facts(one) == _facts(usual) for one, usual in pairs)


def _facts(part: nn.Module) -> list[object]:
    """What decides how a part computes, besides its parameters: the classes of its modules, and their attributes."""
    return [
        (type(each), [tuple(buffer.shape) for buffer in each.buffers(recurse=False)], _plain(vars(each)))
        for each in part.modules()
    ]


def _plain(attributes: dict[str, Any]) -> dict[str, Any]:
    return {
        name: value
        for name, value in attributes.items()
        if name not in ("training", "scale") and (callable(value) or isinstance(value, int | float | str | tuple))
    }


def _name_of(part: Any) -> str | None:
    """The name of a feed-forward's activation; None for one of the user's."""
    return next((name for name, known in ACTIVATIONS.items() if part.activation is known.function), None)


def described(model: Transformer) -> tuple[Numbers, Arrays]:
    """The numbers and the tensors of a model; `numbers` and `arrays` of `step.c` have the same order."""
    config = model.config
    positions = model.positions
    rotary = positions if isinstance(positions, Rotary) else None
    mixer = "attention" if config.attention != "none" else config.recurrence or "none"
    turning = 0 if rotary is None else rotary.rotation.width(config.d_head)
    d_ff, feed_forward = _feed_forward(model)
    factors = [block.attn.factors() for block in _blocks(model) if block.attn is not None]
    numbers = [
        *(config.d_model, config.num_layers, config.num_heads, config.kv_heads, config.d_head, d_ff),
        *(model.vocab_size, NORM_ORDERS.index(config.norm), int(config.norm_type == "rmsnorm"), int(config.residual)),
        *(int(bool(config.parallel)), MIXERS.index(mixer), feed_forward, int(config.has_final_norm)),
        *(int(config.attention != "none" and config.attention.scale == "adaptive"), turning),
        *(int(rotary is not None and rotary.rotation.pairing == "interleaved"),),
        *(positions.reach if isinstance(positions, Relative) else 0,),
        *(int(model.mask is not None and model.mask.joint_prefix() != 0), int(any(len(each) > 1 for each in factors))),
    ]
    cosines, sines = (None, None) if rotary is None else _turns(rotary, turning)
    vectors = positions.embed(0, config.context_length)
    arrays = [
        *(torch.tensor([config.epsilon]), model.token_embedding.weight, None if vectors is None else vectors.float()),
        *(cosines, sines, positions.slopes if isinstance(positions, ALiBi) else None),
        *(positions.by_distance if isinstance(positions, Relative) else None,),
        *(*_norm(model.final_norm), model.head_weight, model.head_bias),
    ]
    for block in model.blocks:
        more, tensors = _of_block(block)
        numbers += more
        arrays += tensors
    return numbers, arrays


def _of_block(block: Any) -> tuple[Numbers, Arrays]:
    """One layer: how far its mask reaches, and its tensors."""
    attention, recurrence, mlp = block.attn, block.recurrence, block.mlp
    mix: Arrays = [None] * 5
    window = prefix = 0
    if attention is not None:
        window, prefix = _reach(attention.mask)
        mix = [*_linear(attention.in_proj), *_linear(attention.out_proj), attention.factors().float()]
    elif recurrence is not None:
        lstm = recurrence.lstm
        biases = (lstm.bias_ih_l0, lstm.bias_hh_l0) if lstm.bias else (None, None)
        mix = [lstm.weight_ih_l0, biases[0], lstm.weight_hh_l0, biases[1], None]
    feed: Arrays = [None] * 6
    if mlp is not None:
        gate = [None, None] if mlp.gate is None else _linear(mlp.gate)
        feed = [*gate, *_linear(mlp.up), *_linear(mlp.down)]
    return [window, prefix], [*_norm(block.attn_norm or block.recurrence_norm), *_norm(block.mlp_norm), *mix, *feed]


def _reach(mask: Mask) -> tuple[int, int]:
    """The size of a window, 0 for all earlier positions; and how many first positions everyone sees."""
    window = mask.size if isinstance(mask, Window) else 0
    if isinstance(mask, Bidirectional):
        return window, EVERYWHERE
    return window, mask.length if isinstance(mask, Prefix) else 0


def _linear(part: nn.Linear) -> Arrays:
    return [part.weight, part.bias]


def _norm(part: nn.Module | None) -> Arrays:
    if isinstance(part, nn.LayerNorm | nn.RMSNorm):
        return [part.weight, getattr(part, "bias", None)]
    return [None, None]


def _turns(rotary: Rotary, turning: int) -> tuple[Tensor, Tensor]:
    """The cosine and the sine of each pair at each position, [context_length, pairs]."""
    second = slice(1, turning, 2) if rotary.rotation.pairing == "interleaved" else slice(turning // 2, turning)
    cosines, sines = rotary.turns.float()[:, :, second]
    return cosines.contiguous(), sines.contiguous()


def _blocks(model: Transformer) -> list[Any]:
    return list(model.blocks)


def _feed_forward(model: Transformer) -> tuple[int, int]:
    """The width of the blocks' feed-forward, and its kind; 0 without one."""
    part: Any = model.blocks[0].mlp if len(model.blocks) else None
    if part is None:
        return 0, 0
    return part.up.out_features, FEED_FORWARDS.index(str(_name_of(part)))
