"""A model's own forward pass as sheets: one for the embedding, one for each block, one for the ending.

Nothing is computed anew: every value was taken from one traced pass. The sheets' operations are there for the
arithmetic of single cells.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vitral.attention.multihead import MultiHeadAttention, head_matrices
from vitral.attention.scales import factor_of
from vitral.core.errors import UsageError
from vitral.core.taps import Recorder
from vitral.data.tokenizers import Tokenizer
from vitral.decoding import Sampling, beam_search, distribution
from vitral.explain.choices import Filtered, Followed, Greedy
from vitral.explain.notation import Expression, Name
from vitral.explain.operations import (
    Activate,
    Add,
    Index,
    Linear,
    Lookup,
    Masking,
    Normalise,
    Operation,
    Output,
    Project,
    Scale,
    Score,
    Scribe,
    Softmax,
    Turn,
    Weigh,
)
from vitral.explain.recipes import HEADS, SQUARE, STREAM
from vitral.explain.sheet import Quantity, Sheet
from vitral.model import ModelConfig, Transformer
from vitral.model.block import Block
from vitral.model.positions import Rotary

EPSILON = 1e-5
"""Of the model's norms."""
NUM_BEAMS, BEAM_LENGTH = 3, 4
"""Of the beam search that is shown beside the other choices."""


@dataclass(frozen=True)
class Same:
    """The part's output in the stream's place: a block without residual."""

    of: str

    def __call__(self, value: Tensor) -> Tensor:
        """The value itself."""
        return value

    def formula(self) -> Expression:
        """The part's name."""
        return Name(self.of)

    def stages(self, inputs: Sequence[Tensor], index: Index, scribe: Scribe) -> tuple[Expression, ...]:
        """The part's own number."""
        return (scribe.cell(self.of, *index),)


@dataclass(frozen=True)
class Observation:
    """One forward pass, taken apart.

    Attributes:
        text: what the model read.
        labels: its tokens, made visible.
        embedding: the sheet of the token and position embeddings.
        blocks: a sheet for each block.
        ending: final norm, logits, probabilities and choices, for the last position's sake.
        post_norm: the norms come after the parts.
    """

    text: str
    labels: tuple[str, ...]
    embedding: Sheet
    blocks: tuple[Sheet, ...]
    ending: Sheet
    post_norm: bool


def observe(
    model: Transformer, tokenizer: Tokenizer, text: str, rules: Sequence[tuple[str, float]] = ()
) -> Observation:
    """Run the model once on the text, in evaluation mode, and keep everything.

    Args:
        model: is left in the mode it was in.
        tokenizer: the model's.
        text: what it reads.
        rules: decoding rules whose distributions are wanted, as ("temperature", 0.5).

    Raises:
        UsageError: an empty text, one longer than the context, or a character the model has never seen.
    """
    ids = torch.from_numpy(tokenizer.encode(text))[None, :]
    time, limit = ids.shape[1], model.config.context_length
    if not time:
        raise UsageError("explain: the text is empty; give at least one character")
    if time > limit:
        raise UsageError(f"explain: the text has {time} tokens, but the model's context holds {limit}; shorten it")
    labels = tuple(tokenizer.label(int(token)) for token in ids[0])
    vocabulary = tuple(tokenizer.label(token) for token in range(model.vocab_size))
    with _watched(model) as seen:
        recorder = Recorder()
        with torch.inference_mode():
            model(ids.to(model.token_embedding.weight.device), tap=recorder)
            bias = model.positions.bias(time, time)
            scales = [_factors(block, recorder.kept, layer) for layer, block in enumerate(model.blocks)]
    kept = {name: _exact(value[0]) for name, value in (recorder.kept | seen).items()}
    notes = _Notes(labels, vocabulary, model.config.num_heads)
    blocks = tuple(
        _block(model, layer, kept, notes, scales[layer], None if bias is None else _exact(bias))
        for layer in range(len(model.blocks))
    )
    rows = tuple(map(int, ids[0]))
    embedding = _embedding(model, rows, kept, notes)
    beam = None
    if rules and limit > time:
        with _watched(model):  # in evaluation mode
            beam = _beam(model, tokenizer, text, rows)
    ending = _ending(model, kept, notes, rules, beam)
    return Observation(text, labels, embedding, blocks, ending, model.config.norm == "post")


@dataclass(frozen=True)
class _Notes:
    """What all sheets of a pass share."""

    labels: tuple[str, ...]
    vocabulary: tuple[str, ...]
    num_heads: int

    def sheet(self, quantities: Sequence[Quantity], values: dict[str, Tensor]) -> Sheet:
        return Sheet(tuple(quantities), values, self.labels, self.vocabulary, Scribe(first=0), self.num_heads)


@contextmanager
def _watched(model: Transformer) -> Iterator[dict[str, Tensor]]:
    """What the modules between the named activations give while the model runs; the mode is put back after."""
    seen: dict[str, Tensor] = {}
    watched: dict[str, nn.Module] = {"token_embedding": model.token_embedding}
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        parts = {"attn_norm": block.attn_norm, "mlp_norm": block.mlp_norm}
        if block.attn is not None:
            parts["in_proj"] = block.attn.in_proj
        for name in ("up", "gate"):
            if block.mlp is not None and hasattr(block.mlp, name):
                parts[name] = getattr(block.mlp, name)
        watched |= {f"blocks.{layer}.{name}": part for name, part in parts.items() if part is not None}

    def keeper(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        def keep(_: nn.Module, arguments: tuple[Tensor, ...], result: Tensor) -> None:
            seen[name] = result
            seen[f"{name}.input"] = arguments[0]

        return keep

    hooks = [module.register_forward_hook(keeper(name)) for name, module in watched.items()]
    training = model.training
    model.eval()
    try:
        yield seen
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()


def _factors(block: nn.Module, kept: dict[str, Tensor], layer: int) -> Tensor | None:
    """What multiplied the scores of each head and query, [heads, time, 1], asked of the scale itself."""
    attention = getattr(block, "attn", None)
    if not isinstance(attention, MultiHeadAttention):
        return None
    q, k = (kept[f"blocks.{layer}.attn.{name}"] for name in "qk")
    k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
    time = q.shape[2]
    factor = factor_of(attention.scale(), q, k, attention.mask.allowed(time, time, q.device))
    exact = _exact(factor) if isinstance(factor, Tensor) else torch.tensor(factor, dtype=torch.float64)
    return exact.expand(1, attention.num_heads, time, 1)[0]


def _embedding(model: Transformer, rows: tuple[int, ...], kept: dict[str, Tensor], notes: _Notes) -> Sheet:
    values = {"embedding": _exact(model.token_embedding.weight), "token_embedding": kept["token_embedding"]}
    quantities = [Quantity("token_embedding", STREAM, Lookup(rows), ("embedding",))]
    with torch.inference_mode():
        placed = model.positions.embed(0, len(rows))
    if placed is not None:
        values |= {"position_embedding": _exact(placed), "embed": kept["embed"]}
        adding = Add("token_embedding", "position_embedding")
        quantities.append(Quantity("embed", STREAM, adding, ("token_embedding", "position_embedding")))
    return notes.sheet(quantities, values)


def _block(
    model: Transformer, layer: int, kept: dict[str, Tensor], notes: _Notes, factors: Tensor | None, bias: Tensor | None
) -> Sheet:
    """The sheet of one block, whatever parts it has."""
    block, prefix = model.blocks[layer], f"blocks.{layer}."
    assert isinstance(block, Block)
    here = {name.removeprefix(prefix): value for name, value in kept.items() if name.startswith(prefix)}
    page = _Page(model.config, here)
    if isinstance(block.attn, MultiHeadAttention):
        source = page.norm_before("norm_1", block.attn_norm, "attn_norm", "x")
        _attention(page, block.attn, source, str(_scale_kind(model)), (factors, bias, model.positions))
        page.stream("resid_mid", ("x", "out"), block.attn_norm, "attn_norm", "sum_1")
    else:
        page.values["resid_mid"] = here["resid_mid"]
    if block.mlp is not None:
        source = page.norm_before("norm_2", block.mlp_norm, "mlp_norm", "resid_mid")
        _feed_forward(page, block.mlp, source)
        page.stream("resid_post", ("resid_mid", "mlp_out"), block.mlp_norm, "mlp_norm", "sum_2")
    return notes.sheet(page.quantities, page.values)


class _Page:
    """The quantities of a block, noted one by one with the values they had."""

    def __init__(self, config: ModelConfig, here: dict[str, Tensor]) -> None:
        self.config, self.here = config, here
        self.values: dict[str, Tensor] = {"x": here["resid_pre"]}
        self.quantities: list[Quantity] = []

    def note(self, name: str, value: Tensor, axes: tuple[str, ...], operation: Operation, *inputs: str) -> None:
        """One quantity; inputs the model does not have (a bias) are left out."""
        self.values[name] = value
        self.quantities.append(Quantity(name, axes, operation, tuple(each for each in inputs if each in self.values)))

    def weights(self, name: str, layer: nn.Module | None) -> None:
        """A linear layer's matrix, as formulas write it, and bias."""
        if isinstance(layer, nn.Linear):
            self.values[f"w_{name}"] = _exact(layer.weight).T
            if layer.bias is not None:
                self.values[f"b_{name}"] = _exact(layer.bias)

    def norm(self, name: str, module: nn.Module | None, value: Tensor, made_of: str) -> None:
        """What a norm gave."""
        gain, shift = getattr(module, "weight", None), getattr(module, "bias", None)
        assert gain is not None
        self.values[f"{name}_gain"] = _exact(gain)
        if shift is not None:
            self.values[f"{name}_bias"] = _exact(shift)
        operation = Normalise(self.config.norm_type, EPSILON, made_of)
        self.note(name, value, STREAM, operation, made_of, f"{name}_gain", f"{name}_bias")

    def norm_before(self, name: str, module: nn.Module | None, key: str, made_of: str) -> str:
        """In pre-norm the norm before a part; gives what the part reads."""
        if self.config.norm != "pre":
            return made_of
        self.norm(name, module, self.here[key], made_of)
        return name

    def stream(self, name: str, terms: tuple[str, str], module: nn.Module | None, key: str, total: str) -> None:
        """The stream after a part, with its norm where that comes after."""
        before, part = terms
        made: Operation = Add(before, part) if self.config.residual else Same(part)
        inputs = terms if self.config.residual else (part,)
        if self.config.norm != "post":
            self.note(name, self.here[name], STREAM, made, *inputs)
            return
        self.note(total, self.here[f"{key}.input"], STREAM, made, *inputs)
        self.norm(name, module, self.here[name], total)


def _scale_kind(model: Transformer) -> str | float:
    return "none" if model.config.attention == "none" else model.config.attention.scale


def _attention(
    page: _Page,
    attention: MultiHeadAttention,
    source: str,
    scale: str,
    around: tuple[Tensor | None, Tensor | None, nn.Module],
) -> None:
    """Attention's steps, from the trace."""
    (factors, bias, positions), here = around, page.here
    assert factors is not None
    _projections(page, attention, source, positions)
    time = len(here["resid_pre"])
    allowed = attention.mask.allowed(time, time)
    kind = scale if scale in ("none", "sqrt", "linear", "adaptive", "learned", "learned-per-head") else "number"
    page.note("scores", here["attn.scores"], SQUARE, Score(), "q", "k")
    page.note("scaled", here["attn.scaled"], SQUARE, Given(kind, factors, allowed, attention.d_head), "scores")
    page.note("masked", here["attn.masked"], SQUARE, Masking(allowed, bias), "scaled")
    page.note("weights", here["attn.weights"], SQUARE, Softmax("masked"), "masked")
    page.note("z", here["attn.z"], HEADS, Weigh(), "weights", "v")
    page.weights("o", attention.out_proj)
    page.note("out", here["attn.out"], STREAM, Output(attention.num_heads, projects=True), "z", "w_o", "b_o")


def _projections(page: _Page, attention: MultiHeadAttention, source: str, positions: nn.Module) -> None:
    """Queries, keys and values of every head; with rotary before turning and after."""
    width, here = attention.d_head, page.here
    counts = {"q": attention.num_heads, "k": attention.num_kv_heads, "v": attention.num_kv_heads}
    widths = [count * width for count in counts.values()]
    page.values |= {name: _exact(matrices) for name, matrices in head_matrices(attention).items()}
    in_bias = attention.in_proj.bias
    if in_bias is not None:
        pieces = _exact(in_bias).split(widths)
        page.values |= {f"b_{name}": piece.view(-1, width) for name, piece in zip(counts, pieces, strict=True)}
    for (name, count), straight in zip(counts.items(), here["in_proj"].split(widths, dim=-1), strict=True):
        made = Project(name.upper(), source)
        inputs = (source, f"w_{name}", f"b_{name}")
        if isinstance(positions, Rotary) and name != "v":
            projected = straight.view(len(straight), count, width).transpose(0, 1)
            page.note(f"{name}_straight", projected, HEADS, made, *inputs)
            turn = Turn(name, _exact(positions.frequencies))
            page.note(name, here[f"attn.{name}"], HEADS, turn, f"{name}_straight")
        else:
            page.note(name, here[f"attn.{name}"], HEADS, made, *inputs)


@dataclass(frozen=True)
class Given(Scale):
    """A scale whose factors are those the model used, the adaptive ones too."""

    def factors(self, scores: Tensor) -> Tensor:
        """As they were, [heads, time, 1]."""
        return self.factor


def _feed_forward(page: _Page, mlp: nn.Module, source: str) -> None:
    """The two or three matrices and the bend between them."""
    here, wide = page.here, ("time", "d_ff")
    for name, key in (("up", "1"), ("gate", "g"), ("down", "2")):
        page.weights(key, getattr(mlp, name, None))
    if "gate" in here:
        page.note("gate", here["gate"], wide, Linear("(g)", source), source, "w_g", "b_g")
    page.note("pre_activation", here["up"], wide, Linear("(1)", source), source, "w_1", "b_1")
    page.note("hidden", here["mlp.hidden"], wide, Activate(page.config.feed_forward), "pre_activation", "gate")
    page.note("mlp_out", here["mlp.out"], STREAM, Linear("(2)", "hidden"), "hidden", "w_2", "b_2")


def _beam(model: Transformer, tokenizer: Tokenizer, text: str, rows: tuple[int, ...]) -> Followed:
    """What beam search goes on with, and how likely each of its tokens was."""
    length = min(BEAM_LENGTH, model.config.context_length - len(rows))
    [best] = beam_search(model, tokenizer, text, max_tokens=length, num_beams=NUM_BEAMS)
    ids = torch.tensor([[*rows, *best.tokens]], device=model.token_embedding.weight.device)
    logits = model.trace(ids, ["logits"])["logits"][0, len(rows) - 1 : -1]
    shares = distribution(logits, forbidden=tokenizer.specials)
    along = tuple(float(share[token]) for share, token in zip(shares, best.tokens, strict=True))
    return Followed(rows[-1], NUM_BEAMS, length, found=best.tokens, shares=along)


def _ending(
    model: Transformer,
    kept: dict[str, Tensor],
    notes: _Notes,
    rules: Sequence[tuple[str, float]],
    beam: Followed | None,
) -> Sheet:
    """Final norm, logits, probabilities, and what each decoding rule makes of them."""
    last = f"blocks.{len(model.blocks) - 1}.resid_post" if len(model.blocks) else "embed"
    values, quantities, source = {"resid_post": kept[last]}, [], "resid_post"
    gain, shift = getattr(model.final_norm, "weight", None), getattr(model.final_norm, "bias", None)
    if gain is not None:
        values |= {"final_norm_gain": _exact(gain), "final_norm": kept["final_norm"]}
        values |= {} if shift is None else {"final_norm_bias": _exact(shift)}
        inputs = tuple(name for name in ("resid_post", "final_norm_gain", "final_norm_bias") if name in values)
        normed = Normalise(model.config.norm_type, EPSILON, "resid_post")
        quantities.append(Quantity("final_norm", STREAM, normed, inputs))
        source = "final_norm"
    tied, axes = model.head is None, ("time", "vocab")
    matrix = "embedding" if tied else "w_u"
    values |= {matrix: _exact(model.head_weight) if tied else _exact(model.head_weight).T, "logits": kept["logits"]}
    quantities.append(Quantity("logits", axes, Linear("U", source, tied), (source, matrix)))
    values["probabilities"] = distribution(kept["logits"])
    quantities.append(Quantity("probabilities", axes, Softmax("logits"), ("logits",)))
    values["greedy"] = distribution(kept["logits"][-1:], Sampling(temperature=0.0)).argmax(dim=-1).double()
    quantities.append(Quantity("greedy", ("choice",), Greedy(), ("probabilities",)))
    for rule, value in rules:
        name, filtered = f"{rule}_{value:g}", Filtered(rule, value)
        values[name] = distribution(kept["logits"][-1:], filtered.sampling())[0]
        quantities.append(Quantity(name, ("vocab",), filtered, ("probabilities",)))
    if beam is not None:
        for name, operation in (("beam", beam), ("beam_probability", replace(beam, probability=True))):
            values[name] = operation()
            quantities.append(Quantity(name, ("choice",), operation, ()))
    return notes.sheet(quantities, values)


def _exact(value: Tensor) -> Tensor:
    return value.detach().cpu().double()
