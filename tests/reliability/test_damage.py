"""Whatever happens to a file of a checkpoint, it is noticed: one line, and the one before is taken."""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.reliability.conftest import STEPS, Tally, trials
from vitral.core.errors import VitralError
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
        assert str(folder) in str(error), told
    else:
        pytest.fail(f"loaded in spite of {told}")


@trials(50, 5_000, 200_000)
def test_flipped_bits(trials: int, whole: Path, draw: random.Random, tally: Tally) -> None:
    content = {name: (whole / name).read_bytes() for name in NAMES}
    for trial in range(trials):
        name = NAMES[trial % len(NAMES)]
        place, bit = draw.randrange(len(content[name])), draw.randrange(8)
        with (whole / name).open("r+b", buffering=0) as file:
            os.pwrite(file.fileno(), bytes([content[name][place] ^ (1 << bit)]), place)
            refused(whole, (name, place, bit))
            os.pwrite(file.fileno(), content[name][place : place + 1], place)
    assert load_checkpoint(whole).step == STEPS
    tally("flipped bits, each noticed", trials)


@trials(101, 11, 1)
def test_truncations_and_lost_pages(trials: int, whole: Path, straight: RunFolder, tally: Tally) -> None:
    """Every so-manyth length, and each page; files of another checkpoint; files that are missing; another name."""
    count = 0
    other = straight.steps / f"step-{STEPS - 1:08d}"
    for name in NAMES:
        path, content = whole / name, (whole / name).read_bytes()
        damaged = [content[:length] for length in range(0, len(content), trials)]
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
    whole.rename(whole.with_name(f"step-{STEPS + 8:08d}"))
    refused(whole.with_name(f"step-{STEPS + 8:08d}"), "another step's name")
    tally("truncated, emptied, swapped, missing and renamed files, each noticed", count + 1)
