"""The configuration of a run: preset < TOML file < overrides, parsed into one frozen object."""

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from vitral.core.checked import Finite, checked
from vitral.core.config import merge, nearest, read_toml
from vitral.core.errors import UsageError
from vitral.data import corpus_names
from vitral.runs import enter
from vitral.training import RunConfig

DEFAULT_PRESET = "fast"
DEFAULT_MINUTES = 2.0
"""Training time where a bare text is given and nothing else."""

CONTEXTS = ((0.5, 128), (15.0, 256))
"""(Minutes, context): the context of a bare text from that training time on."""
FITTED_BATCH = 16


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


@checked(first=True)
def presets() -> dict[str, Preset]:
    """Every preset by name."""
    files = [file for file in (resources.files("vitral.lab") / "_presets").iterdir() if file.name.endswith(".toml")]
    found = {}
    for file in sorted(files, key=lambda file: file.name):
        name = file.name.removesuffix(".toml")
        found[name] = Preset(name, **tomllib.loads(file.read_text(encoding="utf-8")))
    return found


@checked(first=True)
def configure(
    start: str | None = None,
    *,
    corpus: str | None = None,
    init_from: Path | None = None,
    minutes: Finite | None = None,
    overrides: Sequence[Mapping[str, Any]] = (),
) -> RunConfig:
    """The configuration of a run.

    Args:
        start: a preset, a `.toml` file, or a text (a corpus's name, a file, a folder); a preset takes precedence.
        corpus: the text, instead of the one in `start`.
        init_from: a run; its model and tokenizer are used.
        minutes: training time; the preset `fast`, also used for a bare text, has a larger model for a longer time.
        overrides: plain nested data, later over earlier.

    Raises:
        UsageError: an invalid value or an unknown name, in one line.
    """
    training = merge(*overrides).get("training", {})
    training = training if isinstance(training, Mapping) else {}
    if minutes is not None and "steps" in training:
        raise UsageError("minutes: training.steps is given too; give only one of the two")
    minutes = training.get("minutes", minutes)
    layers: list[Mapping[str, Any]] = []
    where = "config"
    known = presets()
    if start in known:
        layers.append(known[start].run)
    elif start is not None and start.endswith(".toml"):
        layers.append(read_toml(Path(start)))
        where = start
    else:
        _require_text_or_preset(start, known)
        layers += [known[DEFAULT_PRESET].run, {"corpus": {"source": start or "sample"}}]
        minutes = DEFAULT_MINUTES if minutes is None and "steps" not in training else minutes
    if minutes is not None:
        is_number = isinstance(minutes, int | float) and not isinstance(minutes, bool)
        layers += [*(grown(start, minutes, known) if is_number else []), {"training": {"minutes": minutes}}]
    if init_from is not None:
        inherited = enter(init_from, lambda line: None).config.plain()
        layers.append({"model": inherited["model"], "corpus": {"tokenizer": inherited["corpus"]["tokenizer"]}})
    if corpus is not None:
        layers.append({"corpus": {"source": corpus}})
    return RunConfig.parse(merge(*layers, *overrides), where)


def grown(start: str | None, minutes: float, known: Mapping[str, Preset]) -> list[Mapping[str, Any]]:
    """The layers that let the model fit the time; none for other configurations."""
    contexts = [context for least, context in CONTEXTS if minutes >= least]
    its_own = (start in known and start != DEFAULT_PRESET) or (start or "").endswith(".toml")
    if its_own or not contexts:
        return []
    training = {"batch_size": FITTED_BATCH, "plan": "fit"}
    return [{"model": {"context_length": contexts[-1]}, "training": training}]


def _require_text_or_preset(start: str | None, known: Mapping[str, Preset]) -> None:
    if start is None or start in corpus_names() or os.path.lexists(start) or len(Path(start).parts) > 1 or "." in start:
        return
    names = {*known, *corpus_names()}
    raise UsageError(f"{start!r} is not a preset, a known text or a file; {nearest(start, names)}")
