"""A link, a pipe or a huge file in a run: one line or the right result; what is outside stays as it is."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reliability.children import ON_LINUX, outcome
from tests.reliability.conftest import STEPS
from tests.reliability.damages import is_one_line
from vitral.app import terminal as cli
from vitral.runs import RunFolder

pytestmark = ON_LINUX

SECRET = b"Rosebud-1941"
COMMANDS = (
    ("generate", "--max-tokens", "9"),
    ("doctor",),
    ("doctor", "--repair"),
    ("resume",),
)
PLACES = (
    "config.toml",
    "tokenizer.json",
    "metrics.jsonl",
    "run.json",
    "steps",
    f"steps/step-{STEPS:08d}",
    "samples",
    ".lock",
)


def _link(path: Path, outside: Path) -> None:
    path.symlink_to(outside / path.name)


def _pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path, outside: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


@pytest.mark.parametrize("harm", [_link, _pipe, _huge])
def test_it_is_refused_or_does_no_harm(
    harm: Callable[[Path, Path], object], straight: RunFolder, tmp_path: Path
) -> None:
    """What stood there moves outside, where the link leads to it."""
    for number, name in enumerate(PLACES):
        run, outside = (
            Path(shutil.copytree(straight.path, tmp_path / f"{number}" / "run")),
            tmp_path / f"{number}" / "out",
        )
        outside.mkdir()
        (outside / "secret").write_bytes(SECRET)
        (run / name).touch() if name == ".lock" else None
        shutil.move(run / name, outside / Path(name).name)
        harm(run / name, outside)
        before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
        command, *options = COMMANDS[number % len(COMMANDS)]
        code, out, err = outcome(
            lambda run=run, line=(command, options): cli.run([line[0], str(run), *line[1]]), tmp_path
        )
        assert code in (0, 1, 2, 4), (name, err)
        assert all(map(is_one_line, err.splitlines())), (name, err)
        assert SECRET.decode() not in out + err
        assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before, name


def test_links_in_the_typed_path_are_followed(straight: RunFolder, tmp_path: Path) -> None:
    real = Path(shutil.copytree(straight.path, tmp_path / "elsewhere" / "run"))
    shutil.rmtree(real / "steps" / f"step-{STEPS:08d}")
    (tmp_path / "direct").symlink_to(real)
    assert outcome(lambda: cli.run(["resume", str(tmp_path / "direct")]), tmp_path)[0] == 0
    assert (real / "steps" / f"step-{STEPS:08d}").is_dir()
