"""The activations of a batch of texts, and the gradient of the loss with respect to them.

Texts of one length, with sources of one length, are one forward pass, so that nothing is computed of padding. Where
texts or sources differ in length, what is behind the end of a shorter one is NaN.
"""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn import functional

from vitral.core.errors import UsageError
from vitral.core.names import aliases, names_of
from vitral.core.taps import SILENT, InTurn, Recorder, Tap
from vitral.inspection.targets import UNSCORED, text_targets
from vitral.model import Transformer
from vitral.model.stack import PADDING


class Activations(dict[str, Tensor]):
    """Activations by their names, each [batch, ...]; TransformerLens' names find them, too, as `["pattern", 0]` does.

    Attributes:
        tokens: the ids, [batch, time]; -1 behind the end of a shorter text.
        source: of an encoder-decoder, the ids that its encoder read, [batch, source], as `tokens`; else None.
        gradients: of `loss` with respect to each activation, by the same names; empty if nobody asked.
        loss: the mean over all next tokens of the batch, in nats per token; NaN if nobody asked.
        blocks: how many the model has; `["resid_post", -1]` is of the last.
    """

    tokens: Int[Tensor, "batch time"]
    source: Int[Tensor, "batch source"] | None = None
    gradients: "Activations"
    loss: float = float("nan")
    blocks: int = 0

    def __repr__(self) -> str:
        """A line for each activation: its name and shape."""
        return "\n".join(f"{name}  {list(value.shape)}" for name, value in self.items())

    def __getitem__(self, name: str | tuple[str, int], /) -> Tensor:
        """An activation by its name, or by that of TransformerLens.

        Raises:
            UsageError: there is none.
        """
        if not self:
            raise UsageError("nothing is recorded here; for gradients, run.cache(..., gradients=True)")
        if isinstance(name, tuple):
            block, step = f"blocks.{name[1] + self.blocks * (name[1] < 0)}.", f".{name[0]}"
            names = [own for theirs, own in aliases(self).items() if theirs.startswith(block) and theirs.endswith(step)]
            name = names[0] if names else block[:-1] + step
        return super().__getitem__(names_of(name, list(self))[0])


class _Differentiated(Recorder):
    """A recorder of what gradients are taken of, constants included."""

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return super().__call__(name, value if value.requires_grad else value.detach().requires_grad_())


def record(
    model: Transformer,
    rows: Sequence[Int[Tensor, " _"]],
    names: str | Sequence[str] | None = None,
    *,
    sources: Sequence[Int[Tensor, " _"]] = (),
    tap: Callable[..., Tap] = lambda time, source: SILENT,
    gradients: bool = False,
) -> Activations:
    """The activations of texts.

    Args:
        model: in evaluation mode.
        rows: the ids of each text.
        names: as `vitral.core.names.names_of` understands them; all if None.
        sources: of an encoder-decoder, the ids that its encoder reads beside each text.
        tap: makes what changes activations of texts of so many tokens, read beside these sources.
        gradients: whether the loss and its gradients are wanted; a model of next tokens only.

    Raises:
        UsageError: no text; one without tokens, or longer than the context; an unknown name; no token to predict;
            sources that are missing, too many or that nothing reads.
    """
    wanted = model.activation_names if names is None else names_of(names, model.activation_names)
    most, read = model.config.context_length, sources or rows
    if len(read) != len(rows):
        raise UsageError(
            "source: {sources:,} given, and {texts:,} needed: one for each text", sources=len(read), texts=len(rows)
        )
    lengths = list(zip(map(len, rows), map(len, read), strict=True))
    if wrong := [n for n, _ in lengths if not 1 <= n <= most] or [0] * (not rows):
        raise UsageError("the text has {n:,} tokens; the model reads 1 to {most:,}", n=wrong[0], most=most)
    groups = [[at for at, each in enumerate(lengths) if each == one] for one in dict.fromkeys(lengths)]
    batches, read = ([torch.stack([each[at] for at in rows_at]) for rows_at in groups] for each in (rows, read))
    targets = [text_targets(model, batch).targets for batch in batches]
    count = sum(int((each != UNSCORED).sum()) for each in targets)
    if gradients and not count:
        raise UsageError("loss: there is no next token to predict; give a longer text")
    recorded, slopes, total = list[dict[str, Tensor]](), list[dict[str, Tensor]](), 0.0
    for batch, other, target in zip(batches, read, targets, strict=True):
        recorder, source = (_Differentiated if gradients else Recorder)(wanted), other if sources else None
        with torch.set_grad_enabled(gradients):
            logits = model(batch, source=source, tap=InTurn(tap(batch.shape[1], source=source), recorder))
            if gradients:
                exact = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, 1)
                loss = functional.cross_entropy(exact, target.flatten(), reduction="sum") / count
                total += float(loss.detach())
                each = list(recorder.kept.values())
                taken = torch.autograd.grad(loss, each, allow_unused=True, materialize_grads=True) if each else ()
                slopes.append(dict(zip(recorder.kept, taken, strict=True)))
            recorded.append({name: value.detach() for name, value in recorder.kept.items()})
    made, made.gradients = _together(groups, recorded), _together(groups, slopes)
    made.blocks = made.gradients.blocks = model.config.num_layers
    made.tokens, made.source = _stacked(groups, batches, PADDING), _stacked(groups, read, PADDING) if sources else None
    if gradients:
        made.loss = total
    return made


def _together(groups: Sequence[list[int]], recorded: Sequence[dict[str, Tensor]]) -> Activations:
    names = recorded[0] if recorded else ()
    return Activations({name: _stacked(groups, [each[name] for each in recorded]) for name in names})


def _stacked(groups: Sequence[list[int]], values: Sequence[Tensor], filler: float | int = float("nan")) -> Tensor:
    """The rows of all groups in the order of the texts; what a shorter one has less of is `filler`."""
    if len(values) == 1:
        return values[0]
    sizes = [max(sizes) for sizes in zip(*(value.shape[1:] for value in values), strict=True)]
    made = values[0].new_full((sum(map(len, groups)), *sizes), filler)
    for rows_at, value in zip(groups, values, strict=True):
        made[(torch.tensor(rows_at), *map(slice, value.shape[1:]))] = value
    return made
