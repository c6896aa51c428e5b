"""A model's forward pass on a text, as sheets: the embedding, each block, and the end (head and next token).

A block with cross-attention is three sheets: cross-attention is attention with other keys and values and other names.

One traced pass records the values; the recipe contributes the operations, for the arithmetic of single cells.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import torch
from torch import Tensor, nn

from vitral.attention.masks import Bidirectional, OwnMask
from vitral.attention.multihead import MultiHeadAttention, head_matrices
from vitral.core.errors import UsageError
from vitral.core.names import ATTENTION_STEPS
from vitral.core.parts import own_parts
from vitral.core.taps import Recorder
from vitral.data.tokenizers import Tokenizer
from vitral.decoding import GenerateOptions, beam_search, distribution
from vitral.decoding.reader import source_ids
from vitral.explanation.examples.schema import CHOICES
from vitral.explanation.formulas.notation import Name
from vitral.explanation.recipe import Architecture, SheetQuantity, choice_of, follow, recipe
from vitral.explanation.rows import Beam
from vitral.explanation.sheet import Sheet
from vitral.model import ModelConfig, Transformer
from vitral.model.block import Block
from vitral.model.positions import Rotary
from vitral.model.settings import ROTARY
from vitral.model.stack import Stack

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
OF_CROSS = {
    **{step: f"cross.{step}" for step in ATTENTION_STEPS},
    **{"Concat(z)": "Concat(cross.z)", "W": "cross.W", "b": "cross.b", "g": "cross.g", "memory": "encoder.final_norm"},
    **{"attn_norm": "cross_norm", "attn_sum": "cross_sum", "resid_pre": "resid_mid", "resid_mid": "resid_cross"},
    **{f"attn_norm_{kind}": f"cross_norm_{kind}" for kind in ("gain", "bias")},
}
"""The names of cross-attention, by those of attention."""


@dataclass(frozen=True)
class TracedText:
    """One forward pass as sheets.

    Attributes:
        embedding: token and position embedding.
        blocks: the sheets of each block: one, or those of attention, cross-attention and the feed-forward.
        ending: final norm, logits, probabilities and the choice of the next token; of an encoder the norm alone.
        encoder: of an encoder-decoder, the pass on the source.
        recorder: has the activations by name, from which gradients can be taken if they are wanted.
    """

    embedding: Sheet
    blocks: tuple[tuple[Sheet, ...], ...]
    ending: Sheet
    encoder: "TracedText | None" = None
    recorder: Recorder = field(default_factory=Recorder)

    def gradient(self, position: int, name: str) -> Tensor:
        """The gradient of −log p of the token after a position with respect to an activation, by autograd.

        Its shape is that of the activation without its axis of texts.
        """
        activations, token = self.recorder.kept, self.embedding.architecture.rows[position + 1]
        loss = -activations["logits"][0, position].log_softmax(dim=-1)[token]
        return torch.autograd.grad(loss, activations[name], retain_graph=True)[0][0]


def trace_text(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    rules: Sequence[tuple[str, float]] = (),
    source: str | None = None,
    *,
    gradients: bool = False,
) -> TracedText:
    """Run the model once on the text, in evaluation mode, and record every activation.

    The pass is in double precision, whatever the model's: else rounding would make the written arithmetic untrue.

    Args:
        model: is not changed.
        tokenizer: the model's.
        text: the input.
        rules: decoding rules to apply to the last position, as ("temperature", 0.5).
        source: of an encoder-decoder, the text that its encoder reads.
        gradients: whether gradients of its activations are wanted.

    Raises:
        UsageError: an empty text, one longer than the context, a character that is not in the vocabulary, or a source
            that is missing or that nothing reads.
    """
    ids = torch.from_numpy(tokenizer.encode(text))[None]
    time, limit = ids.shape[1], model.config.context_length
    if not time or source == "":
        raise UsageError("explain: the text is empty; give at least one character")
    if time > limit:
        raise UsageError(
            "explain: the text has {time} tokens, but the model's context holds {limit}; shorten it",
            time=time,
            limit=limit,
        )
    refuse_unknown_steps(model.config)
    read = None if source is None else torch.tensor([source_ids(tokenizer, source, model.config.source_length)])
    rows, beam = tuple(ids[0].tolist()), None
    recorder = Recorder()
    model = copy.deepcopy(model).cpu().double().eval()
    with torch.autocast("cpu", enabled=False), torch.inference_mode(not gradients):
        model(ids, source=read, tap=recorder)
        if rules and limit > time:
            beam = _beam(model, tokenizer, text, rows, source, read)
    activations = {name: _exact(value[0]) for name, value in recorder.kept.items()}
    tokens, vocabulary = (tuple(map(tokenizer.label, ids)) for ids in (rows, range(model.vocab_size)))
    empty = Sheet((), {}, tokens, vocabulary, 0, model.config.num_heads)
    given = {"embedding": _exact(model.token_embedding.weight)}
    encoder = None
    if model.encoder is not None and read is not None:
        source_rows = tuple(read[0].tolist())
        on_source = replace(empty, tokens=tuple(map(tokenizer.label, source_rows)))
        encoder = _stack(model.encoder, on_source, given, source_rows, _of(activations, "encoder."), "encoder.")
        empty = replace(empty, sources=on_source.tokens)
    traced = _stack(model, empty, given, rows, activations)
    names = () if model.config.num_labels else ("greedy", *(f"{rule}_{value:g}" for rule, value in rules))
    choices = [*map(choice_of, names), *(choice_of(name, beam) for name in CHOICES[1:] if beam and names)]
    return replace(traced, ending=_ending(model, empty, activations, choices), encoder=encoder, recorder=recorder)


def _of(activations: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The values of a part, whose names have a prefix, by their names without it."""
    return {name.removeprefix(prefix): value for name, value in activations.items() if name.startswith(prefix)}


def _stack(
    stack: Stack,
    empty: Sheet,
    given: dict[str, Tensor],
    rows: tuple[int, ...],
    activations: dict[str, Tensor],
    prefix: str = "",
) -> TracedText:
    """The embedding, the blocks and the final norm, whose names have the prefix."""
    time, positions = len(rows), stack.positions
    placed, bias = positions.embed(0, time), positions.bias(time, time)
    given = given | ({} if placed is None else {"position_embedding": _exact(placed)})
    architecture = replace(
        _architecture(stack.config),
        bias=None if bias is None else _exact(bias),
        frequencies=_exact(positions.frequencies) if isinstance(positions, Rotary) else None,
        rotation=stack.config.rotary or ROTARY,
    )
    embedding = _sheet(empty, Architecture(stream="embed", rows=rows), given, activations)
    blocks = (_block(empty, architecture, layer, block, activations) for layer, block in enumerate(stack.blocks))
    called = partial(_called, prefix)
    return TracedText(
        called(embedding),
        tuple(tuple(map(called, sheets)) for sheets in blocks),
        called(_ending(stack, empty, activations, [])),
    )


def _called(prefix: str, sheet: Sheet) -> Sheet:
    """The sheet, whose quantities and parameters have a prefix in formulas."""
    if not prefix:
        return sheet
    names = {name: Name(prefix + name) for name in (*"Wbg", *sheet.values)}
    return replace(sheet, names={**sheet.names, **names, "Concat(z)": Name(f"Concat({prefix}z)")})


def refuse_unknown_steps(config: ModelConfig) -> None:
    """Refuse a model with an LSTM or own parts, whose steps are not known here; own masks are explained.

    Raises:
        UsageError: names the first of them.
    """
    if config.recurrence is not None:
        raise UsageError("explain: the steps inside an LSTM are not known; use trace for the numbers of its output")
    if config.encoder is not None and config.parallel:
        raise UsageError("explain: the steps of a parallel block with cross-attention are not known; use trace")
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
    attention = None if config.attention == "none" else config.attention
    return Architecture.of(
        config,
        stream="resid_pre",
        mask=attention and attention.mask,
        scale=attention and attention.scale,
        activation=str(config.feed_forward),
        tied=config.tie_head,
        bias=None,
        final_norm=False,
    )


def _sheet(
    empty: Sheet,
    architecture: Architecture,
    given: dict[str, Tensor],
    recorded: dict[str, Tensor],
    *lines: SheetQuantity,
) -> Sheet:
    """The sheet of one part of the model, with `lines` after those of the recipe."""
    values = dict(given)
    quantities = follow(chain(recipe(architecture, values), lines), values, recorded)
    return replace(empty, quantities=quantities, values=values, architecture=architecture)


def _block(
    empty: Sheet, architecture: Architecture, layer: int, block: nn.Module, activations: dict[str, Tensor]
) -> Iterator[Sheet]:
    assert isinstance(block, Block)
    of_block = _of(activations, f"blocks.{layer}.")
    recorded = {name.removeprefix("attn."): value for name, value in of_block.items()}
    mask = None if architecture.mask is None else architecture.mask.of(layer)
    parts = tuple(name for name, part in (("attn", block.attn), ("mlp", block.mlp)) if part is not None)
    given = {"resid_pre": recorded["resid_pre"], **_parameters(block), **_attention(block.attn)}
    if block.cross is None:
        yield _sheet(empty, replace(architecture, sublayers=parts, mask=mask), given, recorded)
        return
    yield _sheet(replace(empty, sources=()), replace(architecture, sublayers=("attn",), mask=mask), given, recorded)
    of_cross = {name: of_block[other] for name, other in OF_CROSS.items() if other in of_block}
    states = {"resid_pre": of_block["resid_mid"], "memory": activations["encoder.final_norm"]}
    other = replace(architecture, sublayers=("attn",), mask=Bidirectional(), bias=None, frequencies=None, memory=True)
    inputs = {**states, **_parameters(block, "cross"), **_attention(block.cross)}
    names = {name: Name(OF_CROSS.get(name, f"cross.{name}")) for name in (*inputs, *OF_CROSS)}
    yield replace(_sheet(empty, other, inputs, of_cross), names=names)
    after = {"resid_pre": of_block["resid_cross"], **_parameters(block)}
    names = dict.fromkeys(("resid_pre", "resid_mid"), Name("resid_cross"))
    yield replace(_sheet(empty, replace(architecture, sublayers=parts[1:]), after, recorded), names=names)


def _parameters(module: nn.Module, attention: str = "attn") -> dict[str, Tensor]:
    """Gains, matrices as formulas write them, [in, out], and biases, by our names; those of one kind of attention."""
    named = ((name.replace(attention, "attn"), value) for name, value in module.named_parameters())
    parameters = {NAMES[name]: _exact(value) for name, value in named if name in NAMES}
    return {name: value.T if value.dim() > 1 else value for name, value in parameters.items()}


def _attention(attention: MultiHeadAttention | None) -> dict[str, Tensor]:
    """The parameters of every head; a learned scale as `factor`."""
    if attention is None:
        return {}
    values = {name: _exact(matrices) for name, matrices in head_matrices(attention).items()}
    if attention.in_proj.bias is not None:
        pieces = _exact(attention.in_proj.bias).split(attention.widths)
        values |= {f"b_{name}": piece.view(-1, attention.d_head) for name, piece in zip("qkv", pieces, strict=True)}
    scale = attention.scale()
    if isinstance(scale, Tensor):
        values["factor"] = _exact(scale).flatten()
    return values


def _beam(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    rows: tuple[int, ...],
    source: str | None,
    read: Tensor | None,
) -> Beam:
    """The best continuation of a beam search, with the probability of each of its tokens."""
    length = min(BEAM_LENGTH, model.config.context_length - len(rows))
    options = GenerateOptions(sources=None if source is None else (source,))
    [best] = beam_search(model, tokenizer, text, max_tokens=length, num_beams=NUM_BEAMS, options=options)
    ids = torch.tensor([[*rows, *best.tokens]])
    logits = model.trace(ids, ["logits"], source=read)["logits"][0, len(rows) - 1 : -1]
    shares = distribution(logits, forbidden=tokenizer.specials)
    probabilities = tuple(float(share[token]) for share, token in zip(shares, best.tokens, strict=True))
    return Beam(rows[-1], NUM_BEAMS, length, words=best.tokens, shares=probabilities)


def _ending(stack: Stack, empty: Sheet, activations: dict[str, Tensor], choices: list[SheetQuantity]) -> Sheet:
    """The final norm, and behind a whole model's the head and the choices."""
    whole = stack if isinstance(stack, Transformer) else None
    first = "embed" if whole is None or whole.embedding_norm is None else "embed_norm"
    last = f"blocks.{len(stack.blocks) - 1}.resid_post" if len(stack.blocks) else first
    transform = None if whole is None or whole.head_transform is None else "head_transform"
    final_norm, head = {} if transform else _parameters(stack), dict[str, Tensor]()
    if whole is not None:
        matrix = _exact(whole.head_weight)
        head = {"embedding": matrix} if stack.config.tie_head else {"w_u": matrix.T}
        head |= {} if whole.head_bias is None else {"b_u": _exact(whole.head_bias)}
    architecture = _architecture(stack.config)
    of_end = replace(architecture, sublayers=(), final_norm=bool(final_norm), stream=transform or architecture.stream)
    return _sheet(
        empty,
        of_end,
        {transform or "resid_post": activations[transform or last], **final_norm, **head},
        activations,
        *choices,
    )
