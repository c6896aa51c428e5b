"""Presets: complete configurations by name."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
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
    files = sorted((Path(__file__).parent / "_presets").glob("*.toml"))
    return {file.stem: Preset(file.stem, **tomllib.loads(file.read_text(encoding="utf-8"))) for file in files}


def preset_model(name: str) -> ModelConfig:
    """The model of a preset.

    Raises:
        UsageError: there is no such preset.
    """
    known = presets()
    if name not in known:
        raise UsageError("preset {name!r}: {hint}", name=name, hint=nearest(name, known))
    return RunConfig.parse(dict(known[name].run), name).model
