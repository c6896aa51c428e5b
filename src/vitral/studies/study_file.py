"""Study files: a study as TOML, for the named studies and for one's own. `docs/study-files.md` is the manual.

A file has the fields of `vitral.studies.design.Study` and three shorthands, which are written out before it is checked:

- `changes` at the top is laid under the changes of every budget.
- An arm with a `grid` stands for many arms, one for each combination of a row of every axis. `{key}` in its texts and
  changes is replaced by the row's value; the budget is the largest of those in the rows and the arm. A combination that
  would have the name of the first arm is that arm, and is left out.
- `axes` at the top names axes; a grid may have the name instead of the rows.
"""

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from vitral.core.config import Config, merge, nearest, read_toml, shown
from vitral.core.errors import UsageError
from vitral.core.language import N_, Message, _, language
from vitral.studies.design import BUDGETS, Arm, Budget, BudgetName, Study

Table = dict[str, Any]
CATALOGUE = files("vitral.studies") / "catalogue"
"""The named studies, a file each."""
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
"""The order of lists; further named studies follow by name."""
TEXTS = ("title", "question", "source", "claim", "design")
"""Of a study, for its page; a catalogue of sentences has them as they are in the files."""
_PLACEHOLDER = re.compile(r"\{(\w*)\}")


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


def translated(study: Study) -> Study:
    """The study with its texts and its arms' titles in the current language, where they are the catalogue's.

    A text that is not the catalogue's, such as that of a user's own study, stays as it is.
    """
    if language() == "en" or study.name not in _names():
        return study
    titles = titles_of(_text(study.name))
    texts = {key: _(getattr(study, key)) for key in TEXTS}
    arms = [
        arm.model_copy(update={"title": _(titles[arm.title])}) if arm.title in titles else arm for arm in study.arms
    ]
    return study.model_copy(update={**texts, "arms": tuple(arms)})


def _text(name: str) -> str:
    return CATALOGUE.joinpath(f"{name}.toml").read_text(encoding="utf-8")


@cache
def _names() -> tuple[str, ...]:
    names = {file.name.removesuffix(".toml") for file in CATALOGUE.iterdir() if file.name.endswith(".toml")}
    return (*FIRST, *sorted(names.difference(FIRST)))


def read_study(path: Path) -> Study:
    """The study in a TOML file.

    Raises:
        UsageError: the file cannot be read or is not a study; one line names the file and the key.
    """
    return parse_study(read_toml(path), str(path))


def titles_of(text: str) -> dict[str, Message]:
    """The titles of the arms in a study's file, those of a grid with the values of their rows."""
    titles: dict[str, Message] = {}
    data = tomllib.loads(text)
    for arm in data["arms"]:
        for rows in itertools.product(*_named(arm.get("grid", ()), data.get("axes", {}))):
            values = merge(*rows)
            title = N_(arm["title"]).format(**values) if values else N_(arm["title"])
            titles[title] = title
    return titles


class _Shorthands(Config):
    changes: Table = Field(default_factory=dict)
    budgets: dict[BudgetName, Budget] = Field(default_factory=dict)
    axes: dict[str, list[Table]] = Field(default_factory=dict)
    arms: list[Table]


class _Grid(Config):
    grid: Annotated[list[Annotated[list[Table], Field(min_length=1)]], Field(min_length=1)]


def parse_study(data: Mapping[str, Any], where: str) -> Study:
    """The study in the tables of a file; `where` names the file in errors.

    Raises:
        UsageError: they are no study; one line names the key.
    """
    shorthands = _Shorthands.parse({key: data[key] for key in data.keys() & _Shorthands.model_fields}, where)
    if shorthands.changes and not shorthands.budgets:
        raise UsageError(
            "{where}: changes: only a study with budgets has them; write them into the file that base names",
            where=where,
        )
    budgets = {
        name: one.plain() | {"changes": merge(shorthands.changes, one.changes)}
        for name, one in shorthands.budgets.items()
    }
    arms = [
        plain for index, arm in enumerate(shorthands.arms) for plain in _arms(arm, shorthands, f"{where}: arms.{index}")
    ]
    rest = {key: value for key, value in data.items() if key not in ("changes", "axes")}
    return Study.parse({**rest, "budgets": budgets, "arms": arms}, where)


def _named(grid: Any, axes: Mapping[str, Any]) -> Any:
    return [axes.get(one, one) if isinstance(one, str) else one for one in grid] if isinstance(grid, list) else grid


def _arms(arm: Table, study: _Shorthands, where: str) -> Iterator[Table]:
    """The arms that one table of `[[arms]]` stands for, each checked, so that errors name the table as written."""
    if "grid" not in arm:
        yield Arm.parse(arm, where).plain()
        return
    template = {key: value for key, value in arm.items() if key != "grid"}
    axes = _axes(_named(arm["grid"], study.axes), where)
    for rows in itertools.product(*axes):
        values = merge(*rows)
        budgets = [table.get("budget", BUDGETS[0]) for table in (template, *rows)]
        filled = _filled(template, values, where)
        if filled.get("name") != study.arms[0].get("name"):
            yield Arm.parse(filled | {"budget": max(budgets, key=(*BUDGETS, *budgets).index)}, where).plain()


def _axes(given: Any, where: str) -> list[list[Table]]:
    grid = _Grid.parse({"grid": given}, where).grid
    keys = [{key for row in axis for key in row} - {"budget"} for axis in grid]
    for one, other in itertools.combinations(keys, 2):
        if one & other:
            raise UsageError("{where}.grid: two axes have the key {one!r}", where=where, one=min(one & other))
    return grid


def _filled(value: Any, values: Mapping[str, Any], where: str) -> Any:
    """A nested value with every `{key}` replaced; a string that is nothing but `{key}` becomes the value itself."""
    if isinstance(value, dict):
        return {key: _filled(each, values, where) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, values, where) for each in value]
    if not isinstance(value, str):
        return value
    for key in _PLACEHOLDER.findall(value):
        if key not in values:
            known = ", ".join(values)
            raise UsageError(
                "{where}: {value} asks for {key!r}, which a row of the grid does not set; it sets {known}",
                where=where,
                value=shown(value),
                key=key,
                known=known,
            )
    whole = _PLACEHOLDER.fullmatch(value)
    return values[whole[1]] if whole else _PLACEHOLDER.sub(lambda match: str(values[match[1]]), value)
