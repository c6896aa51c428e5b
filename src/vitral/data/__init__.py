"""Texts, tokenizers, splits, datasets and batches, and a report on a text."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.data.alphabet import UnseenCharacter
    from vitral.data.batches import Batches, Split, count_windows, windows
    from vitral.data.config import BPEConfig, ByteConfig, CorpusConfig, TokenizerConfig
    from vitral.data.corpora import corpus_names, load_corpus
    from vitral.data.dataset import Dataset, prepare, prepare_recorded, without_folders
    from vitral.data.long_texts import Text
    from vitral.data.report import CorpusReport, corpus_report
    from vitral.data.sources import SOURCES, cache_folder
    from vitral.data.split import BLOCK, SPLITS, Blocks, split_text
    from vitral.data.texts import Corpus
    from vitral.data.tokenizers import (
        Tokenizer,
        bpe_tokenizer,
        build_tokenizer,
        byte_tokenizer,
        char_tokenizer,
        declaring,
        file_tokenizer,
    )

__all__ = [
    "BLOCK",
    "SOURCES",
    "SPLITS",
    "BPEConfig",
    "Batches",
    "Blocks",
    "ByteConfig",
    "Corpus",
    "CorpusConfig",
    "CorpusReport",
    "Dataset",
    "Split",
    "Text",
    "Tokenizer",
    "TokenizerConfig",
    "UnseenCharacter",
    "bpe_tokenizer",
    "build_tokenizer",
    "byte_tokenizer",
    "cache_folder",
    "char_tokenizer",
    "corpus_names",
    "corpus_report",
    "count_windows",
    "declaring",
    "file_tokenizer",
    "load_corpus",
    "prepare",
    "prepare_recorded",
    "split_text",
    "windows",
    "without_folders",
]

__getattr__ = lazily(__name__)
