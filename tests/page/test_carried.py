"""The graph that a page carries computes what PyTorch computes, for every kind of model, name and length."""

import copy
import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from browser import needs_node
from pages import Carried, differing, expected, in_page, of_variants, traced

from vitral.page.document import asset, parts_of

pytestmark = needs_node


@pytest.mark.parametrize("variant", of_variants("post", "lstm", "rotary of interleaved pairs", "adaptive"))
def test_a_page_computes_what_pytorch_computes_at_every_length(variant: str, carried: Carried) -> None:
    model, content = carried(variant)
    ids = [[(place * 7 + 3) % 11 for place in range(time)] for time in (1, 2, 13)]
    (found,) = traced([{"parts": parts_of(content), "sentences": ids}])
    assert isinstance(found, list), found
    for each, values in zip(ids, found, strict=True):
        assert set(model.activation_names) <= values.keys()
        assert differing(values, expected(model, each)) == [], len(each)


@pytest.mark.merge
def test_a_mutant_of_the_graph_is_refused_with_sentence_and_name(carried: Carried) -> None:
    """The seal is right each time: the page trusts no graph, it compares numbers."""
    _, content = carried("post")

    def mutant(operation: str, change: Callable[[list[Any]], object]) -> dict[str, Any]:
        graphs = copy.deepcopy(content.graphs)
        change(next(node for node in graphs["model"]["nodes"] if node[0] == operation))
        return {"parts": parts_of(replace(content, graphs=graphs)), "sentences": []}

    without_mask = mutant("le.Tensor", lambda node: node.__setitem__(slice(2), ["full_like", [node[1][0], 1]]))
    other_gelu = mutant("gelu", lambda node: node[1].append("tanh"))
    other_epsilon = mutant("native_layer_norm", lambda node: node[1].__setitem__(4, 0.01))
    impossible = mutant("addmm", lambda node: node[1].reverse())
    *found, broken = traced([without_mask, other_gelu, other_epsilon, impossible])
    for each in found:
        assert each["refused"]["kind"] == "differs", each
        assert each["refused"]["sentence"]
        assert each["refused"]["name"] in content.about["names"]
    assert broken.keys() == {"refused"}


@pytest.mark.merge
def test_a_mutant_of_the_interpreter_is_refused(carried: Carried) -> None:
    case = {"parts": parts_of(carried("post")[1]), "sentences": []}
    assert traced([case]) == [[]]
    (found,) = traced([case], asset("page.js").replace("Math.sqrt(", "1.001*Math.sqrt("))
    assert found["refused"]["kind"] == "differs"


@pytest.mark.merge
def test_a_flipped_byte_anywhere_and_a_missing_part_are_named(carried: Carried) -> None:
    _, content = carried("post")
    parts = parts_of(content)
    flips = [(name, place) for name, text in parts.items() for place in range(0, len(text), max(1, len(text) // 9))]

    def flipped(text: str, place: int) -> str:
        return text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]

    changed = [{**parts, name: flipped(parts[name], place)} for name, place in flips]
    changed += [{**parts, name: ""} for name in parts]
    refused = [each["refused"] for each in traced([{"parts": each, "sentences": []} for each in changed])]
    for (name, place), reason in zip(flips, refused, strict=False):
        assert reason["kind"] in ("damaged", "missing"), reason
        assert reason["part"] == name or name == "seal"
        assert (name, place) != ("weights", 0) or reason["tensor"] in {
            each["name"] for each in content.graphs["constants"]
        }
    assert refused[len(flips) :] == [{"kind": "missing", "part": name} for name in parts]


@pytest.mark.merge
def test_sha256_without_the_browsers_own() -> None:
    texts = ["", "a", "vitral" * 9, "x" * 55, "x" * 56, "x" * 64, "é" * 1000]
    body = "return Buffer.from(page.ownSha256(Buffer.from(given))).toString('hex')"
    assert in_page(body, texts) == [hashlib.sha256(text.encode()).hexdigest() for text in texts]
