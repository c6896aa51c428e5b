"""A checkpoint comes back bit for bit, or not at all."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from vitral.core.errors import UsageError
from vitral.core.files import sealed_json
from vitral.runs.checkpoint import (
    FILES,
    FORMAT,
    MANIFEST,
    Checkpoint,
    list_checkpoints,
    load_checkpoint,
    prune,
    save_checkpoint,
)

Made = Callable[[int], Checkpoint]


def refusal(folder: Path) -> str:
    with pytest.raises(UsageError) as refused:
        load_checkpoint(folder)
    assert str(folder) in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("format_", [1, 3])
def test_another_format_is_named(format_: int, tmp_path: Path, checkpoint: Made) -> None:
    folder = save_checkpoint(tmp_path, checkpoint(10))
    files = json.loads((folder / MANIFEST).read_bytes())["files"]
    (folder / MANIFEST).write_bytes(sealed_json({"format": format_, "files": files}))
    assert f"format {format_}, this Vitral reads {FORMAT}" in refusal(folder)


def test_pruning_waits_until_the_newest_verifies(tmp_path: Path, checkpoint: Made) -> None:
    folders = [save_checkpoint(tmp_path, checkpoint(step)) for step in (1, 2, 3, 4)]
    weights = folders[-1] / FILES[0]
    whole = weights.read_bytes()
    weights.write_bytes(whole[:-1])
    prune(tmp_path, keep=2, also=set())
    assert list_checkpoints(tmp_path) == folders
    weights.write_bytes(whole)
    prune(tmp_path, keep=2, also={folders[0].name})
    assert list_checkpoints(tmp_path) == [folders[0], *folders[2:]]
