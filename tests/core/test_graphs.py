"""Graphs: each operation in the browser is PyTorch's, and a graph computes what its function computes."""

import math
from typing import Any

import pytest
import torch
from browser import in_node, needs_node, plain, run_graphs, same
from torch import Tensor

from vitral.core.graphs import OPERATIONS, NotInGraphs, any_length, graph_of, graph_with_weights, lstm
from vitral.core.taps import Recorder

pytestmark = [pytest.mark.merge, needs_node]
torch.manual_seed(5)
A, B = torch.randn(2, 3, 5).double(), torch.randn(2, 3, 5).double()
ROW, POSITIVE, WHOLE = torch.randn(5).double(), torch.rand(2, 3, 5).double() + 0.1, torch.arange(-7.0, 8.0).double()
TIES = torch.tensor([[3.0, 1, 3, 2, 1], [0, 0, 0, 0, 0], [-math.inf, 2, math.inf, 2, -1]]).double()
ODD = torch.tensor([0.0, -0.5, 0.5, 1.5, 2.5, -2.5, 7.3, -math.inf, math.inf, math.nan]).double()
TRUTH, OTHER = torch.tensor([True, False, True, False]), torch.tensor([True, True, False, False])
TABLE, IDS = torch.randn(7, 3).double(), torch.tensor([[0, 6], [2, 2]])
INDICES = torch.tensor([[4, 0, 0], [1, 1, 3]])[:, :, None].expand(2, 3, 2).contiguous()

UNARY = (
    *("abs", "atan", "ceil", "cos", "erf", "exp", "expm1", "floor", "isinf", "isnan", "neg", "reciprocal", "relu"),
    *("round", "sigmoid", "sign", "sin", "tan", "tanh", "trunc"),
)
OF_POSITIVE = ("acos", "asin", "log", "log10", "log1p", "log2", "rsqrt", "sqrt")
COMPARED = tuple(f"{name}.{kind}" for name in ("eq", "ge", "gt", "le", "lt", "ne") for kind in ("Scalar", "Tensor"))
CASES: list[tuple[str, list[Any]]] = [
    *((name, [each]) for name in UNARY for each in (A, ODD)),
    *((name, [POSITIVE.clamp(max=1)]) for name in OF_POSITIVE),
    *((name, [TIES, 2.0 if name.endswith("Scalar") else TIES[:, :1]]) for name in COMPARED),
    *(
        (name, [A, B])
        for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "maximum", "minimum", "atan2")
    ),
    *((name, [A, ROW]) for name in ("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "remainder.Tensor")),
    *((name, [A, 1.7]) for name in ("add.Scalar", "sub.Scalar", "mul.Scalar", "div.Scalar", "remainder.Scalar")),
    ("pow.Tensor_Scalar", [POSITIVE, 1.7]),
    *((name, [TRUTH, OTHER]) for name in ("bitwise_and.Tensor", "bitwise_or.Tensor", "logical_and", "logical_or")),
    *((name, [TRUTH]) for name in ("bitwise_not", "logical_not", "any")),
    *(
        (name, [A, [-1, 0], keeps])
        for keeps in (False, True)
        for name in ("amax", "amin", "mean.dim", "sum.dim_IntList")
    ),
    *((name, [TIES, 1, False]) for name in ("argmax", "argmin", "max.dim", "min.dim", "prod.dim_int")),
    *((name, [A]) for name in ("sum", "mean", "clone", "alias")),
    ("sort", [TIES, -1, True]),
    *((name, [A, 1, False]) for name in ("_softmax", "_log_softmax")),
    ("logical_xor", [TRUTH, OTHER]),
    ("any.dim", [TRUTH[None].expand(3, 4), 1, True]),
    ("any.dims", [TRUTH[None].expand(3, 4), [0, 1]]),
    ("pow.Tensor_Tensor", [POSITIVE, B]),
    ("pow.Scalar", [2.0, A]),
    ("div.Tensor_mode", [WHOLE, torch.tensor(3.0).double(), "floor"]),
    ("div.Tensor_mode", [WHOLE, torch.tensor(3.0).double(), "trunc"]),
    ("addmm", [ROW, A[0, :, :3], B[1]]),
    ("bmm", [A, B.transpose(1, 2)]),
    ("mm", [A[0], B[0].T]),
    ("cumsum", [A, 1]),
    ("clamp", [A, -0.3, 0.4]),
    ("gelu", [A]),
    ("leaky_relu", [A, 0.1]),
    ("native_layer_norm", [A, [5], ROW, ROW, 1e-5]),
    ("var.correction", [A, [1]]),
    ("sort.stable", [TIES, True, -1, True]),
    ("topk", [A, 2]),
    ("arange.start_step", [2, 11, 3]),
    ("full", [[2, 3], 1.5]),
    ("full_like", [A, 2]),
    ("fill.Scalar", [A, 2]),
    ("scalar_tensor", [2.5]),
    ("where.self", [A > 0, A, torch.tensor(-math.inf).double()]),
    ("where.self", [A[:, :1] > 0, ROW, B]),
    ("view", [A, [5, -1]]),
    ("permute", [A, [2, 0, -2]]),
    ("expand", [ROW, [4, 2, -1]]),
    ("repeat", [A, [2, 1, 3, 2]]),
    ("flip", [A, [0, -1]]),
    ("cat", [[A, B], -1]),
    ("unsqueeze", [A, -2]),
    ("squeeze.dim", [A[:, :1], 1]),
    ("squeeze.dims", [A[:1, :1], [0, 1, 2]]),
    ("slice.Tensor", [A, 1, -2, 9223372036854775807]),
    ("slice.Tensor", [A, 2, 0, 5, 2]),
    ("select.int", [A, -1, -2]),
    ("split_with_sizes", [A, [2, 3], -1]),
    ("embedding", [TABLE, IDS]),
    ("index.Tensor", [TABLE, [IDS]]),
    ("index.Tensor", [A, [None, torch.tensor([2, 0]), torch.tensor([1, -1])]]),
    ("index.Tensor", [A, [torch.tensor([1, 0]), None, torch.tensor([1, 4])]]),
    ("index.Tensor", [A, [torch.tensor([[1], [0]]), torch.tensor([0, 2])]]),
    ("index_select", [A, 2, torch.tensor([4, 0])]),
    ("gather", [A, 2, INDICES]),
    ("scatter.src", [A, 2, INDICES[:, :, :1], B]),
    ("scatter.value", [A, 2, INDICES, 9.0]),
    ("slice_scatter", [A, B[:, :2], 1, 1, 3]),
    ("select_scatter", [A, ROW[None].expand(3, 5), 0, 1]),
    ("constant_pad_nd", [A, [1, 2, 0, 1], 7.0]),
    ("copy", [A, B]),
]
OF_LENGTHS = {"sym_size.int", "add", "sub", "mul", "floordiv", "mod"}
NOT_OF_TENSORS = {"getitem", "_to_copy", "empty.memory_format", "lstm"} | OF_LENGTHS


def one_node(name: str, given: list[Any]) -> tuple[dict[str, Any], Any]:
    """A graph of one operation, and PyTorch's result."""
    tensors: list[Tensor] = []

    def written(value: Any) -> Any:
        if isinstance(value, Tensor):
            tensors.append(value)
            return {"at": len(tensors) - 1}
        return [written(each) for each in value] if isinstance(value, list) else value

    nodes = [[name, [written(each) for each in given]]]
    packet, _, overload = name.partition(".")
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")
    named = {at.name: value for at, value in zip(operation._schema.arguments, given, strict=False) if at.kwarg_only}
    made = operation(*given[: len(given) - len(named)], **named)
    parts = list(made) if isinstance(made, (tuple, list)) else [made]
    outputs = {"0": len(tensors)}
    if isinstance(made, (tuple, list)):
        outputs = {str(index): len(tensors) + 1 + index for index in range(len(parts))}
        nodes += [["getitem", [{"at": len(tensors)}, index]] for index in range(len(parts))]
    names = [f"x{index}" for index in range(len(tensors))]
    shapes = [list(each.shape) for each in tensors]
    graph = {"inputs": names, "shapes": shapes, "constants": [], "nodes": nodes, "outputs": outputs}
    return {"graph": graph, "inputs": dict(zip(names, tensors, strict=True))}, parts


def test_every_operation_is_that_of_pytorch() -> None:
    (interpreted,) = in_node("return Object.keys(vitral.OPERATIONS)", [0])
    assert {name for name, _ in CASES} | NOT_OF_TENSORS == OPERATIONS == set(interpreted)
    made = [(name, *one_node(name, given)) for name, given in CASES]
    for (name, _, parts), outputs in zip(made, run_graphs([case for _, case, _ in made]), strict=True):
        for index, expected in enumerate(parts):
            same(outputs[str(index)], expected.double(), name)


def test_a_graph_for_any_length_computes_with_lengths_and_has_its_weights_by_name() -> None:
    module = torch.nn.LSTM(5, 4, batch_first=True).double()

    def compute(given, tap) -> None:
        time = given["x"].shape[1]
        hidden = tap("hidden", lstm(given["x"], list(module.parameters())))
        tap("out", hidden.sum() + torch.full(((time + 1) // 2 * 3 - 1, 2 + time % 3), 1.5).double())

    lengths = {"x": {1: any_length("time", 9)}}
    graph, weights = graph_with_weights(compute, {"x": torch.zeros(1, 7, 5).double()}, module, lengths)
    assert graph["shapes"] == [[1, "time", 5]]
    assert weights.keys() == dict(module.named_parameters()).keys()
    assert {node[0] for node in graph["nodes"]} >= OF_LENGTHS
    whole = graph | {"constants": [plain(weights[each["name"]]) for each in graph["constants"]]}
    cases = [{"graph": whole, "inputs": {"x": torch.randn(1, time, 5).double()}} for time in (1, 2, 5, 9)]
    for case, made in zip(cases, run_graphs(cases), strict=True):
        kept = Recorder()
        with torch.no_grad():
            compute(case["inputs"], kept)
            same(made["hidden"], module(case["inputs"]["x"])[0], "lstm")
        for name, expected in kept.kept.items():
            same(made[name], expected, name)


def test_an_edited_value_changes_what_follows_and_nothing_else() -> None:
    def compute(given, tap) -> None:
        first = tap("first", given["x"])
        tap("beside", first * 2)
        tap("last", tap("same", first) + 1)

    graph = graph_of(compute, {"x": torch.zeros(3).double()})
    (made,) = run_graphs([{"graph": graph, "inputs": {"x": torch.arange(3.0).double()}, "edits": {"same": [[1, 7.0]]}}])
    values = {name: value.tolist() for name, value in made.items()}
    assert values == {"first": [0, 1, 2], "beside": [0, 2, 4], "same": [0, 7, 2], "last": [1, 8, 3]}


@pytest.mark.parametrize(
    "compute",
    [
        lambda given, tap: tap("y", torch.linalg.inv(given["x"])),
        lambda given, tap: tap("y", given["x"] * float(given["x"][0, 0])),
        lambda given, tap: tap("y", given["x"] if bool(given["x"].sum() > 0) else -given["x"]),
    ],
)
def test_what_has_no_graph_is_refused_with_its_reason(compute) -> None:
    with pytest.raises(NotInGraphs, match="has no graph: "):
        graph_of(compute, {"x": torch.eye(3).double()})
