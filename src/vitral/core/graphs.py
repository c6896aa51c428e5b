"""A computation as a graph of PyTorch's core operations, as plain data.

`torch.export` traces a function of named tensors; `graph_of` writes the result as a dictionary that JSON can hold. The
interpreter in `web/src/graph.ts` runs it in a browser, so a page computes what the function computes. A model's graph
is for sentences of any length and has its weights by name (`graph_with_weights`).
"""

import logging
import math
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import Tensor, nn

from vitral.core.errors import VitralError, first_line
from vitral.core.taps import Recorder, Tap

Plain = dict[str, Any]
Traced = Callable[[Mapping[str, Tensor], Tap], object]
"""A function that passes each of its results to the tap by name, and goes on with the value that the tap returns."""

# fmt: off
OPERATIONS = frozenset(
    (
        "abs", "acos", "add.Tensor", "add.Scalar", "addmm", "alias", "amax", "amin", "any", "any.dim",
        "any.dims", "arange.start_step", "argmax", "argmin", "asin", "atan", "atan2", "bitwise_and.Tensor",
        "bitwise_not", "bitwise_or.Tensor", "bmm", "cat", "ceil", "clamp", "clone", "constant_pad_nd", "copy",
        "cos", "cumsum", "div.Scalar", "div.Tensor", "div.Tensor_mode", "embedding", "empty.memory_format",
        "eq.Scalar", "eq.Tensor", "erf", "exp", "expand", "expm1", "fill.Scalar", "flip", "floor", "full",
        "full_like", "gather", "ge.Scalar", "ge.Tensor", "gelu", "gt.Scalar", "gt.Tensor", "index.Tensor",
        "index_select", "isinf", "isnan", "le.Scalar", "le.Tensor", "leaky_relu", "log", "log10", "log1p",
        "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "lt.Scalar", "lt.Tensor", "max.dim",
        "maximum", "mean", "mean.dim", "min.dim", "minimum", "mm", "mul.Scalar", "mul.Tensor",
        "native_layer_norm", "ne.Scalar", "ne.Tensor", "neg", "permute", "pow.Scalar", "pow.Tensor_Scalar",
        "pow.Tensor_Tensor", "prod.dim_int", "reciprocal", "relu", "remainder.Scalar", "remainder.Tensor",
        "repeat", "round", "rsqrt", "scalar_tensor", "scatter.src", "scatter.value", "select.int",
        "select_scatter", "sigmoid", "sign", "sin", "slice.Tensor", "slice_scatter", "sort", "sort.stable",
        "split_with_sizes", "sqrt", "squeeze.dim", "squeeze.dims", "sub.Scalar", "sub.Tensor", "sum",
        "sum.dim_IntList", "tan", "tanh", "topk", "trunc", "unsqueeze", "var.correction", "view", "where.self",
        "_log_softmax", "_softmax", "_to_copy", "getitem", "lstm",
        "sym_size.int", "add", "sub", "mul", "floordiv", "mod"  # of lengths, which are whole numbers
    )
)
# fmt: on
"""The operations that the interpreter has; it has the same list."""
NOTHING = ("_assert_tensor_metadata", "_assert_scalar", "sym_constrain_range_for_size", "sym_constrain_range")
"""Operations without a result."""
SAME = ("clone", "alias", "detach", "lift_fresh_copy", "detach_copy", "alias_copy")
"""Operations that return their input."""
IGNORED = frozenset(("dtype", "layout", "device", "pin_memory", "memory_format", "non_blocking", "requires_grad"))
"""Arguments that say how numbers are stored; the interpreter has one kind."""


def lstm_of(x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """The hidden states of one LSTM layer that starts with zeros, [batch, time, width], as PyTorch computes them."""
    zero = x.new_zeros(1, x.shape[0], parameters[1].shape[1])
    has_biases = len(parameters) == 4
    operation: Any = torch.ops.aten.lstm.input
    return operation(x, [zero, zero], list(parameters), has_biases, 1, 0.0, False, False, True)[0]


def _like(x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    return torch.empty_like(x)


_LIBRARY: Any = torch.library.Library("vitral", "DEF")
_LIBRARY.define("lstm(Tensor x, Tensor[] parameters) -> Tensor")
_LIBRARY.impl("lstm", lstm_of, "CompositeExplicitAutograd")
_LIBRARY.impl("lstm", _like, "Meta")  # `register_fake` would look through the source of every loaded module


def lstm(x: Tensor, parameters: Sequence[Tensor]) -> Tensor:
    """As `lstm_of`, but one operation of a graph, of any length: PyTorch would write every position out."""
    return cast(Tensor, torch.ops.vitral.lstm(x, list(parameters)))


class NotInGraphs(VitralError):
    """A computation that cannot be written as a graph: an unknown operation, or a decision that depends on numbers."""


class _Marking(Recorder):
    """Notes every value and gives it a place of its own in the graph, so that it can be replaced by name."""

    def __call__(self, name: str, value: Tensor) -> Tensor:
        return super().__call__(name, value.clone())


class _Module(nn.Module):
    """The function as a module, which is what `torch.export` takes; parameters become constants.

    Those of `part` keep their names.
    """

    def __init__(self, function: Traced, names: list[str], part: nn.Module | None = None) -> None:
        super().__init__()
        self.function, self.names, self.part = function, names, part

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        marking = _Marking()
        self.function(inputs, marking)
        self.names[:] = marking.kept
        return marking.kept


def graph_of(function: Traced, inputs: Mapping[str, Tensor]) -> Plain:
    """The graph of a function.

    Args:
        function: calls its second argument, a tap, as `x = tap(name, x)` for each value that has a name.
        inputs: tensors by name; the graph is that of their shapes, whatever their numbers.

    Returns:
        {"inputs": names, "shapes": their shapes, "constants": [{"shape", "data"}], "nodes": [[operation, arguments]],
        "outputs": {name: index}}. Indices count inputs, then constants, then nodes. An argument is a number, true or
        false, null, a text, a list, {"at": index} or {"number": "inf", "-inf" or "nan"}.

    Raises:
        NotInGraphs: the function uses an operation that the interpreter lacks, or decides something by a number.
    """
    graph, values = graph_with_weights(function, inputs, None, {})
    return graph | {"constants": [_constant(value) for value in values.values()]}


def any_length(name: str, most: int, least: int = 1) -> Any:
    """The length of an axis of an input that may be any from `least` to `most`, with its name in the graph's shapes."""
    return torch.export.Dim(name, min=least, max=most)


Lengths = Mapping[str, Mapping[int, Any]]
"""By the name of an input, its axes that have no fixed length, each with `any_length`."""


def graph_with_weights(
    function: Traced, inputs: Mapping[str, Tensor], module: nn.Module | None, lengths: Lengths
) -> tuple[Plain, dict[str, Tensor]]:
    """The graph of a function of a module, for inputs of any length, and the module's tensors by name.

    Args:
        function: as in `graph_of`; it uses the parameters and buffers of `module`.
        inputs: examples of the tensors by name.
        module: the module, if there is one.
        lengths: which axes have any length; an example's should be greater than 2 and like no other of the module.

    Returns:
        The graph as in `graph_of`, but with `{"name", "shape"}` for each constant, and a length's name in the shapes;
        the constants by name, those of the module by the names that it has for them.

    Raises:
        NotInGraphs: as in `graph_of`, or the function does another computation for some of the lengths.
    """
    names: list[str] = []
    shapes: Any = ({name: {**lengths.get(name, {})} for name in inputs},)
    token = _TRACING.set(True)
    try:
        with quietly():
            part = _Module(function, names, module)
            program: Any = torch.export.export(part, (dict(inputs),), dynamic_shapes=shapes, strict=False)
            graph = _decomposed(program)
            if graph is None:
                program = program.run_decompositions()
                graph = program.graph
    # torch.export raises any of these for an operation or a decision that it cannot trace.
    except (VitralError, RuntimeError, ValueError, TypeError, NotImplementedError, AssertionError) as error:
        raise NotInGraphs("the computation has no graph: {reason}", reason=first_line(error)) from None
    finally:
        _TRACING.reset(token)
    writer = _Writer(program, graph, list(inputs))
    written = writer.graph(names)
    for index, name in enumerate(inputs):
        for axis, length in lengths.get(name, {}).items():
            written["shapes"][index][axis] = length.__name__
    return written, writer.constants


def _decomposed(program: Any) -> Any:
    """The program's graph in core operations, as `program.run_decompositions()` makes it, in a fifth of its time.

    One trace with the program's own symbols in the place of numbers, instead of two. None if something is left that
    only PyTorch's own way removes, such as an operation in place.
    """
    from torch._decomp import core_aten_decompositions
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    given = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"]
    modes = [value.fake_mode for value in given if hasattr(value, "fake_mode")]
    if not modes:
        return None
    interpreter: Any = torch.fx.Interpreter(program.graph_module)
    table: Any = core_aten_decompositions()

    def run(*values: Any) -> Any:
        return interpreter.run(*values, enable_io_processing=False)

    with modes[0], enable_python_dispatcher():
        graph = make_fx(run, decomposition_table=table)(*given).graph
    known = {*OPERATIONS, *NOTHING, *SAME}
    operations = {_operation(node) for node in graph.nodes if node.op == "call_function"}
    return graph if operations <= known and not any(node.op == "get_attr" for node in graph.nodes) else None


_TRACING = ContextVar("_TRACING", default=False)


def is_tracing() -> bool:
    """Whether a graph is being made: numbers are not known then, so a check of numbers has to wait.

    The compiler cannot trace a context variable, and makes no such graph.
    """
    return not torch.compiler.is_dynamo_compiling() and _TRACING.get()


@contextmanager
def quietly() -> Generator[None]:
    """No warnings of PyTorch about its own parts, no log of a graph that fails, and no gradients."""
    disabled = logging.root.manager.disable
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        logging.disable(logging.CRITICAL)
        try:
            yield
        finally:
            logging.disable(disabled)


class _Writer:
    """Writes an exported program as plain data."""

    def __init__(self, program: Any, graph: Any, names: list[str]) -> None:
        self.program, self.nodes_of_graph, self.names = program, list(graph.nodes), names
        self.indices: dict[str, int] = {}  # of the graph's nodes
        self.lengths: dict[tuple[int, int], int] = {}  # the index of the length of an axis
        self.nodes: list[list[Any]] = []
        self.constants: dict[str, Tensor] = {}
        self.shapes: list[list[Any]] = []

    def graph(self, names: list[str]) -> Plain:
        nodes = self.nodes_of_graph
        (last,) = (node for node in nodes if node.op == "output")
        self.named = {node.name for node in last.args[0]}
        needed = set(last.all_input_nodes)  # other nodes are checks of lengths
        for node in reversed(nodes):
            if node in needed:
                needed.update(node.all_input_nodes)
        self.placeholders([node for node in nodes if node.op == "placeholder"])
        for node in nodes:
            if node.op == "call_function" and node in needed:
                self.call(node)
        outputs = dict(zip(names, (self.indices[node.name] for node in last.args[0]), strict=True))
        constants = [{"name": name, "shape": [*value.shape]} for name, value in self.constants.items()]
        whole = {"inputs": self.names, "shapes": self.shapes, "constants": constants}
        return whole | {"nodes": self.nodes, "outputs": outputs}

    @property
    def next_index(self) -> int:
        return len(self.names) + len(self.constants) + len(self.nodes)

    def placeholders(self, placeholders: list[Any]) -> None:
        """Inputs have the first places, then the constants: parameters, buffers and other tensors of the function."""
        for node, spec in zip(placeholders, self.program.graph_signature.input_specs, strict=True):
            target = spec.target
            if spec.kind.name == "USER_INPUT":
                self.indices[node.name] = len(self.shapes)
                self.shapes.append(list(node.meta["val"].shape))
            elif target is not None:  # not a token of an operation with effects, which is refused by its name
                known = self.program.state_dict if target in self.program.state_dict else self.program.constants
                self.indices[node.name] = self.next_index
                # One that the function holds itself has a number for a name.
                name = (
                    target.removeprefix("part.") if target.startswith("part.") else f"constants.{len(self.constants)}"
                )
                self.constants[name] = known[target].detach()

    def call(self, node: Any) -> None:
        name = _operation(node)
        if name in SAME and node.name not in self.named:
            self.indices[node.name] = self.indices[node.args[0].name]
            return
        if name == "_to_copy" and not _narrows(node):
            name = "clone"
        if name not in OPERATIONS or (name == "bitwise_not" and node.meta["val"].dtype != torch.bool):
            raise NotInGraphs("the computation has no graph: the operation {name} is not supported", name=name)
        if name == "sym_size.int":  # asked for again and again
            axis = self.indices[node.args[0].name], node.args[1]
            self.indices[node.name] = self.lengths.setdefault(axis, self.next_index)
            if self.indices[node.name] != self.next_index:
                return
        arguments = [self.plain(argument) for argument in _arguments(node)]
        if name == "_to_copy":
            arguments = [arguments[0], "bool" if node.meta["val"].dtype == torch.bool else "int"]
        self.indices[node.name] = self.next_index
        self.nodes.append([name, arguments])

    def plain(self, value: Any) -> Any:
        """An argument as plain data."""
        if isinstance(value, torch.fx.Node):
            return {"at": self.indices[value.name]}
        if isinstance(value, (list, tuple)):
            return [self.plain(each) for each in cast(list[Any], value)]
        if isinstance(value, float) and not math.isfinite(value):
            return {"number": str(value)}
        if value is None or isinstance(value, (int, float, str)):
            return value
        raise NotInGraphs("the computation has no graph: the argument {value} is not supported", value=repr(value))


def _operation(node: Any) -> str:
    """The name of an operation without its library and `.default`: "add.Tensor", "mm"."""
    target: Any = node.target
    if hasattr(target, "_schema"):
        return str(target).removeprefix("aten.").removeprefix("vitral.").removesuffix(".default")
    return str(getattr(target, "__name__", target))


def _arguments(node: Any) -> list[Any]:
    """All arguments in the order of the operation's signature, without those on storage and trailing defaults."""
    schema: Any = getattr(node.target, "_schema", None)
    if schema is None:
        return list(node.args)
    arguments: list[Any] = []
    last = 0
    given = dict(zip((one.name for one in schema.arguments), node.args, strict=False)) | node.kwargs
    for argument in schema.arguments:
        if argument.name not in IGNORED:
            arguments.append(given.get(argument.name, argument.default_value))
            last = len(arguments) if argument.name in given else last
    return arguments[:last]


def _narrows(node: Any) -> bool:
    """Whether a change of type changes numbers: to whole numbers, or to true and false."""
    before, after = node.args[0].meta["val"].dtype, node.meta["val"].dtype
    return before != after and not after.is_floating_point and before != torch.bool


def _constant(value: Tensor) -> Plain:
    numbers: Any = value.flatten()
    data = [float(each) if math.isfinite(each) else str(each) for each in numbers.tolist()]
    return {"shape": list(value.shape), "data": data}
