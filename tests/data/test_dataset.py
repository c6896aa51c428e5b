import json

import numpy as np
import pytest
from fresh import printed

from vitral.core.streams import numpy_stream
from vitral.data import SPLITS, CorpusConfig, prepare, split_text
from vitral.data import dataset as dataset_module

NUM_CHARACTERS = 61_003


def write_text(path, num_characters=NUM_CHARACTERS):
    """A text of words, each block of which begins with its own number."""
    words = numpy_stream(5, "words").choice(["the", "cat", "sat", "não", "on\n"], size=num_characters).tolist()
    text = " ".join(words)[:num_characters]
    for begin in range(0, num_characters, 5_000):
        text = text[:begin] + f"[{begin:06d}]" + text[begin + 8 :]
    path.write_text(text[:num_characters], encoding="utf-8", newline="\n")
    return text[:num_characters]


@pytest.fixture
def text(tmp_path):
    return write_text(tmp_path / "my.txt")


def config(tmp_path, **options: object) -> CorpusConfig:
    return CorpusConfig.parse({"source": str(tmp_path / "my.txt"), **options})


def test_merges_come_from_the_training_blocks_only(tmp_path, text):
    begin, end = next(iter(split_text(len(text), "blocks")["test"]))
    changed = text[:begin] + "ZQ" * ((end - begin) // 2) + text[end:]
    (tmp_path / "my.txt").write_text(changed, encoding="utf-8", newline="\n")
    dataset = prepare(config(tmp_path, tokenizer="bpe"))
    assert not any(b"Z" in dataset.tokenizer.token_bytes(token) for token in range(256, dataset.tokenizer.vocab_size))


@pytest.mark.parametrize("tokenizer", ["char", {"name": "bpe", "vocab_size": 300}])
def test_the_second_time_nothing_is_encoded_again(tmp_path, text, monkeypatch, tokenizer):
    first = prepare(config(tmp_path, tokenizer=tokenizer))

    def never(*args, **kwargs):
        raise AssertionError("this was done before")

    monkeypatch.setattr(dataset_module, "encoded", lambda *_: map(never, [1]))
    second = prepare(config(tmp_path, tokenizer=tokenizer))
    assert second.describe() == first.describe()
    assert second.tokenizer == first.tokenizer
    for part in SPLITS:
        assert np.array_equal(second.splits[part].tokens, first.splits[part].tokens)


def test_a_damaged_cache_is_made_again(tmp_path, text, cache):
    first = prepare(config(tmp_path))
    expected = {part: first.splits[part].tokens.tolist() for part in SPLITS}
    del first
    (path,) = cache.rglob("test.bin")
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    second = prepare(config(tmp_path))
    assert {part: second.splits[part].tokens.tolist() for part in SPLITS} == expected


def test_what_a_run_records(tmp_path, text):
    dataset = prepare(config(tmp_path, tokenizer={"name": "bpe", "vocab_size": 5_000}))
    described = json.loads(json.dumps(dataset.describe()))
    assert described["name"] == "my.txt"
    assert described["bytes"] == len(text.encode())
    assert described["characters"] == NUM_CHARACTERS
    assert described["split"]["tokens"] == {part: dataset.splits[part].tokens.size for part in SPLITS}
    assert [described["split"][key] for key in ("method", "block", "seed")] == ["blocks", 5_000, 0]
    assert described["vocab_size"] < 5_000
    assert any("instead of 5,000" in note for note in described["notes"])


def test_importing_the_room_imports_no_heavy_package():
    code = (
        "import sys, vitral.data; "
        "print(sorted({'pooch', 'requests', 'tokenizers', 'scipy', 'matplotlib', 'jinja2'} & set(sys.modules)))"
    )
    assert printed(code).strip() == "[]"
