"""A model's forward pass on a text, as sheets: the embedding, each block, and the end (head and next token).

One traced pass records the values; the recipe contributes the operations, for the arithmetic of single cells.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

import torch
from torch import Tensor, nn

from vitral.attention.masks import OwnMask
from vitral.attention.multihead import MultiHeadAttention, head_matrices
from vitral.attention.scales import OwnScale
from vitral.core.errors import UsageError
from vitral.core.parts import own_parts
from vitral.core.taps import Recorder
from vitral.data.tokenizers import Tokenizer
from vitral.decoding import beam_search, distribution
from vitral.explanation.recipe import RecipeLine, chosen, follow, recipe
from vitral.explanation.rows import Beam, CellNamer, Filtered, Greedy
from vitral.explanation.sheet import Architecture, Sheet
from vitral.model import ModelConfig, Transformer
from vitral.model.block import Block
from vitral.model.positions import Rotary
from vitral.model.settings import ROTARY

NUM_BEAMS, BEAM_LENGTH = 3, 4
"""Of the beam search in the last chapter."""


NAMES = {
    **{f"{norm}_norm.weight": f"{norm}_norm_gain" for norm in ("attn", "mlp", "final")},
    **{f"{norm}_norm.bias": f"{norm}_norm_bias" for norm in ("attn", "mlp", "final")},
    **{f"mlp.{layer}.weight": f"w_{layer}" for layer in ("up", "gate", "down")},
    **{f"mlp.{layer}.bias": f"b_{layer}" for layer in ("up", "gate", "down")},
    **{"attn.out_proj.weight": "w_o", "attn.out_proj.bias": "b_o"},
}
"""Parameters of a block, and of the end, by the model's names."""


@dataclass(frozen=True)
class TracedText:
    """One forward pass as sheets.

    Attributes:
        embedding: token and position embedding.
        blocks: one sheet for each block.
        ending: final norm, logits, probabilities and the choice of the next token.
    """

    embedding: Sheet
    blocks: tuple[Sheet, ...]
    ending: Sheet


def trace_text(
    model: Transformer, tokenizer: Tokenizer, text: str, rules: Sequence[tuple[str, float]] = ()
) -> TracedText:
    """Run the model once on the text, in evaluation mode, and record every activation.

    The pass is in double precision, whatever the model's: else rounding would make the written arithmetic untrue.

    Args:
        model: is not changed.
        tokenizer: the model's.
        text: the input.
        rules: decoding rules to apply to the last position, as ("temperature", 0.5).

    Raises:
        UsageError: an empty text, one longer than the context, or a character that is not in the vocabulary.
    """
    ids = torch.from_numpy(tokenizer.encode(text))[None, :]
    time, limit = ids.shape[1], model.config.context_length
    if not time:
        raise UsageError("explain: the text is empty; give at least one character")
    if time > limit:
        raise UsageError(
            "explain: the text has {time} tokens, but the model's context holds {limit}; shorten it",
            time=time,
            limit=limit,
        )
    refuse_unknown_steps(model.config)
    rows, beam = tuple(map(int, ids[0])), None
    recorder = Recorder()
    model = copy.deepcopy(model).cpu().double().eval()
    with torch.autocast("cpu", enabled=False), torch.inference_mode():
        model(ids, tap=recorder)
        placed, bias = model.positions.embed(0, time), model.positions.bias(time, time)
        if rules and limit > time:
            beam = _beam(model, tokenizer, text, rows)
    kept = {name: _exact(value[0]) for name, value in recorder.kept.items()}
    empty = Sheet(
        (),
        {},
        tuple(tokenizer.label(row) for row in rows),
        tuple(tokenizer.label(token) for token in range(model.vocab_size)),
        CellNamer(first=0),
        model.config.num_heads,
    )
    architecture = _architecture(model.config)
    given = {"embedding": _exact(model.token_embedding.weight)}
    given |= {} if placed is None else {"position_embedding": _exact(placed)}
    embedding = _sheet(empty, Architecture(stream="embed", rows=rows), given, kept)
    of_blocks = replace(
        architecture,
        bias=None if bias is None else _exact(bias),
        frequencies=_exact(model.positions.frequencies) if isinstance(model.positions, Rotary) else None,
        rotation=model.config.rotary or ROTARY,
    )
    blocks = tuple(_block(empty, of_blocks, layer, block, kept) for layer, block in enumerate(model.blocks))
    ending = _ending(model, empty, architecture, kept, _choices(rules, beam))
    return TracedText(embedding, blocks, ending)


def refuse_unknown_steps(config: ModelConfig) -> None:
    """Refuse a model with an LSTM or own parts, whose steps are not known here; own masks are explained.

    Raises:
        UsageError: names the first of them.
    """
    if config.recurrence is not None:
        raise UsageError("explain: the steps inside an LSTM are not known; use trace for the numbers of its output")
    for own in own_parts(config):
        if not isinstance(own, OwnMask):
            raise UsageError(
                "explain: the steps inside the {kind} {name!r} of {file} are not known; use trace for its numbers",
                kind=own.kinds[0],
                name=own.name,
                file=own.file,
            )


def _exact(value: Tensor) -> Tensor:
    return value.detach().cpu().double()


def _architecture(config: ModelConfig) -> Architecture:
    attention, scale = config.attention, None
    if attention != "none" and not isinstance(attention.scale, OwnScale):
        scale = attention.scale
    return Architecture(
        stream="resid_pre",
        norm=config.norm,
        residual=config.residual,
        parallel=bool(config.parallel),
        mask=None if attention == "none" else attention.mask,
        scale=scale,
        num_heads=config.num_heads,
        activation=str(config.feed_forward),
        norm_type=str(config.norm_type),
        epsilon=config.epsilon,
        tied=config.tie_head,
    )


def _sheet(
    empty: Sheet, architecture: Architecture, given: dict[str, Tensor], recorded: dict[str, Tensor], *lines: RecipeLine
) -> Sheet:
    """The sheet of one part of the model, with `lines` after those of the recipe."""
    values = dict(given)
    quantities = follow(chain(recipe(architecture, values), lines), values, recorded)
    return replace(empty, quantities=quantities, values=values, architecture=architecture)


def _block(empty: Sheet, architecture: Architecture, layer: int, block: nn.Module, kept: dict[str, Tensor]) -> Sheet:
    assert isinstance(block, Block)
    prefix = f"blocks.{layer}."
    recorded = {
        name.removeprefix(prefix).removeprefix("attn."): value
        for name, value in kept.items()
        if name.startswith(prefix)
    }
    given = {"resid_pre": recorded["resid_pre"], **_parameters(block)}
    if block.attn is not None:
        given |= _attention(block.attn)
    sublayers = tuple(name for name, part in (("attn", block.attn), ("mlp", block.mlp)) if part is not None)
    mask = None if architecture.mask is None else architecture.mask.of(layer)
    return _sheet(empty, replace(architecture, sublayers=sublayers, mask=mask), given, recorded)


def _parameters(module: nn.Module) -> dict[str, Tensor]:
    """Gains, matrices as formulas write them, [in, out], and biases, by our names."""
    there = {NAMES[name]: _exact(value) for name, value in module.named_parameters() if name in NAMES}
    return {name: value.T if value.dim() > 1 else value for name, value in there.items()}


def _attention(attention: MultiHeadAttention) -> dict[str, Tensor]:
    """The parameters of every head; a learned scale as `factor`."""
    values = {name: _exact(matrices) for name, matrices in head_matrices(attention).items()}
    if attention.in_proj.bias is not None:
        pieces = _exact(attention.in_proj.bias).split(attention.widths)
        values |= {f"b_{name}": piece.view(-1, attention.d_head) for name, piece in zip("qkv", pieces, strict=True)}
    scale = attention.scale()
    factor = {"factor": _exact(scale).flatten()} if isinstance(scale, Tensor) else {}
    return values | factor


def _choices(rules: Sequence[tuple[str, float]], beam: Beam | None) -> list[RecipeLine]:
    """The choice of the next token: greedy, under each rule, and by beam search."""
    lines = [chosen("greedy", Greedy()), *(chosen(f"{rule}_{value:g}", Filtered(rule, value)) for rule, value in rules)]
    if beam is not None:
        lines += [chosen("beam", beam), chosen("beam_probability", replace(beam, probability=True))]
    return lines


def _beam(model: Transformer, tokenizer: Tokenizer, text: str, rows: tuple[int, ...]) -> Beam:
    """The best continuation of a beam search, with the probability of each of its tokens."""
    length = min(BEAM_LENGTH, model.config.context_length - len(rows))
    [best] = beam_search(model, tokenizer, text, max_tokens=length, num_beams=NUM_BEAMS)
    ids = torch.tensor([[*rows, *best.tokens]], device=model.token_embedding.weight.device)
    logits = model.trace(ids, ["logits"])["logits"][0, len(rows) - 1 : -1]
    shares = distribution(logits, forbidden=tokenizer.specials)
    found = tuple(float(share[token]) for share, token in zip(shares, best.tokens, strict=True))
    return Beam(rows[-1], NUM_BEAMS, length, found=best.tokens, shares=found)


def _ending(
    model: Transformer, empty: Sheet, architecture: Architecture, kept: dict[str, Tensor], choices: list[RecipeLine]
) -> Sheet:
    last = f"blocks.{len(model.blocks) - 1}.resid_post" if len(model.blocks) else "embed"
    final_norm = _parameters(model)
    matrix = _exact(model.head_weight)
    head = {"embedding": matrix} if architecture.tied else {"w_u": matrix.T}
    head |= {} if model.head_bias is None else {"b_u": _exact(model.head_bias)}
    of_end = replace(architecture, sublayers=(), final_norm=bool(final_norm))
    return _sheet(empty, of_end, {"resid_post": kept[last], **final_norm, **head}, kept, *choices)
