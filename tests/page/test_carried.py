"""The graph that a page carries computes what PyTorch computes, for every kind of model, name and length."""

import json
import os
from collections.abc import Iterator

import pytest
from browser import needs_node
from pages import content_of, differing, expected, script, traced
from symbols import symbolic_lengths
from variants import TEXT, TOKENIZER, VARIANTS, made

from vitral.page.content import PageContent
from vitral.page.document import parts_of

FULL = os.environ.get("VITRAL_FULL") == "1"
QUICK = ("post", "lstm", "rotary of interleaved pairs", "adaptive")
pytestmark = needs_node


@pytest.fixture(autouse=True, scope="module")
def _symbols() -> Iterator[None]:
    with symbolic_lengths():
        yield


def sentences(context: int) -> list[list[int]]:
    return [[(place * 7 + 3) % 11 for place in range(time)] for time in sorted({1, min(2, context), context})]


@pytest.mark.parametrize("variant", VARIANTS if FULL else QUICK)
def test_a_page_computes_what_pytorch_computes_at_every_length(variant: str) -> None:
    model = made(VARIANTS[variant] if FULL else VARIANTS[variant] | {"num_layers": 1})
    ids = sentences(model.config.context_length)
    (found,) = traced([{"parts": parts_of(content_of(model, TOKENIZER, TEXT)), "sentences": ids}])
    assert isinstance(found, list), found
    for each, values in zip(ids, found, strict=True):
        assert set(model.activation_names) <= values.keys()
        assert differing(values, expected(model, each)) == [], len(each)


@pytest.fixture(scope="module")
def content() -> PageContent:
    return content_of(made({"feed_forward": "gelu"}), TOKENIZER, TEXT)


def test_a_mutant_of_the_graph_is_refused_with_sentence_and_name(content: PageContent) -> None:
    """The seal is right each time: the page trusts no graph, it compares numbers."""
    mutants = {
        "no mask": ("le.Tensor", lambda node: node.__setitem__(0, "full_like"), [1]),
        "other gelu": ("gelu", lambda node: node[1].append("tanh"), []),
        "axes swapped": ("permute", None, []),
        "other epsilon": ("native_layer_norm", lambda node: node[1].__setitem__(4, 0.01), []),
    }
    for name, (operation, change, more) in mutants.items():
        graphs = json.loads(json.dumps(content.graphs))
        nodes = graphs["model"]["nodes"]
        if name == "axes swapped":  # two heads' queries and keys: as if the transposition had been forgotten
            node = next(node for node in nodes if node[0] == "permute" and node[1][1] == [0, 2, 1, 3])
            node[1][1] = [0, 2, 3, 1]
        else:
            node = next(node for node in nodes if node[0] == operation)
            assert change is not None
            change(node)
            node[1] = node[1][: 1 if more else None] + more
        changed = PageContent(content.about, graphs, content.weights, content.checks)
        (found,) = traced([{"parts": parts_of(changed), "sentences": []}])
        assert isinstance(found, dict), name
        reason = found["refused"]
        if name != "axes swapped":  # that one cannot be computed at all
            assert reason["kind"] == "differs", (name, reason)
            assert reason["sentence"], name
            assert reason["name"] in content.about["names"], name


def test_a_mutant_of_the_interpreter_is_refused(content: PageContent) -> None:
    parts = parts_of(content)
    source = script()
    assert traced([{"parts": parts, "sentences": []}], source) == [[]]
    changed = source.replace("Math.sqrt(", "1.001*Math.sqrt(")
    (found,) = traced([{"parts": parts, "sentences": []}], changed)
    assert isinstance(found, dict)
    assert found["refused"]["kind"] == "differs"


@pytest.mark.parametrize("part", ["about", "words", "graph", "weights", "checks", "truth", "seal"])
def test_a_flipped_byte_anywhere_is_named(content: PageContent, part: str) -> None:
    parts = parts_of(content)
    text = parts[part]
    places = range(0, len(text), max(1, len(text) // (200 if FULL else 9)))
    flipped = [text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :] for place in (*places, len(text) - 1)]
    found = traced([{"parts": {**parts, part: each}, "sentences": []} for each in flipped])
    for each in found:
        assert isinstance(each, dict)
        assert each["refused"]["kind"] in ("damaged", "missing"), each
        named = each["refused"]["part"]
        assert named == part or part == "seal"
    if part == "weights":
        assert found[0]["refused"]["tensor"] == content.graphs["constants"][0]["name"]


def test_a_missing_part_is_named(content: PageContent) -> None:
    parts = parts_of(content)
    found = traced([{"parts": {**parts, name: ""}, "sentences": []} for name in parts])
    assert [each["refused"] for each in found] == [{"kind": "missing", "part": name} for name in parts]


def test_sha256_without_the_browsers_own() -> None:
    import hashlib

    from pages import in_page

    texts = ["", "a", "vitral" * 9, "x" * 55, "x" * 56, "x" * 64, "é" * 1000]
    body = """return given.map((text) => Buffer.from(vitralPage.ownSha256(Buffer.from(text))).toString("hex"))"""
    assert in_page(body, texts) == [hashlib.sha256(text.encode()).hexdigest() for text in texts]
