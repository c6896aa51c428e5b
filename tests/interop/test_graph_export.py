"""A model's own graph: two readers that share no code with its writer compute every named activation of the model."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from browser import as_tensor, in_node, needs_node, plain
from foreign import run_of
from symbols import symbolic_lengths
from torch import Tensor, nn
from variants import BASE, VARIANTS, enlarged, made

from vitral.app.terminal import run as command
from vitral.core.errors import UsageError
from vitral.core.graphs import OPERATIONS
from vitral.core.parts import Kind, register
from vitral.interop import Graph, read_graph
from vitral.interop.model_graphs import graph_of_model
from vitral.model import ModelConfig, Positions, Transformer
from vitral.runs import load_run

FEW = ("lstm", "adaptive")
"""Variants of the merge tier, with one layer."""
CLOSE = 1e-6
"""Of the largest number of an activation."""


@pytest.fixture(autouse=True, scope="module")
def _symbols() -> Iterator[None]:
    with symbolic_lengths():
        yield


def tokens(time: int, vocabulary: int = 9) -> Tensor:
    return (torch.arange(time)[None] * 7 + 3) % vocabulary


def graph_of(model: Transformer) -> Graph:
    document, constants = graph_of_model(model)
    return Graph(json.loads(json.dumps(document)), constants, "")


def require_equal(found: dict[str, Tensor], expected: dict[str, Tensor], close: float) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        finite = value.isfinite()
        assert found[name].shape == value.shape, name
        assert torch.equal(found[name][~finite].to(value.dtype), value[~finite]), name
        largest = float(value[finite].abs().max()) if finite.any() else 0.0
        torch.testing.assert_close(found[name].to(value.dtype), value, rtol=0, atol=close * largest, msg=name)


def lengths(context: int) -> list[int]:
    return sorted({1, 2, 3, context - 1, context} & set(range(1, context + 1)))


def require_the_model(model: Transformer) -> Graph:
    """With numbers of 32 bits close, with numbers of 64 bits as close as the stored weights."""
    graph = graph_of(model)
    assert {node[0] for node in graph.document["nodes"]} <= OPERATIONS
    for time in lengths(model.config.context_length):
        ids = tokens(time, model.vocab_size)
        traced = model.trace(ids)
        assert list(traced) == model.activation_names
        require_equal(graph(ids), traced, CLOSE)
        require_equal(graph(ids, torch.float64), traced, 20 * CLOSE)
    return graph


def test_the_shortest_context_is_no_special_case() -> None:
    config = {**BASE, "num_layers": 1, "context_length": 1, "positions": "rotary", "d_model": 12}
    require_the_model(enlarged(Transformer(ModelConfig.parse(config), 9, seed=1).eval()))


IN_NODE = """
const weights = tensors(given.weights);
const constants = given.graph.constants.map(({ name }) => weights[name]);
const graph = { ...given.graph, constants };
return given.inputs.map((ids) => {
  const made = vitral.run(graph, tensors({ tokens: ids }));
  return Object.fromEntries(Object.entries(made).map(([name, each]) => [name, told(each)]));
});
"""


@pytest.mark.parametrize(
    "variant", [pytest.param(name, marks=() if name in FEW else pytest.mark.full) for name in VARIANTS]
)
@pytest.mark.merge
@needs_node
def test_the_graph_of_every_variant_is_the_model_at_every_length(variant: str) -> None:
    model = made(VARIANTS[variant] | ({"num_layers": 1} if variant in FEW else {}))
    graph = require_the_model(model)
    ids = [tokens(time) for time in lengths(model.config.context_length)]
    weights = {name: plain(value) for name, value in graph.constants.items()}
    given = {"graph": graph.document, "weights": weights, "inputs": [plain(each) for each in ids]}
    (found,) = in_node(IN_NODE, [given])  # the script of pages computes it
    for each, told in zip(ids, found, strict=True):
        numbers = {name: as_tensor(value) for name, value in told.items()}
        require_equal(numbers, model.trace(each), 20 * CLOSE)


class Halves(Positions):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.3))

    def bias(self, time: int, source: int) -> Tensor:
        return -self.slope * torch.arange(source // 2, source // 2 + time)[None, :, None].expand(3, time, source)


class Centred(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * (x - x.mean(-1, keepdim=True)) / (1 + x.abs().amax(-1, keepdim=True))


OWN: dict[str, tuple[Kind, Callable[..., Any], dict[str, Any]]] = {
    "mask": (
        "mask",
        lambda: lambda time, source: torch.ones(time, source).tril(source - time) > 0,
        {"attention": {"mask": "mine"}},
    ),
    "positions": ("positions", Halves, {"positions": "mine"}),
    "norm": ("norm", Centred, {"norm_type": "mine"}),
}


@pytest.mark.merge
@pytest.mark.parametrize("kind", OWN)
def test_own_parts_are_in_the_graph(kind: str) -> None:
    part, factory, changes = OWN[kind]
    register(part, "mine")(factory)
    require_the_model(enlarged(Transformer(ModelConfig.parse({**BASE, "num_layers": 1, **changes}), 9, seed=1).eval()))


class Decides(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain if float(x.sum()) > 0 else x


def test_a_part_that_decides_by_numbers_has_no_graph() -> None:
    register("norm", "mine")(Decides)
    model = Transformer(ModelConfig.parse({**BASE, "num_layers": 1, "norm_type": "mine"}), 9, seed=1)
    with pytest.raises(UsageError, match="--to graph"):
        graph_of_model(model)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    run_of(made("tied"), folder / "run")
    assert command(["export", str(folder / "run"), "--to", "graph", "--out", str(folder / "out")]) == 0
    return folder


def test_an_export_is_proved_and_is_neither_code_nor_a_pickle(written: Path) -> None:
    out = written / "out"
    files = {"graph.json", "model.safetensors", "tokenizer.json", "README.md", "PROOF.json"}
    assert {file.name for file in out.iterdir()} == files
    proof = json.loads((out / "PROOF.json").read_text())
    run = load_run(written / "run")
    assert proof["activation_differences"].keys() == set(run.model.activation_names)
    assert max(proof["activation_differences"].values()) <= CLOSE
    assert proof["relative_difference"] <= CLOSE
    assert proof["equal_greedy_text"]
    graph = read_graph(out)
    assert graph.encode("abc ha") == run.tokenizer.encode("abc ha").tolist()
    assert graph.decode(graph.encode("abc ha")) == "abc ha"
    require_equal(graph([[1, 2, 3]]), run.model.trace(torch.tensor([[1, 2, 3]])), CLOSE)
    held, state = safetensors.torch.load_file(out / "model.safetensors"), run.model.state_dict()
    assert "head.weight" not in held  # it is the embedding
    assert all(torch.equal(held[name], state[name]) for name in set(held) & set(state))


DAMAGE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a later version": lambda document: document.update(version=2),
    "an unknown operation": lambda document: document["nodes"].append(["load_library", []]),
    "another shape": lambda document: document["constants"][0].update(shape=[1, 2]),
    "no logits": lambda document: document["outputs"].pop("logits"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_graph_is_refused_in_one_line(damage: str, written: Path, tmp_path: Path) -> None:
    out = shutil.copytree(written / "out", tmp_path / "out")
    document = json.loads((out / "graph.json").read_text())
    DAMAGE[damage](document)
    (out / "graph.json").write_text(json.dumps(document))
    with pytest.raises(UsageError, match=r"graph\.json"):
        read_graph(out)


@pytest.mark.parametrize("ids", [[[]], [1, 2], [[0], [1]], [[11]], [[-1]], [[0] * 14], [[1.5]], [["a"]]])
def test_what_is_no_sentence_of_the_model_is_refused(ids: Any, written: Path) -> None:
    with pytest.raises(UsageError, match="graph: "):
        read_graph(written / "out")(ids)
