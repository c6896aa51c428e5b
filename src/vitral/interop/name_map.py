"""Safetensors of any GPT, with a map of names of the user's: a TOML file with the model and its tensors."""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from torch import Tensor

from vitral.core.config import Config, nearest, read_toml
from vitral.core.errors import UsageError
from vitral.core.files import sha256
from vitral.interop.foreign import read_file, require_fit, require_writable, tensors_in, tensors_of
from vitral.interop.forms.torch_nn import attention_rules, layer_rules
from vitral.interop.imported import Imported
from vitral.interop.rewrites import model_config
from vitral.interop.rules import Rule, imported, packed, same, transposed
from vitral.interop.token_files import tokenizer_from
from vitral.model import ModelConfig, parameter_table

SAID = ("context_length", "d_model", "num_layers", "num_heads", "norm", "feed_forward")
"""Keys of the model that a map must have: names and shapes do not show all of them."""
LAYER, HEAD_NUMBER = "{layer}", "{head}"
HEAD = "head.weight"
PACKED = re.compile(r"blocks\.\{layer\}\.attn\.in_proj(\.weight|\.bias)?")
PARTS = ("weight", "bias")
MOST_MAP = 1 << 20
Order = Annotated[str, Field(pattern="^(qkv|qvk|kqv|kvq|vqk|vkq)$")]


class Place(Config):
    """Where a tensor of ours is among theirs.

    Attributes:
        name: the name of their tensor; with a list, of queries, keys and values. {layer} and {head} are numbers from 0.
        transpose: whether they store the matrix as [in, out].
        order: the order of queries, keys and values, "qkv" for ours.
        by: "block" if all queries lie together, "head" if the rows of each head do.
        like: a module of torch whose tensors are all of the block's or of its attention's.
    """

    name: str | Annotated[tuple[str, ...], Field(strict=False, min_length=3, max_length=3)]
    transpose: bool = False
    order: Order = "qkv"
    by: Literal["block", "head"] = "block"
    like: Literal["torch.nn.TransformerEncoderLayer", "torch.nn.MultiheadAttention"] | None = None


class NameMap(Config):
    """A map of names.

    Attributes:
        model: Vitral's configuration of the model.
        names: our tensors, or modules with weight and bias, and where they are.
        ignored: patterns of names that are no weights, such as "*.mask".
    """

    model: dict[str, Any]
    names: dict[str, Any]
    ignored: Annotated[tuple[str, ...], Field(strict=False)] = ()


def read_named(source: Path, names: Path, *, tokenizer: str | Path | None = None, hub: Any = None) -> Imported:
    """The model in safetensors, by a map of names.

    Args:
        source: a safetensors file, or a folder with `model.safetensors`.
        names: the map (`NameMap`), a TOML file.
        tokenizer: what `tokenizer_from` takes; by default that of the folder.
        hub: stands in for the package `huggingface_hub`.

    Raises:
        UsageError: a file cannot be read, a name of the map is not ours or has no tensor, a tensor has no place, or
            the shapes do not fit.
    """
    where = str(names)
    raw, said = read_file(names, MOST_MAP), read_toml(names)
    read = NameMap.parse(said, where)
    require_writable(said, names)
    missing = next((key for key in SAID if key not in read.model), None)
    if missing is not None:
        raise UsageError("{where}: model.{key}: missing; the tensors do not show it", where=where, key=missing)
    config = model_config(read.model, f"{where}: model")
    theirs, files = _tensors(source)
    _require_layers(read, config, theirs, where)
    rules = _whole_rules(read, config, where)
    held = {
        name: _flat(tensor)
        for name, tensor in theirs.items()
        if not any(fnmatchcase(name, one) for one in read.ignored)
    }
    ours = imported(rules, held, str(source))
    if config.tie_head and HEAD in ours and not ours.pop(HEAD).equal(ours["token_embedding.weight"]):
        raise UsageError("{where}: model.tie_head: the head is not the token embedding; set it to false", where=where)
    vocab_size = len(ours["token_embedding.weight"])
    require_fit(config, vocab_size, ours, str(source))
    read_tokens, of_tokens = tokenizer_from(tokenizer or _beside(source), vocab_size, hub=hub)
    origin = {
        "form": "map",
        "source": str(source),
        "files": {**files, names.name: sha256(raw), **of_tokens},
        "config": said,
    }
    return Imported(config, ours, read_tokens, origin)


def _beside(source: Path) -> Path:
    return source if source.is_dir() else source.parent


def _tensors(source: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    if source.is_dir():
        return tensors_in(source)
    if source.suffix != ".safetensors":
        raise UsageError(
            "{path}: only safetensors are read; write them in the library that made it: "
            "safetensors.torch.save_file({{name: tensor.clone() for name, tensor in model.state_dict().items()}}, "
            '"model.safetensors")',
            path=source,
        )
    tensors, digest = tensors_of(source)
    return tensors, {source.name: digest}


def _flat(tensor: Tensor) -> Tensor:
    """A matrix without axes of length 1 before it, as of positions [1, T, d]."""
    while tensor.dim() > 2 and len(tensor) == 1:
        tensor = tensor[0]
    return tensor


def _require_layers(read: NameMap, config: ModelConfig, theirs: Mapping[str, Tensor], where: str) -> None:
    """Refuse at once more layers than there are tensors: a short map can ask for a very long list of rules."""
    if len(theirs) < config.num_layers and any(LAYER in key for key in read.names):
        raise UsageError(
            "{where}: model.num_layers = {layers:,}, but there are only {count:,} tensors",
            where=where,
            layers=config.num_layers,
            count=len(theirs),
        )


def _whole_rules(read: NameMap, config: ModelConfig, where: str) -> list[Rule]:
    """The rules of the map, each of our tensors once.

    Raises:
        UsageError: a tensor is missing, or there twice.
    """
    rules = list(_rules(read, config, where))
    ours = Counter(name for rule in rules for name in rule.ours)
    for row in parameter_table(config, 2):
        if row.name not in ours:
            raise UsageError("{where}: names: {name} is missing; say where it is", where=where, name=row.name)
    twice = next((name for name, count in ours.items() if count > 1), None)
    if twice is not None:
        raise UsageError("{where}: names: {name} has two places; keep one", where=where, name=twice)
    return rules


def _rules(read: NameMap, config: ModelConfig, where: str) -> Iterator[Rule]:
    known = {row.name for row in parameter_table(config, 2)} | ({HEAD} if config.tie_head else set[str]())
    for key, value in read.names.items():
        at = f"{where}: names.{key}"
        place = Place.parse(value if isinstance(value, Mapping) else {"name": value}, at)
        if place.like is not None:
            yield from _alike(key, place, config, at)
            continue
        written = [key.replace(LAYER, "0"), *(f"{key.replace(LAYER, '0')}.{part}" for part in PARTS)]
        if known.isdisjoint(written) or (LAYER in key) != key.startswith("blocks."):
            templates = sorted({re.sub(r"^blocks\.\d+", f"blocks.{LAYER}", name) for name in known})
            raise UsageError("{where}: no tensor of this model: {hint}", where=at, hint=nearest(key, templates))
        make = _maker(key, place, config, at)
        for layer in range(config.num_layers) if LAYER in key else (0,):
            ours = key.replace(LAYER, str(layer))
            whole = (ours,) if ours in known else ()
            for one in whole or (name for part in PARTS if (name := f"{ours}.{part}") in known):
                yield make(one, one.removeprefix(ours), layer)


def _alike(key: str, place: Place, config: ModelConfig, at: str) -> Iterator[Rule]:
    alone = place.like == "torch.nn.MultiheadAttention"
    expected, rules = ("blocks.{layer}.attn", attention_rules) if alone else ("blocks.{layer}", layer_rules)
    if key != expected or not isinstance(place.name, str) or place.plain().keys() - {"name", "like", *_usual(place)}:
        raise UsageError(
            '{where}: {like} is written "{key}" = {{ like = "{like}", name = "…" }}',
            where=at,
            like=place.like,
            key=expected,
        )
    for layer in range(config.num_layers):
        yield from rules(config, key.replace(LAYER, str(layer)), place.name.replace(LAYER, str(layer)))


def _usual(place: Place) -> set[str]:
    """The other keys that have their usual values."""
    usual = Place(name="")
    return {key for key in ("transpose", "order", "by") if getattr(place, key) == getattr(usual, key)}


Make = Callable[[str, str, int], Rule]


def _maker(key: str, place: Place, config: ModelConfig, at: str) -> Make:
    """The rule of one of our tensors: its name, what follows the key in it, its layer."""
    if PACKED.fullmatch(key):
        return lambda ours, part, layer: _of_attention(ours, part, layer, place, config, at)
    name = place.name
    if not isinstance(name, str) or not _usual(place) >= {"order", "by"}:
        raise UsageError("{where}: a list, order and by are for attn.in_proj only", where=at)

    def make(ours: str, part: str, layer: int) -> Rule:
        theirs = f"{name.replace(LAYER, str(layer))}{part}"
        turned = place.transpose and not ours.endswith(".bias")
        return transposed(ours, theirs) if turned else same(ours, theirs)

    return make


def _of_attention(ours: str, part: str, layer: int, place: Place, config: ModelConfig, at: str) -> Rule:
    heads, shared = config.num_heads, config.kv_heads
    if place.by == "head" and (heads != shared or not isinstance(place.name, str)):
        raise UsageError('{where}: by = "head" needs one name, and as many key-value heads as heads', where=at)
    widths = [count * config.d_head for count in (heads, shared, shared)]
    order = ["qkv".index(letter) for letter in place.order]
    given: Sequence[str] = (place.name,) if isinstance(place.name, str) else place.name
    if place.by == "block" and len(given) == 1 and HEAD_NUMBER in given[0]:
        raise UsageError('{where}: one name with {head} needs by = "head"', where=at, head=HEAD_NUMBER)
    sizes = [sum(widths)] if len(given) == 1 else [widths[one] for one in order]
    theirs: dict[str, int] = {}
    for name, size in zip(given, sizes, strict=True):
        count = 1 if HEAD_NUMBER not in name else heads if place.by == "head" else size // config.d_head
        for number in range(count):
            full = name.replace(LAYER, str(layer)).replace(HEAD_NUMBER, str(number))
            theirs[f"{full}{part}"] = size // count
    return packed(ours, theirs, widths, order, heads=heads if place.by == "head" else 1, flip=place.transpose)
