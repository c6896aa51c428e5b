"""One signature a command: what a function of the library takes, its command takes, with the same defaults and help."""

import inspect
import pydoc
import re
from typing import Any

import numpy as np
import pytest
from fresh import printed
from typer.main import get_command

import vitral
from vitral.app.command import Command, described
from vitral.app.run import Generating
from vitral.app.terminal import COMMANDS, app
from vitral.core.errors import UsageError

PROGRAMS = {"parts", "lang", "help"}
LISTS = {f"list_{kind}" for kind in ("examples", "names", "presets", "runs", "studies", "texts", "words", "zoo")}
PYTHON_ONLY = {"configure", "presets", "load", "register", "set_language", "attend", "attend_traced", *LISTS}


def options_of(command: Command) -> dict[str, Any]:
    """The parameters of the parser by name."""
    made: Any = get_command(app)
    return {one.name: one for one in made.commands[command.name].params}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_has_the_parameters_defaults_and_help_of_its_function_and_view(command: Command) -> None:
    options = options_of(command)
    signed: dict[str, inspect.Parameter] = {}
    helps = dict[str, str]()
    for source in (command.view, command.function):
        said = described(source).args
        for name, one in inspect.signature(inspect.unwrap(source)).parameters.items():
            if not said.get(name, "Python only").startswith("Python only"):
                signed[name] = one
        helps |= said
    assert options.keys() - PROGRAMS == signed.keys()
    for name, one in signed.items():
        assert options[name].help == helps[name]
        marks = re.findall(r"default=(\w+|'\w+')", str(one.annotation))
        wanted = None if one.default in (inspect.Parameter.empty, ()) else one.default
        if options[name].default != wanted:  # the function's None stands for what the command says
            assert repr(options[name].default) in marks
        assert options[name].show_default == (str(options[name].default) not in ("None", "", "False"))
        assert options[name].required == (one.default is one.empty and one.kind is not one.VAR_KEYWORD)


def test_every_function_has_a_command() -> None:
    functions = {name for name in vitral.__all__ if name[0].islower()}
    assert {command.function.__name__ for command in COMMANDS} - {"list_names"} == functions - PYTHON_ONLY


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"seeed": 1}, "generate: unknown argument 'seeed', did you mean 'seed'?"),
        ({"seed": True}, "generate: seed: input should be a valid integer, not True"),
        ({"max_tokens": -1}, "generate: max_tokens: input should be greater than or equal to 0, not -1"),
        ({"temperature": float("nan")}, "generate: temperature: input should be a finite number, not nan"),
        ({"checkpoint": "frist"}, "generate: checkpoint: 'frist' is not one of best, last"),
        ({"stop": 5}, "generate: stop: "),
    ],
)
def test_wrong_values_are_one_line_before_anything_is_read(given: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError) as refused:
        vitral.generate("nowhere", **given)
    assert str(refused.value).startswith(line)


def test_help_is_readable() -> None:
    for name in vitral.__all__:
        shown = pydoc.plain(pydoc.render_doc(getattr(vitral, name))).partition("|  Methods inherited")[0]
        for noise in (
            " object at 0x",
            "<function",
            "<class",
            "Annotated",
            "Interval(",
            "e+308",
            "ForwardRef",
            "_empty",
        ):
            assert noise not in shown, (name, noise)
    assert set(dir(vitral)) == {*vitral.__all__, "__version__"}


def test_a_method_of_a_run_has_the_keywords_and_defaults_of_its_function() -> None:
    for name in ("generate", "chat", "fill", "evaluate", "inspect", "explain"):
        theirs = inspect.signature(getattr(vitral, name)).parameters
        own = inspect.signature(getattr(vitral.Run, name)).parameters
        keywords = [one for one in theirs.values() if one.kind is one.KEYWORD_ONLY]
        assert [one for one in own.values() if one.kind is one.KEYWORD_ONLY] == keywords
    assert {one.name for one in inspect.signature(vitral.generate).parameters.values()} - {"run", "prompt"} == set(
        Generating.__annotations__
    )


def test_numbers_of_numpy_are_numbers_and_what_is_missing_is_said() -> None:
    with pytest.raises(UsageError, match="nowhere: "):
        vitral.generate("nowhere", **{"seed": np.int64(3), "temperature": np.float32(0.5), "stop": np.array(["a"])})
    with pytest.raises(UsageError, match="generate: run: is required"):
        vitral.generate()  # pyright: ignore[reportCallIssue]


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys, vitral.app.terminal\n"
        "heavy = {'torch', 'numpy', 'rich.table', 'matplotlib', 'scipy', 'tokenizers', 'jinja2', 'pydantic', 'pooch'}\n"
        f"for words in {[[], *([command.name] for command in COMMANDS)]!r}:\n"
        "    assert vitral.app.terminal.run([*words, '--help']) == 0\n"
        "    heavy -= {'pydantic', 'pooch'} if words else set()\n"
        "    assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    printed(code)
