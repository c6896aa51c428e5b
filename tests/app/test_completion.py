"""Completion in the shell: every name, and nothing heavy is imported."""

import os
import subprocess
import sys

import pytest
from fresh import printed

from vitral.app.command import FOLDERS, completing, names
from vitral.data import corpus_names
from vitral.explanation.examples.by_name import gallery
from vitral.studies import study_names
from vitral.training.configuration import presets


def completed(*words: str) -> list[str]:
    """What the program answers a bash that completes the last word."""
    line = {"_VITRAL_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    asked = [sys.executable, "-m", "vitral"]
    done = subprocess.run(asked, env={**os.environ, **line}, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


def test_every_name_is_offered() -> None:
    known = {"presets": presets(), "texts": corpus_names(), "studies": study_names(), "examples": gallery()}
    assert all(sorted(names(kind)) == sorted(ours) for kind, ours in known.items())
    assert completing("presets texts")("shakespeare-") == ["shakespeare-fast"]


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("vitral", "generate", "runs/f"), []),  # then the shell completes the folder
        (("vitral", "study", "mask", "--base", "fas"), ["fast"]),
    ],
)
def test_the_shell_asks_the_program(words: tuple[str, ...], offered: list[str]) -> None:
    assert completed(*words) == offered


def test_completion_imports_nothing_heavy() -> None:
    code = (
        f"import sys\nfrom vitral.app.command import completing\ncompleting({' '.join(FOLDERS)!r})('')\n"
        "print({'torch', 'numpy', 'pydantic', 'rich.console'} & set(sys.modules))"
    )
    assert printed(code).strip() == "set()"
