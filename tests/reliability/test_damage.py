"""Whatever happens to a file of a checkpoint, it is noticed: one line, and the one before is taken."""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.reliability.conftest import STEPS, Tally, scaled
from vitral.core.errors import UsageError, VitralError
from vitral.runs import RunFolder
from vitral.runs.checkpoint import FILES, MANIFEST, load_checkpoint

NAMES = (*FILES, MANIFEST)
PAGE = 512


@pytest.fixture
def whole(straight: RunFolder, tmp_path: Path) -> Path:
    """A checkpoint to be damaged."""
    shutil.copytree(straight.steps / f"step-{STEPS:08d}", tmp_path / f"step-{STEPS:08d}")
    return tmp_path / f"step-{STEPS:08d}"


def refused(folder: Path, told: object) -> None:
    """Loading fails in one line that names the folder."""
    try:
        load_checkpoint(folder)
    except VitralError as error:
        assert "\n" not in str(error), told
        assert str(folder) in str(error), told
    else:
        pytest.fail(f"loaded in spite of {told}")


def test_flipped_bits(whole: Path, tally: Tally) -> None:
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")
    draw, count = random.Random(seed), scaled(5_000, 200_000)
    content = {name: (whole / name).read_bytes() for name in NAMES}
    for trial in range(count):
        name = NAMES[trial % len(NAMES)]
        place, bit = draw.randrange(len(content[name])), draw.randrange(8)
        with (whole / name).open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes([content[name][place] ^ (1 << bit)]), place)
            refused(whole, (seed, name, place, bit))
            os.pwrite(file.fileno(), content[name][place : place + 1], place)
    assert load_checkpoint(whole).step == STEPS
    tally("flipped bits, each noticed", count)


def test_truncations_lost_pages_and_strangers(whole: Path, straight: RunFolder, tally: Tally) -> None:
    count = 0
    other = straight.steps / f"step-{STEPS - 1:08d}"
    for name in NAMES:
        path, content = whole / name, (whole / name).read_bytes()
        damaged = [content[:length] for length in range(0, len(content), scaled(11, 1))]
        for begin in range(0, len(content), PAGE):
            for fill in (b"\0", b"\xff"):
                damaged.append(content[:begin] + fill * len(content[begin : begin + PAGE]) + content[begin + PAGE :])
        damaged += [content + b"\0", content + content, (other / name).read_bytes()]
        for raw in damaged:
            if raw != content:
                path.write_bytes(raw)
                refused(whole, (name, len(raw)))
                count += 1
        path.unlink()
        refused(whole, f"no {name}")
        path.mkdir()
        refused(whole, f"{name} is a folder")
        path.rmdir()
        path.symlink_to(other / name)
        refused(whole, f"{name} is another step's")
        path.unlink()
        path.write_bytes(content)
        count += 3
    for stranger in ("more.safetensors", "a\nb", "state.json~"):
        (whole / stranger).write_bytes(b"")
        refused(whole, stranger)
        (whole / stranger).unlink()
        count += 1
    whole.rename(whole.with_name(f"step-{STEPS + 8:08d}"))
    refused(whole.with_name(f"step-{STEPS + 8:08d}"), "another step's name")
    tally("truncated, emptied, swapped, missing, extra and renamed files, each noticed", count + 1)


def test_the_one_before_is_taken_loudly_and_never_none(straight: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(straight.path, tmp_path / "run")
    folder, said = RunFolder.open(tmp_path / "run"), []
    newest = sorted(folder.steps.iterdir())[-1]
    (newest / FILES[0]).write_bytes(b"")
    assert folder.load("last", warn=said.append).step == STEPS - 1
    assert len(said) == 1
    assert "using the one before" in said[0]
    for checkpoint in folder.steps.iterdir():
        (checkpoint / FILES[1]).write_bytes(b"")
    with pytest.raises(UsageError, match="no intact checkpoint"):
        folder.load("last", warn=said.append)
    from vitral.training import resume

    with pytest.raises(UsageError, match="no intact checkpoint") as nothing:
        resume(folder.path)
    assert "\n" not in str(nothing.value)


@pytest.mark.parametrize("pointer", ["..", "../..", "/etc", "step-1/..", "step-00000099", "", "\x1b[2J", "a" * 10_000])
def test_a_pointer_is_a_name_never_a_path(pointer: str, straight: RunFolder, tmp_path: Path) -> None:
    shutil.copytree(straight.path, tmp_path / "run")
    (tmp_path / "run" / "best").write_text(pointer, encoding="utf-8")
    folder = RunFolder.open(tmp_path / "run")
    assert folder.load("best", warn=pytest.fail).step == STEPS
