"""`vitral corpus --shards` end to end: made, gone on with, trained on, and refused without a shard."""

from pathlib import Path

from tests.cli.conftest import SETTINGS
from vitral.runs import RunFolder

SHUFFLED = [*SETTINGS, "--set", "training.windows=shuffled", "--set", "training.batch_size=3"]


def test_a_text_in_shards_is_trained_on(vitral, tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for name in ("one", "two"):
        words = f"the cat of house {name} saw a bird and the dog sang to me of it\n"
        (tmp_path / "texts" / f"{name}.txt").write_text(words * 2000, encoding="utf-8", newline="\n")
    command = ("corpus", "texts", "--shards", "shards", "--tokenizer", "bpe:280")
    made = vitral(*command)
    assert (made.code, made.out == "") == (0, False), made.err
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "shards").rglob("*.bin")}
    assert vitral(*command).code == 0
    assert {path: path.stat().st_mtime_ns for path in files} == files
    assert vitral("train", "shards", "--out", "run", *SHUFFLED).code == 0
    run = RunFolder.open(tmp_path / "run")
    assert run.metrics("end")[-1]["finished"]
    assert vitral(*command[:-1], "bpe:290").code == 2
    first = tmp_path / "shards" / "shards" / "000000.bin"
    content = first.read_bytes()
    first.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    told = vitral("doctor", "shards")
    assert told.code != 0
    assert "000000.bin" in told.out + told.err
    first.unlink()
    told = vitral("train", "shards", "--out", "other", *SHUFFLED)
    assert (told.code, len(told.err.splitlines())) == (2, 1)
    assert "000000.bin" in told.err
    assert not (tmp_path / "other").exists()
