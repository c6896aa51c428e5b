"""The named studies: one TOML file each, in the format of `vitral.studies.study_file`."""

import tomllib
from functools import cache
from importlib.resources import files

from vitral.core.config import nearest
from vitral.core.errors import UsageError
from vitral.core.language import _, language
from vitral.studies.design import Study
from vitral.studies.study_file import parse_study, titles_of

FIRST = (
    "no-attention",
    "scale",
    "mask",
    "norm",
    "positions",
    "heads",
    "tokens",
    "parts",
    "data",
    "scaling",
    "decoding",
    "meaning",
)
"""The order of lists; further files of this folder follow by name."""
TEXTS = ("title", "question", "source", "claim", "design")
"""Of a study, for its page; a catalogue of sentences has them as they are in the files."""


def study_names() -> dict[str, str]:
    """Every named study with its question, in the current language."""
    return {name: _(tomllib.loads(_text(name))["question"]) for name in _names()}


@cache
def study_named(name: str) -> Study:
    """The study of that name.

    Raises:
        UsageError: there is none; the nearest name is offered.
    """
    if name not in _names():
        raise UsageError(
            "no study is called {name!r}; {suggestion} (all studies: vitral list studies)",
            name=name,
            suggestion=nearest(name, _names()),
        )
    return parse_study(tomllib.loads(_text(name)), f"{name}.toml")


def told(study: Study) -> Study:
    """The study with its texts and its arms' titles in the current language, where they are the catalogue's.

    A text that is not the catalogue's, such as that of a user's own study, stays as it is.
    """
    if language() == "en" or study.name not in _names():
        return study
    named = study_named(study.name)
    titles = titles_of(_text(study.name))
    texts = {key: _(getattr(named, key)) for key in TEXTS if getattr(study, key) == getattr(named, key)}
    arms = [
        arm.model_copy(update={"title": _(titles[arm.title])}) if arm.title in titles else arm for arm in study.arms
    ]
    return study.model_copy(update={**texts, "arms": tuple(arms)})


def _text(name: str) -> str:
    return files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")


@cache
def _names() -> tuple[str, ...]:
    found = {file.name.removesuffix(".toml") for file in files(__name__).iterdir() if file.name.endswith(".toml")}
    return tuple(sorted(found, key=lambda name: (FIRST.index(name) if name in FIRST else len(FIRST), name)))
