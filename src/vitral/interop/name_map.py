"""Safetensors of any GPT, with a map of names of the user's: a TOML file with the model and its tensors."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from vitral.core.config import Config, nearest, read_toml
from vitral.core.errors import UsageError
from vitral.core.files import sha256
from vitral.interop.foreign import read_file, tensors_in, tensors_of
from vitral.interop.forms.torch_nn import ATTENTION, BLOCK
from vitral.interop.rules import HEAD_NUMBER, LAYER, Place, Rule, imported, rules_at
from vitral.interop.token_files import Imported, whole
from vitral.model import ModelConfig, parameter_table

SAID = ("context_length", "d_model", "num_layers", "num_heads", "norm", "feed_forward")
"""Keys of the model that a map must have: names and shapes do not show all of them."""
HEAD = "head.weight"
MOST_MAP = 1 << 20


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


def read_named(source: Path, names: Path, *, tokenizer: str | Path | None = None) -> Imported:
    """The model in safetensors, by a map of names.

    Args:
        source: a safetensors file, or a folder with `model.safetensors`.
        names: the map (`NameMap`), a TOML file.
        tokenizer: what `tokenizer_from` takes; by default that of the folder.

    Raises:
        UsageError: a file cannot be read, a name of the map is not ours or has no tensor, a tensor has no place, or
            the shapes do not fit.
    """
    where = str(names)
    raw, said = read_file(names, MOST_MAP), read_toml(names)
    read = NameMap.parse(said, where)
    missing = next((key for key in SAID if key not in read.model), None)
    if missing is not None:
        raise UsageError("{where}: model.{key}: missing; the tensors do not show it", where=where, key=missing)
    config = ModelConfig.parse(read.model, f"{where}: model")
    theirs, files = _tensors(source)
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
    origin = {"form": "map", "source": str(source), "files": {**files, names.name: sha256(raw)}, "config": said}
    beside = source if source.is_dir() else source.parent
    return whole(config, ours, vocab_size, origin, tokenizer=tokenizer or beside)


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


def _whole_rules(read: NameMap, config: ModelConfig, where: str) -> list[Rule]:
    """The rules of the map, each of our tensors once.

    Raises:
        UsageError: a tensor is missing, or there twice.
    """
    rules = list(_rules(read, config, where))
    ours = Counter(rule.ours for rule in rules)
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
        if place.like is None:
            _require_fitting(key, place, config, at)
        names = {key: place} if place.like is None else _alike(key, place, at)
        layers = range(config.num_layers) if LAYER in key else (0,)
        made = [
            rule
            for layer in layers
            for ours, one in names.items()
            for rule in rules_at(config, ours, one, layer, known)
        ]
        if not made or (LAYER in key) != key.startswith("blocks."):
            templates = sorted({re.sub(r"^blocks\.\d+", f"blocks.{LAYER}", name) for name in known})
            raise UsageError("{where}: no tensor of this model: {hint}", where=at, hint=nearest(key, templates))
        yield from made


def _alike(key: str, place: Place, at: str) -> dict[str, str]:
    """The names in a module of torch, below those of ours."""
    alone = place.like == "torch.nn.MultiheadAttention"
    expected, names = ("blocks.{layer}.attn", ATTENTION) if alone else ("blocks.{layer}", BLOCK)
    if key != expected or place != Place(name=str(place.name), like=place.like):
        raise UsageError(
            '{where}: {like} is written "{key}" = {{ like = "{like}", name = "…" }}',
            where=at,
            like=place.like,
            key=expected,
        )
    return {f"{key}.{ours}": f"{place.name}.{theirs}" for ours, theirs in names.items()}


def _require_fitting(key: str, place: Place, config: ModelConfig, at: str) -> None:
    is_one = isinstance(place.name, str)
    if ".attn.in_proj" not in key:
        if place != Place(name=str(place.name), transpose=place.transpose):
            raise UsageError("{where}: a list, order and by are for attn.in_proj only", where=at)
    elif place.by == "head" and (config.num_heads != config.kv_heads or not is_one):
        raise UsageError('{where}: by = "head" needs one name, and as many key-value heads as heads', where=at)
    elif place.by == "block" and is_one and HEAD_NUMBER in place.name:
        raise UsageError('{where}: one name with {head} needs by = "head"', where=at, head=HEAD_NUMBER)
