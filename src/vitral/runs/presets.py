"""Presets: complete configurations by name."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.model import ModelConfig
from vitral.runs.config import RunConfig


@dataclass(frozen=True)
class Preset:
    """A configuration by name.

    Attributes:
        name: what users type.
        description: one line.
        vocabulary: nominal number of tokens, to count parameters without a text.
        run: the configuration as plain data.
    """

    name: str
    description: str
    vocabulary: int
    run: Mapping[str, Any]


def presets() -> dict[str, Preset]:
    """Every preset by name."""
    files = [file for file in (resources.files("vitral.runs") / "_presets").iterdir() if file.name.endswith(".toml")]
    found = {}
    for file in sorted(files, key=lambda file: file.name):
        name = file.name.removesuffix(".toml")
        found[name] = Preset(name, **tomllib.loads(file.read_text(encoding="utf-8")))
    return found


def preset_model(name: str) -> ModelConfig:
    """The model of a preset.

    Raises:
        UsageError: there is no such preset.
    """
    known = presets()
    if name not in known:
        raise UsageError("preset {name!r}: {hint}", name=name, hint=nearest(name, known))
    return RunConfig.parse(dict(known[name].run), name).model
