"""A checkpoint comes back bit for bit, or not at all."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from vitral.core.errors import UsageError
from vitral.core.files import sealed_json
from vitral.runs.checkpoint import (
    FILES,
    FORMAT,
    MANIFEST,
    Checkpoint,
    list_checkpoints,
    load_checkpoint,
    load_state,
    prune,
    save_checkpoint,
)

Made = Callable[[int], Checkpoint]


def assert_same(one: Checkpoint, other: Checkpoint) -> None:
    assert one.step == other.step
    for tensors, others in ((one.model, other.model), (one.optimizer, other.optimizer)):
        assert tensors.keys() == others.keys()
        for name, tensor in tensors.items():
            assert tensor.dtype == others[name].dtype
            assert tensor.shape == others[name].shape
            as_bytes = [t.contiguous().reshape(-1).view(torch.uint8) for t in (tensor, others[name])]
            assert torch.equal(*as_bytes)
    assert one.state.items() <= other.state.items()
    assert one.history == other.history


def refusal(folder: Path) -> str:
    with pytest.raises(UsageError) as refused:
        load_checkpoint(folder)
    assert "\n" not in str(refused.value)
    assert str(folder) in str(refused.value)
    return str(refused.value)


def test_what_is_saved_comes_back(tmp_path: Path, checkpoint: Made) -> None:
    folder = save_checkpoint(tmp_path / "steps", checkpoint(10))
    assert folder.name == "step-00000010"
    assert sorted(path.name for path in folder.iterdir()) == sorted((*FILES, MANIFEST))
    assert_same(checkpoint(10), load_checkpoint(folder))
    assert load_checkpoint(folder, with_optimizer=False).optimizer == {}


def test_a_damaged_optimizer_does_not_matter_to_who_needs_none(tmp_path: Path, checkpoint: Made) -> None:
    folder = save_checkpoint(tmp_path, checkpoint(10))
    raw = (folder / "optimizer.safetensors").read_bytes()
    (folder / "optimizer.safetensors").write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    assert load_checkpoint(folder, with_optimizer=False).step == 10


@pytest.mark.parametrize("format_", [1, 3])
def test_another_format_is_named(format_: int, tmp_path: Path, checkpoint: Made) -> None:
    folder = save_checkpoint(tmp_path, checkpoint(10))
    files = json.loads((folder / MANIFEST).read_bytes())["files"]
    (folder / MANIFEST).write_bytes(sealed_json({"format": format_, "files": files}))
    assert f"format {format_}, this Vitral reads {FORMAT}" in refusal(folder)


def test_a_state_is_read_without_its_tensors(tmp_path: Path, checkpoint: Made) -> None:
    folder = save_checkpoint(tmp_path, checkpoint(3))
    found = load_state(folder)
    assert (found.model, found.optimizer) == ({}, {})
    assert found.state == load_checkpoint(folder).state
    assert found.manifest == load_checkpoint(folder).manifest == json.loads((folder / MANIFEST).read_bytes())["sha256"]
    (folder / FILES[0]).write_bytes(bytes((folder / FILES[0]).stat().st_size))
    assert load_state(folder).state == found.state
    (folder / FILES[0]).unlink()
    with pytest.raises(UsageError, match=r"model\.safetensors"):
        load_state(folder)


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
