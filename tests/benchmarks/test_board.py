"""The board: a stranger's configuration runs on it, and a record is surely below its holder."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.options import LeftOut, Options
from benchmarks.rows import board

HOLDER = [1.500, 1.507, 1.494, 1.502, 1.498]
STRANGERS = "[model]\nd_model = 16\nnum_heads = 2\nnum_layers = 1\ncontext_length = 16\n[training]\nbatch_size = 4\n"


@pytest.mark.merge
def test_a_strangers_configuration_runs_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(board, "QUICK_SECONDS", 3.0)
    (tmp_path / "mine.toml").write_text(STRANGERS, encoding="utf-8")
    assert main(["board", "--quick", "--text", "sample", "--config", str(tmp_path / "mine.toml")]) == 0
    printed = capsys.readouterr().out
    assert board.PLAN in printed
    assert "mine: test loss" in printed
    monkeypatch.setattr(board, "TEXT_SHA256", board._text(Options(texts=("sample",)))[1])
    assert main(["board", "--quick", "--text", "sample", "--out", str(tmp_path / "kept")]) == 0
    assert not (tmp_path / "kept" / board.FILE).exists()


@pytest.mark.parametrize(("lower", "record"), [(0.1, "better"), (0.002, None), (-0.1, None)])
def test_a_record_is_surely_below_its_holder(lower: float, record: str | None) -> None:
    losses = {"holder": HOLDER, "better": [one - lower + 0.001 * n for n, one in enumerate(HOLDER)]}
    losses["worse"] = [one + 0.2 for one in reversed(HOLDER)]
    held: list[dict[str, Any]] = [{"name": "holder", "config": {}}]
    measured = board.judged(losses)
    assert board.new_record(losses, measured, held) == record
    assert board.new_record({"worse": losses["worse"]}, measured, held) is None
    assert board.new_record({**losses, board.PLAN: HOLDER}, measured, []) == board.PLAN
    assert board.judged({name: each[:2] for name, each in losses.items()}) == {}


def test_the_holder_is_trained_again_and_keeps_its_name(tmp_path: Path) -> None:
    file = tmp_path / "holder.toml"
    file.write_text(STRANGERS, encoding="utf-8")
    held: list[dict[str, Any]] = [{"name": "holder", "config": {"model": {"d_model": 8}}}]
    assert list(board.contenders(held, [])) == ["holder", board.PLAN]
    with pytest.raises(LeftOut, match="rename"):
        board.contenders(held, [file])
