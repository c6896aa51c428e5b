"""The page's marks: glasses that all can tell apart, inks that can be read, files of each, readings that are right."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from browser import as_tensor, in_node, needs_web, plain

from vitral.inspection.lens import contribution_points, lens_logits, stream_points
from vitral.model import ModelConfig, Transformer

pytestmark = [pytest.mark.merge, needs_web]
COLOUR = "page/marks/colour"
COMMON = "aeiouytnshrldv"
"""The letters whose glasses were searched."""

LINEAR = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
# Machado, Oliveira and Fernandes (2009), severity 1, on linear light.
BLINDNESS = {
    "none": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(colour: np.ndarray) -> np.ndarray:
    share = colour / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def oklab(light: np.ndarray) -> np.ndarray:
    return np.cbrt(np.clip(light, 0, None) @ LINEAR.T) @ LAB.T


def luminance(colour: Any) -> float:
    return float(linear(np.array(colour, dtype=float)) @ [0.2126, 0.7152, 0.0722])


def contrast(one: Any, other: Any) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("blindness", BLINDNESS)
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_common_letters_differ_in_every_blindness(blindness: str, theme: str) -> None:
    body = "return [...given.letters].map((each) => vitral.glassOf(each, given.theme));"
    (glasses,) = in_node(body, [{"letters": COMMON, "theme": theme}], COLOUR)
    seen = oklab(linear(np.array(glasses)) @ BLINDNESS[blindness].T)
    nearest = min(np.linalg.norm(one - other) for one, other in itertools.combinations(seen, 2))
    # 0.02 is a difference that is just seen side by side.
    assert nearest > 0.03


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_ink_on_glass_can_be_read_at_every_strength(theme: str) -> None:
    tokens = [*"abcdefghijklmnopqrstuvwxyzABCDEFXYZ0123456789.,;!?-'", " ", "\n", "é", "ß", "ж", "日", "👍", "␣"]
    tokens += [" the", "walking", "Ġof", "▁casa"]
    body = "return [0, 0.1, 0.25, 0.5, 0.75, 0.9, 1].map((amount) => vitral.pane(given.token, amount, given.theme));"
    found = in_node(body, [{"token": token, "theme": theme} for token in tokens], COLOUR)
    worst = min(contrast(np.round(each["fill"]), each["ink"]) for panes in found for each in panes)
    assert worst >= 4.5


def test_surprise_is_the_cross_entropy_of_each_token() -> None:
    torch.manual_seed(1)
    logits, ids = torch.randn(1, 9, 17), torch.randint(17, (9,))
    body = """const made = vitral.surprise(tensors({ logits: given.logits }).logits, given.ids);
    return { losses: told({ shape: [9], data: made.losses }), ranks: [...made.ranks] };"""
    case = {"logits": plain(logits), "ids": ids.tolist()}
    (found,) = in_node(body, [case], "page/compute/readings", "tensors")
    expected = torch.nn.functional.cross_entropy(logits[0, :-1], ids[1:], reduction="none")
    torch.testing.assert_close(as_tensor(found["losses"])[1:].float(), expected)
    above = (logits[0, :-1] > logits[0, :-1].gather(1, ids[1:, None])).sum(1) + 1
    assert found["ranks"] == [0, *above.tolist()]


ATTRIBUTION = """
const made = vitral.attribution(tensors(given.values), given.about, given.position, given.one, given.other);
return { kind: made.kind, total: made.total, terms: made.terms };
"""
VARIANTS: dict[str, dict[str, Any]] = {
    "pre": {},
    "rmsnorm": {"norm_type": "rmsnorm"},
    "none": {"norm": "none"},
    "post": {"norm": "post"},
    "parallel-free": {"feed_forward": "none"},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_contributions_are_those_of_the_weights_and_sum_to_the_difference(variant: str) -> None:
    torch.manual_seed(2)
    config = ModelConfig(num_layers=2, num_heads=2, d_model=12, context_length=7, **VARIANTS[variant])
    model = Transformer(config, vocab_size=11).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    traced = model.trace(torch.randint(11, (1, 7)))
    stream, parts = stream_points(config), contribution_points(config)
    with torch.no_grad():
        lenses = {f"lens.{name}": lens_logits(model, traced[name]) for name in {*stream, *parts}}
    about = {"stream": stream, "contributions": parts, "model": config.plain()}
    values = {name: plain(each) for name, each in {**traced, **lenses}.items() if name in {*stream, *parts, *lenses}}
    position, one, other = 4, 3, 8
    (found,) = in_node(
        ATTRIBUTION,
        [{"values": values, "about": about, "position": position, "one": one, "other": other}],
        "page/compute/readings",
        "tensors",
    )
    logits = traced["logits"][0, position]
    assert found["total"] == pytest.approx(float(logits[one] - logits[other]), abs=1e-4)
    assert math.fsum(term["value"] for term in found["terms"]) == pytest.approx(found["total"], abs=1e-4)
    assert found["kind"] == ("steps" if variant == "post" else "parts")
    if variant == "post":
        return
    norm, last = model.final_norm, traced[stream[-1]][0, position]
    held = held_norm(norm, last)
    head = (model.head_weight[one] - model.head_weight[other]).detach()
    for term in found["terms"]:
        if term["name"] is not None:
            with torch.no_grad():
                expected = float(held(traced[term["name"]][0, position]) @ head)
            assert term["value"] == pytest.approx(expected, abs=2e-3), term["name"]


def held_norm(norm: torch.nn.Module, at: torch.Tensor) -> Any:
    """The norm without its bias, dividing as it does at one vector."""
    weight = getattr(norm, "weight", None)
    if weight is None:
        return lambda vector: vector
    centred = "rms" not in type(norm).__name__.lower()
    spread = (at - at.mean() if centred else at).square().mean()
    epsilon = getattr(norm, "eps", None) or 1e-5
    return lambda vector: weight * (vector - vector.mean() if centred else vector) / (spread + epsilon).sqrt()
