"""Bits per byte are of the text as it is given, whatever the tokenizer leaves out or changes."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers

from vitral.data import Split, Tokenizer, char_tokenizer, file_tokenizer
from vitral.evaluation import Masking, evaluate_split
from vitral.evaluation.measures import sizes_in_text
from vitral.model import ModelConfig, Transformer

TEXT = "The ﬁne cat — “sat”, 日本!  The hat  sat on é. "


def pieces(**options: Any) -> Tokenizer:
    letters = ["<unk>", "▁", *"thecasonfi", "th"]
    engine = Engine(models.BPE({letter: index for index, letter in enumerate(letters)}, [("t", "h")], **options))
    steps = [normalizers.NFKC(), normalizers.Lowercase(), normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    engine.normalizer = normalizers.Sequence(steps)
    engine.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return file_tokenizer(engine.to_str(), len(letters), 0)


def words() -> Tokenizer:
    engine = Engine(models.WordLevel({"?": 0, "The": 1, "cat": 2}, "?"))
    engine.pre_tokenizer = pre_tokenizers.Whitespace()
    return file_tokenizer(engine.to_str(), 3, 0)


TOKENIZERS: dict[str, Callable[[], tuple[Tokenizer, str | None]]] = {
    "unknown letters": lambda: (pieces(unk_token="<unk>"), None),
    "unknown letters in one token": lambda: (pieces(unk_token="<unk>", fuse_unk=True), None),
    "words without the spaces between them": lambda: (words(), None),
    "replaced letters": lambda: (char_tokenizer(" .Tacehnost"), "."),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_all_of_the_text_is_counted_once(name: str) -> None:
    tokenizer, replacement = TOKENIZERS[name]()
    tokens = tokenizer.encode(TEXT, replacement=replacement)
    assert tokenizer.decode(tokens) != TEXT
    characters, sizes = sizes_in_text(tokenizer, TEXT, tokens, replacement)
    assert characters.size == sizes.size == tokens.size
    assert (int(characters.sum()), int(sizes.sum())) == (len(TEXT), len(TEXT.encode()))
    assert (characters >= 0).all()
    bounds = [0, *characters.cumsum().tolist()]
    parts = [TEXT[begin:end] for begin, end in pairwise(bounds)]
    assert [len(part.encode()) for part in parts] == sizes.tolist()


@pytest.mark.parametrize("mask", ["causal", {"name": "prefix", "length": 3}])
@pytest.mark.parametrize("masking", [None, Masking(0.3, 0)])
def test_what_is_scored_is_what_is_counted(mask: Any, masking: Masking | None) -> None:
    """Sizes that are powers of two show which places were counted: those whose own tokens are scored."""
    tokens = np.arange(29)
    tokenizer = char_tokenizer("".join(map(chr, range(97, 97 + 28))))
    config = {"context_length": 5, "d_model": 6, "num_heads": 2, "num_layers": 1, "attention": {"mask": mask}}
    model = Transformer(ModelConfig.parse(config), tokenizer.vocab_size).eval()
    split = Split(tokens, np.array([[0, 12], [13, 29]], dtype=np.int64))
    ones = np.ones(29, dtype=np.int64)
    result = evaluate_split(model, split, tokenizer, masking=masking, sizes=(ones, 2**tokens), batch_tokens=7)
    own = evaluate_split(model, split, tokenizer, masking=masking)
    assert result.loss == pytest.approx(own.loss)
    assert result.num_characters == result.num_targets == own.num_targets
    scored = [token for token in range(29) if result.num_bytes >> token & 1]
    assert sum(len(tokenizer.token_bytes(token)) for token in scored) == own.num_bytes
    if masking is None:
        first = 0 if mask == "causal" else 2
        offsets = [token - begin for begin, end in ((0, 12), (13, 29)) for token in range(begin + 1, end)]
        assert len(scored) == sum((offset - 1) % 5 >= first for offset in offsets)
