"""A reader of exported graphs: it calls PyTorch's core operations one by one. It does not use `torch.export`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vitral.core.errors import UsageError
from vitral.core.graphs import IGNORED, OPERATIONS, lstm_of
from vitral.data.engines import read_engine
from vitral.interop.foreign import WEIGHTS, read_file, read_json, tensors_of
from vitral.interop.tokenizer_json import DOCUMENT, MOST_TOKENIZER

GRAPH, TOKENS, VERSION = "graph.json", "tokens", 1
MOST_GRAPH = 1 << 26
NUMBERS = {"inf": torch.inf, "-inf": -torch.inf, "nan": torch.nan}
OF_LENGTHS: dict[str, Callable[..., int]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "floordiv": lambda x, y: x // y,
    "mod": lambda x, y: x % y,
    "sym_size.int": lambda x, axis: x.shape[axis],
}
TRUTHS = {"where.self": 1, "bitwise_not": 1, "bitwise_and.Tensor": 2, "bitwise_or.Tensor": 2}
"""Operations whose first arguments, so many, are truth values."""
PLACES = {"embedding": 1, "index.Tensor": 1, "index_select": 2, "gather": 2, "scatter.src": 2, "scatter.value": 2}
"""Operations one of whose arguments, this one, has places of numbers."""


@dataclass(frozen=True)
class Graph:
    """An exported model: its operations, its constants and its tokenizer.

    Attributes:
        document: the content of `graph.json`.
        constants: its constants by name.
        tokenizer: the content of `tokenizer.json`.
    """

    document: Mapping[str, Any]
    constants: Mapping[str, Tensor]
    tokenizer: str

    def encode(self, text: str) -> list[int]:
        """The tokens of a text."""
        return list(read_engine(self.tokenizer).encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return read_engine(self.tokenizer).decode(list(tokens), skip_special_tokens=False)

    def __call__(
        self, tokens: Tensor | Sequence[Sequence[int]], dtype: torch.dtype = torch.float32
    ) -> dict[str, Tensor]:
        """Every named activation, among them "logits" [1, time, vocab].

        Args:
            tokens: one sentence, [1, time].
            dtype: with which numbers it is computed.

        Raises:
            UsageError: it is not one sentence of 1 … context tokens of the vocabulary.
        """
        most, vocabulary = self.document["most"]["time"], self.document["vocab_size"]
        try:
            (sentence,) = torch.as_tensor(tokens).tolist()
            is_one = 1 <= len(sentence) <= most and all(type(token) is int for token in sentence)
            is_known = is_one and 0 <= min(sentence) <= max(sentence) < vocabulary
        except (TypeError, ValueError, RuntimeError, OverflowError):
            is_known = False
        if not is_known:
            raise UsageError(
                "graph: the tokens are not one sentence, such as [[1, 2, 3]], of 1 … {most} whole numbers below {size}",
                most=most,
                size=vocabulary,
            )
        values: list[Any] = [torch.as_tensor(tokens).to(dtype)]
        values += [self.constants[each["name"]].to(dtype) for each in self.document["constants"]]
        with torch.inference_mode():
            for name, arguments in self.document["nodes"]:
                values.append(_result(name, [_argument(each, values) for each in arguments], dtype))
        return {name: values[index] for name, index in self.document["outputs"].items()}


def read_graph(folder: str | Path) -> Graph:
    """The graph in a folder that `vitral export --to graph` wrote.

    Raises:
        UsageError: a file is missing or damaged, or the graph is of a later version.
    """
    folder = Path(folder)
    path = folder / GRAPH
    document = read_json(read_file(path, MOST_GRAPH), path)
    if document.get("version") != VERSION:
        raise UsageError(
            "{path}: version {version} of the format; this Vitral reads version {known}",
            path=path,
            version=repr(document.get("version")),
            known=VERSION,
        )
    constants, _digest = tensors_of(folder / WEIGHTS)
    if not _is_whole(document, constants):
        raise UsageError("{path}: not a whole graph, or its constants are others", path=path)
    tokenizer = read_file(folder / DOCUMENT, MOST_TOKENIZER)
    return Graph(document, constants, tokenizer.decode("utf-8", errors="replace"))


def _is_whole(document: Mapping[str, Any], constants: Mapping[str, Tensor]) -> bool:
    """Whether every operation is known, and the constants are those of the weights."""
    try:
        shapes = {one["name"]: one["shape"] for one in document["constants"]}
        return (
            document["inputs"] == [TOKENS]
            and shapes == {name: list(constant.shape) for name, constant in constants.items()}
            and all(name in OPERATIONS for name, _given in document["nodes"])
            and "logits" in document["outputs"]
            and isinstance(document["most"]["time"] + document["vocab_size"], int)
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return False


def _argument(given: Any, values: list[Any]) -> Any:
    if isinstance(given, list):
        return [_argument(each, values) for each in given]
    if isinstance(given, dict):
        return values[given["at"]] if "at" in given else NUMBERS[given["number"]]
    return given


def _result(name: str, arguments: list[Any], dtype: torch.dtype) -> Any:
    """One operation. Every number is of one type, 1 is true and 0 is false, as the format has it."""
    if name in OF_LENGTHS:
        return OF_LENGTHS[name](*arguments)
    if name == "getitem":
        return arguments[0][arguments[1]]
    if name == "lstm":
        return lstm_of(*arguments)
    if name == "view":  # of numbers in rows; ATen's would want them so in memory
        return arguments[0].reshape(arguments[1])
    if name == "_to_copy":
        value, kind = arguments
        return (value != 0 if kind == "bool" else value.trunc()).to(dtype)
    arguments[: TRUTHS.get(name, 0)] = [each != 0 for each in arguments[: TRUTHS.get(name, 0)]]
    if name in PLACES:
        arguments[PLACES[name]] = _as_places(arguments[PLACES[name]])
    packet, _, overload = name.partition(".")
    operation: Any = getattr(getattr(torch.ops.aten, packet), overload or "default")
    kinds = [argument.name for argument in operation._schema.arguments]
    names = [each for each in kinds if each not in IGNORED]
    given = dict(zip(names, arguments, strict=False))
    if "dtype" in kinds and not any(isinstance(each, Tensor) for each in arguments):
        given["dtype"] = dtype
    made = operation(**given)
    return made.to(dtype) if isinstance(made, Tensor) else [each.to(dtype) for each in made]


def _as_places(value: Any) -> Any:
    return [_as_places(each) for each in value] if isinstance(value, list) else None if value is None else value.long()
