"""Tokens that nanoGPT, llm.c, modded-nanogpt and litgpt have made are trained on as they are."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from vitral.core.errors import UsageError
from vitral.data import (
    SPLITS,
    CorpusConfig,
    bpe_tokenizer,
    corpus_report,
    load_corpus,
    prepare,
    prepare_recorded,
    shards,
)
from vitral.data.engines import learn_merges

TEXTS = {
    "train_1": "the cat sat on the mat, não é? 🪟\n" * 90,
    "train_2": "and so on, it sang\n" * 70,
    "val": "the end of the sea\n" * 40,
}
TOKENIZER = bpe_tokenizer(learn_merges(list(TEXTS.values()), 300))
IDS = {name: TOKENIZER.encode(text) for name, text in TEXTS.items()}
Write = Callable[[Path, Mapping[str, np.ndarray]], None]


def nanogpt(folder: Path, ids: Mapping[str, np.ndarray]) -> None:
    for name, tokens in ids.items():
        tokens.astype("<u2").tofile(folder / f"{name}.bin")


def llm_c(folder: Path, ids: Mapping[str, np.ndarray], magic: int = 20240520, dtype: str = "<u2") -> None:
    for name, tokens in ids.items():
        header = np.zeros(256, "<i4")
        header[:3] = magic, 1, tokens.size
        (folder / f"fineweb_{name}.bin").write_bytes(header.tobytes() + tokens.astype(dtype).tobytes())


def llama(folder: Path, ids: Mapping[str, np.ndarray]) -> None:
    llm_c(folder, ids, 20240801, "<u4")


def litdata(folder: Path, ids: Mapping[str, np.ndarray]) -> None:
    """Two folders with an index; a chunk has its number of items, where each begins, and the tokens."""
    for split in ("train", "val"):
        (folder / split).mkdir()
        chunks = []
        for number, tokens in enumerate(tokens for name, tokens in ids.items() if name.startswith(split)):
            file, header = f"chunk-0-{number}.bin", np.array([1, 12, 12 + 4 * tokens.size], "<u4")
            (folder / split / file).write_bytes(header.tobytes() + tokens.astype("<i4").tobytes())
            chunks.append({"filename": file, "chunk_size": 1, "dim": tokens.size, "chunk_bytes": 4 * tokens.size})
        index = {"config": {"data_format": ["no_header_tensor:16"]}, "chunks": chunks}
        (folder / split / "index.json").write_text(json.dumps(index))


def made(folder: Path, write: Write = nanogpt, ids: Mapping[str, np.ndarray] = IDS) -> CorpusConfig:
    folder.mkdir()
    write(folder, ids)
    (folder / "tokenizer.json").write_text(TOKENIZER.document, encoding="utf-8")
    return CorpusConfig.parse({"source": str(folder), "tokenizer": "file"})


@pytest.mark.parametrize("write", [nanogpt, llm_c, llama, litdata])
def test_tokens_and_text_are_those_that_were_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    monkeypatch.setattr(shards, "PIECE", 7)
    config = made(tmp_path / "shards", write)
    dataset, corpus = prepare(config), load_corpus(config)
    parts = {"train": ["train_1", "train_2"], "validation": ["val"], "test": ["val"]}
    text = "".join(TEXTS[name] for split in SPLITS for name in parts[split])
    assert (len(corpus.text), corpus.text[50:900]) == (len(text), text[50:900])
    for split, names in parts.items():
        tokens, segments = dataset.splits[split].tokens, dataset.splits[split].segments.tolist()
        assert [tokens[begin:end].tolist() for begin, end in segments] == [IDS[name].tolist() for name in names]
        assert [text[begin:end] for begin, end in dataset.blocks[split]] == [TEXTS[name] for name in names]
    report = corpus_report(dataset, corpus.text, context_length=8, batch_size=2)
    assert report.characters["train"] == len(TEXTS["train_1"] + TEXTS["train_2"])
    again = prepare_recorded(config, dataset.describe(), tokenizer=dataset.tokenizer, run_folder=tmp_path)
    assert again.describe() == dataset.describe()
    assert again.describe()["split"]["method"] == "files"


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    config = made(tmp_path / "shards")
    for changed in ({"tokenizer": "char"}, {"share": 0.5}, {"split": "tail"}):
        with pytest.raises(UsageError, match=next(iter(changed))):
            prepare(CorpusConfig.parse({**config.plain(), **changed}))
    with pytest.raises(UsageError, match="another tokenizer"):
        prepare(config, tokenizer=TOKENIZER)
    wrong = [{"train": IDS["val"]}, {**IDS, "val": np.array([300])}, {**IDS, "val": IDS["val"][:0]}]
    for number, ids in enumerate(wrong):
        with pytest.raises(UsageError, match=r"validation|is 300|cannot be read"):
            load_corpus(made(tmp_path / str(number), ids=ids))
    litdata(tmp_path / "shards", IDS)
    (tmp_path / "shards" / "train" / "index.json").write_text('{"config": {"data_format": ["jpeg"]}}')
    with pytest.raises(UsageError, match="cannot be read"):
        load_corpus(config)
    (tmp_path / "shards" / "tokenizer.json").unlink()
    with pytest.raises(UsageError, match=r"tokenizer\.json"):
        load_corpus(config)


def test_other_tokens_are_another_text(tmp_path: Path) -> None:
    config = made(tmp_path / "shards")
    dataset = prepare(config)
    nanogpt(tmp_path / "shards", {"val": IDS["val"][::-1]})
    with pytest.raises(UsageError, match="SHA-256"):
        prepare_recorded(config, dataset.describe(), tokenizer=dataset.tokenizer, run_folder=tmp_path)
