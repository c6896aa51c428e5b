"""Texts as bytes: whatever a file holds, it comes back whole or is refused in one line."""

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reliability.conftest import Tally, scaled
from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, load_corpus, prepare
from vitral.data.long_texts import pieces

TOKENIZERS = ("char", "byte", {"name": "bpe", "vocab_size": 300})


def outcome(path: Path, tokenizer: object, newlines: str = "keep") -> str | None:
    """Prepare a text; gives the complaint, None where every character came back."""
    config = CorpusConfig.parse({"source": str(path), "tokenizer": tokenizer, "split": "tail", "newlines": newlines})
    try:
        corpus = load_corpus(config)
        dataset = prepare(config, corpus=corpus)
    except UsageError as error:
        return str(error)
    tokens = [int(token) for part in ("train", "validation", "test") for token in dataset.splits[part].tokens[:9000]]
    text = "".join(pieces(corpus.text))
    if len(text) <= 9000:
        assert dataset.tokenizer.decode(tokens) == text
    sample = text[:50_000]
    assert dataset.tokenizer.decode(dataset.tokenizer.encode(sample)) == sample
    assert all(part.tokens.max(initial=0) < dataset.tokenizer.vocab_size for part in dataset.splits.values())
    return None


@settings(max_examples=scaled(30, 6000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.sampled_from(TOKENIZERS), st.sampled_from(["lf", "keep"]))
def test_any_bytes(tmp_path: Path, tally: Tally, raw: bytes, tokenizer: object, newlines: str) -> None:
    tally("texts as bytes", 1)
    (tmp_path / "x.txt").write_bytes(raw)
    outcome(tmp_path / "x.txt", tokenizer, newlines)


@settings(max_examples=scaled(30, 14_000), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(min_size=20, max_size=300), st.sampled_from(TOKENIZERS))
def test_any_text_comes_back(tmp_path: Path, tally: Tally, text: str, tokenizer: object) -> None:
    tally("texts as bytes", 1)
    (tmp_path / "x.txt").write_bytes(text.encode("utf-8", "surrogatepass"))
    complaint = outcome(tmp_path / "x.txt", tokenizer)
    surrogate = any(0xD800 <= ord(character) <= 0xDFFF for character in text)
    mark = text.startswith("\ufeff")
    assert (complaint is None) or surrogate or mark or "\0" in text, complaint
