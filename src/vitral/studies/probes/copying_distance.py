"""Copying over growing distances: how far back a model can fetch something, under each mask.

A sequence is a random string, filler that is random too, a token that asks, and the string again:

    s₁ … s_k  f f f … f  ASK  s₁ … s_k

The answer to each asked token stands `distance` places before it and nowhere else, so whoever names it has fetched it
from there; by chance one of `SYMBOLS` is right. A small model of its own is trained for each mask and each distance,
all on the same sequences, and measured on fresh ones.

Causal, prefix and window models predict each next token of the answer; the prefix is the string, the filler and ASK.
The bidirectional model is trained to fill blanks: the whole answer is blank. A window of w reaches w - 1 places back
in a layer, and so layers · (w - 1) in all: it is there to show what the measure says when sight is too short.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from vitral.core.streams import numpy_stream
from vitral.figures.lines import Axis, Line, line_plot
from vitral.figures.margin import Reference
from vitral.figures.sections import Heading, Paragraph, Table
from vitral.inspection import wilson
from vitral.model import ModelConfig, Transformer
from vitral.studies.probes.protocol import BudgetName, Exhibit, Plain, Plot, Setting, StudyProbe
from vitral.studies.verdict import Finding

if TYPE_CHECKING:
    from vitral.studies.results import StudyResult

NAME = "copying"
SYMBOLS, LENGTH = 8, 4
BLANK, ASK, FIRST = 0, 1, 2
VOCAB = FIRST + SYMBOLS
LAYERS, WINDOW = 2, 16
REACH = LAYERS * (WINDOW - 1)
"""Places back that a window model of so many layers can see."""
DISTANCES: Mapping[BudgetName, tuple[int, ...]] = {
    "quick": (8, 16, 32, 96),
    "standard": (8, 16, 32, 64, 128, 256),
    "full": (8, 16, 32, 64, 128, 256, 512),
}
STEPS: Mapping[BudgetName, int] = {"quick": 150, "standard": 250, "full": 600}
BATCH, WARMUP, PEAK, CLIP = 32, 30, 3e-3, 1.0
TESTED = 256
"""Fresh sequences a model is measured on."""
COPIES, CHANCE = 0.9, 1 / SYMBOLS
"""A model copies at an accuracy from COPIES on; it does not where chance lies within its interval."""
TITLES = {
    "causal": "causal",
    "bidirectional": "bidirectional (fills blanks)",
    "prefix": "prefix",
    "window": f"causal, window of {WINDOW}",
}


def measure(setting: Setting) -> Plain:
    """Accuracy of every mask at every distance, and the loss its training ended with."""
    distances, steps, seed = DISTANCES[setting.budget], STEPS[setting.budget], setting.seed
    found = {mask: [trained_accuracy(mask, distance, steps, seed) for distance in distances] for mask in TITLES}
    return {
        "distances": list(distances),
        "steps": steps,
        "seed": seed,
        "answers": TESTED * LENGTH,
        "reach": REACH,
        "accuracy": {mask: [right for right, _ in pairs] for mask, pairs in found.items()},
        "loss": {mask: [loss for _, loss in pairs] for mask, pairs in found.items()},
    }


def sequences(distance: int, count: int, seed: int, *index: int | str) -> Int[Tensor, "count time"]:
    """Sequences of distance + `LENGTH` tokens; token i of the answer is the token `distance` places before it."""
    stream = numpy_stream(seed, NAME, distance, *index)
    tokens = FIRST + stream.integers(SYMBOLS, size=(count, distance + LENGTH))
    tokens[:, distance - 1] = ASK
    tokens[:, distance:] = tokens[:, :LENGTH]
    return torch.from_numpy(tokens)


def build(mask: str, distance: int, seed: int) -> Transformer:
    """A small model with rotary positions, so that one rule, "so many places back", serves every position."""
    masks: dict[str, Any] = {
        "prefix": {"name": "prefix", "length": distance},
        "window": {"name": "window", "size": WINDOW},
    }
    config = {
        "context_length": distance + LENGTH,
        "d_model": 32,
        "d_ff": 64,
        "num_heads": 2,
        "num_layers": LAYERS,
        "positions": "rotary",
        "attention": {"mask": masks.get(mask, mask)},
    }
    return Transformer(ModelConfig.parse(config), VOCAB, seed=seed)


def answer_logits(model: Transformer, tokens: Int[Tensor, "rows time"]) -> Float[Tensor, "rows answer vocab"]:
    """The logits of the answer's tokens: at blanks where the mask shows everything, else at the position before each.

    So what is asked for is never among what is seen.
    """
    answer = tokens.shape[1] - LENGTH
    if model.mask is not None and model.mask.first_target() is None:
        hidden = tokens.clone()
        hidden[:, answer:] = BLANK
        return model(hidden)[:, answer:]
    return model(tokens[:, :-1])[:, answer - 1 :]


def trained_accuracy(mask: str, distance: int, steps: int, seed: int) -> tuple[float, float]:
    """Train a model on fresh sequences; gives its accuracy on others, and the last steps' mean loss."""
    model = build(mask, distance, seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK, betas=(0.9, 0.98), weight_decay=0.0)
    losses: list[float] = []
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = PEAK * min(1.0, (step + 1) / WARMUP)
        tokens = sequences(distance, BATCH, seed, "training", step)
        loss = functional.cross_entropy(answer_logits(model, tokens).flatten(0, 1), tokens[:, distance:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(float(loss.detach()))
    tokens = sequences(distance, TESTED, seed, "test")
    with torch.inference_mode():
        right = answer_logits(model.eval(), tokens).argmax(dim=-1) == tokens[:, distance:]
    last = losses[-10:]
    return float(right.double().mean()), sum(last) / len(last)


def show(result: "StudyResult", measured: Plain) -> Exhibit:
    """Accuracy against distance, a table, and how far each mask copies."""
    if "accuracy" not in measured:
        return Exhibit()
    distances, accuracy = measured["distances"], measured["accuracy"]
    lines = []
    for mask, values in accuracy.items():
        ends = [_interval(value, measured) for value in values]
        lines.append(Line(TITLES[mask], distances, values, [low for low, _ in ends], [high for _, high in ends]))
    figure = line_plot(
        lines,
        Axis("distance of the answer (tokens back)", log=True, ticks=distances),
        Axis("answers that are right (share)"),
        references=[Reference("chance", CHANCE)],
        title="Copying over a distance",
    )
    rows = tuple((TITLES[mask], *(f"{value:.3f}" for value in values)) for mask, values in accuracy.items())
    findings = tuple(_finding(mask, measured) for mask in accuracy)
    about = (
        f"A random string of {LENGTH} of {SYMBOLS} symbols, random filler, and the string asked for again. For each "
        f"mask and distance one model of {LAYERS} layers (d_model 32, rotary positions) is trained once, from seed "
        f"{measured['seed']}, for {measured['steps']} steps of {BATCH} sequences, and measured on "
        f"{measured['answers']:,} answers of fresh ones. Bands are 95% intervals of these answers; another training "
        "might end elsewhere. "
        f"The window of {WINDOW} reaches {measured['reach']} tokens back through {LAYERS} layers: it is the control."
    )
    caption = (
        "Share of right answers against how far back the answer stands, for a small model trained at each distance. "
        "One training each. At chance the answer was not found: because the mask hides it, or for want of training."
    )
    return Exhibit(
        sections=(
            Heading("Copying over growing distances", 3),
            Paragraph(about),
            Plot(figure, "copying-by-distance", caption, " ".join(finding.text for finding in findings)),
            Table(
                "Share of right answers by distance",
                ("mask", *(f"{distance} back" for distance in distances)),
                rows,
            ),
        ),
        findings=findings,
    )


def _interval(share: float, measured: Plain) -> tuple[float, float]:
    return wilson(share, measured["answers"])


def _finding(mask: str, measured: Plain) -> "Finding":
    """How far the mask copies (accuracy from `COPIES` on), and whether that is what its sight allows."""
    distances, values = measured["distances"], measured["accuracy"][mask]
    copied = [distance for distance, value in zip(distances, values, strict=True) if value >= COPIES]
    rest = [pair for pair in zip(distances, values, strict=True) if pair[1] < COPIES]
    within = [distance for distance in distances if mask != "window" or distance <= measured["reach"]]
    chance = [distance for distance, value in rest if _interval(value, measured)[0] <= CHANCE]
    done = f"copies from {_listed(copied)} tokens back" if copied else "copies at no distance"
    parts = [f"{TITLES[mask][:1].upper()}{TITLES[mask][1:]}: {done} (accuracy at least {COPIES:g})"]
    if rest:
        parts.append("; ".join(f"{value:.2f} at {distance}" for distance, value in rest))
    if chance:
        parts.append(f"no better than chance ({CHANCE:.3f}) at {_listed(chance)}")
    missing = [distance for distance in within if distance not in copied]
    beyond = [distance for distance in copied if distance not in within]
    if mask == "window":
        parts.append(f"its layers reach {measured['reach']} tokens back")
    if beyond:
        parts.append("that is further than it can see, so something leaks: trust nothing of this measure")
    elif missing:
        steps = measured["steps"]
        parts.append(f"the mask does not hide the answer at {_listed(missing)}, yet it was not found in {steps} steps")
    return Finding(NAME, "", "; ".join(parts) + ".", holds=not missing and not beyond)


def _listed(numbers: list[int]) -> str:
    """Numbers in a sentence.

    >>> _listed([8, 16, 32])
    '8, 16 and 32'
    """
    texts = [str(number) for number in numbers]
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


COPYING = StudyProbe(NAME, measure, show, seconds={"quick": 22, "standard": 120, "full": 400})
