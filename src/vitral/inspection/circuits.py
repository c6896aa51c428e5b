"""The matrices of a head's two circuits, and a logit as a sum over the parts of a model.

A head reads the stream and adds to it (Elhage et al. 2021, *A Mathematical Framework for Transformer Circuits*): with
x_q and x_k the normalised streams of a query and a key, its score without biases, positions and scale is x_q W_QK x_kᵀ,
and what it carries from the key to the query's stream is x_k W_OV, times the weight.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitral.attention.multihead import head_matrices
from vitral.core.errors import UsageError
from vitral.data import Tokenizer
from vitral.inspection.lens import contribution_points, stream_points
from vitral.inspection.numbers import PlainResult
from vitral.inspection.targets import text_tokens
from vitral.model import Transformer

MOST_APART = 1e-3
"""Of the sum of all parts and the logit, relative to the largest part: more than rounding, where a part is no sum."""


def head_circuits(
    model: Transformer, layer: int, head: int
) -> tuple[Float[Tensor, "d_model d_model"], Float[Tensor, "d_model d_model"]]:
    """W_QK = W_Q W_Kᵀ and W_OV = W_V W_O of a head, detached; a group of heads shares W_K and W_V.

    Raises:
        UsageError: the model has no attention, no such layer, or no such head.
    """
    if not 0 <= layer < len(model.blocks):
        raise UsageError("layer: the layers are 0 to {last}, not {layer}", last=len(model.blocks) - 1, layer=layer)
    attention: Any = model.blocks[layer].attn
    if attention is None:
        raise UsageError("layer: this model has no attention")
    if not 0 <= head < attention.num_heads:
        raise UsageError("head: the heads are 0 to {last}, not {head}", last=attention.num_heads - 1, head=head)
    kept, shared = head_matrices(attention), head * attention.num_kv_heads // attention.num_heads
    w_o = attention.out_proj.weight.T.unflatten(0, (attention.num_heads, -1))[head]
    return (kept["w_q"][head] @ kept["w_k"][shared].T).detach(), (kept["w_v"][shared] @ w_o).detach()


class Attribution(PlainResult):
    """A logit as a sum over the parts of a model; see `attribute_logit`.

    Attributes:
        found: as plain data: `text`; `token` and `other`, their labels, `other` None if there is none; `position`;
            `logit`, of the token, or the difference to that of the other; `parts`, each a `part` and its `value`.
    """

    def records(self) -> list[dict[str, Any]]:
        """The parts, one row for each."""
        return self.found["parts"]

    def __str__(self) -> str:
        """The parts, the largest first, and their sum."""
        rows = [(one["value"], one["part"]) for one in sorted(self.records(), key=lambda one: -abs(one["value"]))]
        return "\n".join(f"{value:+9.3f}  {part}" for value, part in [*rows, (self.found["logit"], "=")])


def attribute_logit(
    model: Transformer,
    tokenizer: Tokenizer,
    text: str,
    token: str | int | None = None,
    *,
    other: str | int | None = None,
    position: int = -1,
) -> Attribution:
    """Direct logit attribution: what each part adds to a logit, or to the difference of two.

    Parts are the embedding (with the positions added to it), each head, each feed-forward or LSTM, and biases. Each
    norm on the way is frozen: its mean and its spread are those of this pass, so that it is a linear map and the parts
    add up to the logit. What a part changes in later parts is theirs, not its own.

    Args:
        model: in evaluation mode.
        tokenizer: the model's.
        text: what it reads.
        token: whose logit; a text that is one token, or an id; the likeliest if None.
        other: subtract the logit of this one.
        position: at which the logits are read.

    Raises:
        UsageError: a text that the model cannot read, no such position, no single token, or a model whose logits are no
            such sum: one with parts of its own kind or a transform before the head.
    """
    tokens = text_tokens(model, tokenizer, text)
    if not -tokens.shape[1] <= position < tokens.shape[1]:
        last = tokens.shape[1] - 1
        raise UsageError("attribution: the positions are 0 to {last}, not {position}", last=last, position=position)
    points = stream_points(model.config)
    names = [
        one for one in model.activation_names if one in (*points, "logits") or one.endswith((".z", ".out", "_sum"))
    ]
    kept = {name: value[0, ..., position, :].double() for name, value in model.trace(tokens, names).items()}
    logits, chosen = kept["logits"], [] if token is None else [_token(tokenizer, token)]
    chosen = [*(chosen or [int(logits.argmax())]), *([] if other is None else [_token(tokenizer, other)])]
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64, device=logits.device)[: len(chosen)]
    logit, row = float(signs @ logits[chosen]), signs @ model.head_weight.detach()[chosen].double()
    values = {name: float(vector @ row) for name, vector in _parts(model, points, kept).items()}
    if model.head_bias is not None:
        values["head.bias"] = float(signs @ model.head_bias.detach()[chosen].double())
    if abs(sum(values.values()) - logit) > MOST_APART * max(map(abs, [1.0, *values.values()])):
        raise UsageError(
            "attribution: the parts of this model do not add up to its logits: a hook, or a part of its own kind, "
            "changes them on the way"
        )
    labels = [*map(tokenizer.label, chosen), None]
    about = {"text": text, "token": labels[0], "other": labels[1], "position": position % tokens.shape[1]}
    parts = [{"part": name, "value": value} for name, value in values.items()]
    return Attribution({**about, "logit": logit, "parts": parts})


def _token(tokenizer: Tokenizer, given: str | int) -> int:
    ids = [given] if isinstance(given, int) else tokenizer.encode(given).tolist()
    if len(ids) != 1 or not 0 <= ids[0] < tokenizer.vocab_size:
        raise UsageError("attribution: {token!r} is not one token of the vocabulary", token=given)
    return int(ids[0])


def _parts(model: Transformer, points: list[str], kept: dict[str, Tensor]) -> dict[str, Tensor]:
    """The last norm's output at one position, as a sum of vectors by the name of what adds each."""
    parts, made = {points[0]: kept[points[0]]}, contribution_points(model.config)
    for at in made:
        _blocks, layer, name, _out = at.split(".")
        block: Any = model.blocks[int(layer)]
        new = {at: kept[at]}
        if name == "attn":
            projection, z = block.attn.out_proj, kept[f"{at[:-3]}z"]
            weights = projection.weight.detach().double().unflatten(1, z.shape).unbind(1)
            new = {f"{at[:-3]}z[{head}]": weight @ z[head] for head, weight in enumerate(weights)}
            new |= {} if projection.bias is None else {f"{at}.bias": projection.bias.detach().double()}
        parts = parts | new if block.residual else new
        if block.norm_placement == "post":
            norm = f"{at.removesuffix('.out')}_norm"
            parts = _frozen(getattr(block, norm.rpartition(".")[2]), kept[norm[:-4] + "sum"], parts, norm)
    return _frozen(model.final_norm, kept[points[-1]], parts, "final_norm")


def _frozen(norm: nn.Module, x: Tensor, parts: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    """Each part after the linear map that a norm is at x, and the norm's bias."""
    if isinstance(norm, nn.LayerNorm):
        spread = (x.var(unbiased=False) + norm.eps).sqrt()
        parts = {one: (part - part.mean()) / spread for one, part in parts.items()}
    elif isinstance(norm, nn.RMSNorm):
        dtype = torch.float32 if norm.weight is None else norm.weight.dtype
        eps = torch.finfo(dtype).eps if norm.eps is None else norm.eps
        parts = {one: part / (x.square().mean() + eps).sqrt() for one, part in parts.items()}
    elif not isinstance(norm, nn.Identity):
        raise UsageError("attribution: {name} is of its own kind, and no linear map is known for it", name=name)
    else:
        return parts
    if norm.weight is not None:
        parts = {one: part * norm.weight.detach() for one, part in parts.items()}
    bias = getattr(norm, "bias", None)
    return parts if bias is None else parts | {f"{name}.bias": bias.detach().double()}
