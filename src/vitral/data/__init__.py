"""Texts, tokenizers, splits, datasets and batches, and a report on a text."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.data.alphabet import PAD, UnseenCharacter
    from vitral.data.batches import Batches, ShuffledBatches, Split, count_windows, windows
    from vitral.data.config import BPEConfig, ByteConfig, CharConfig, CorpusConfig, FileConfig, TokenizerConfig
    from vitral.data.corpora import Corpus, corpus_names, load_corpus
    from vitral.data.dataset import Dataset, prepare, prepare_recorded
    from vitral.data.duplicates import Duplicates
    from vitral.data.long_texts import LongText, Text
    from vitral.data.recorded import RecordedText, without_folders
    from vitral.data.report import CharacterCount, CorpusReport, LineStatistics, corpus_report
    from vitral.data.sources import SOURCES, Source, cache_folder
    from vitral.data.split import BLOCK, SPLIT_SEED, SPLITS, Blocks, split_text
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
    "PAD",
    "SOURCES",
    "SPLITS",
    "SPLIT_SEED",
    "BPEConfig",
    "Batches",
    "Blocks",
    "ByteConfig",
    "CharConfig",
    "CharacterCount",
    "Corpus",
    "CorpusConfig",
    "CorpusReport",
    "Dataset",
    "Duplicates",
    "FileConfig",
    "LineStatistics",
    "LongText",
    "RecordedText",
    "ShuffledBatches",
    "Source",
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

__getattr__ = lazily(
    __name__,
    {
        "BLOCK": "split",
        "BPEConfig": "config",
        "Batches": "batches",
        "Blocks": "split",
        "ByteConfig": "config",
        "CharConfig": "config",
        "CharacterCount": "report",
        "Corpus": "corpora",
        "CorpusConfig": "config",
        "CorpusReport": "report",
        "Dataset": "dataset",
        "Duplicates": "duplicates",
        "FileConfig": "config",
        "LineStatistics": "report",
        "LongText": "long_texts",
        "PAD": "alphabet",
        "RecordedText": "recorded",
        "SOURCES": "sources",
        "SPLITS": "split",
        "SPLIT_SEED": "split",
        "ShuffledBatches": "batches",
        "Source": "sources",
        "Split": "batches",
        "Text": "long_texts",
        "Tokenizer": "tokenizers",
        "TokenizerConfig": "config",
        "UnseenCharacter": "alphabet",
        "bpe_tokenizer": "tokenizers",
        "build_tokenizer": "tokenizers",
        "byte_tokenizer": "tokenizers",
        "cache_folder": "sources",
        "char_tokenizer": "tokenizers",
        "corpus_names": "corpora",
        "corpus_report": "report",
        "count_windows": "batches",
        "declaring": "tokenizers",
        "file_tokenizer": "tokenizers",
        "load_corpus": "corpora",
        "prepare": "dataset",
        "prepare_recorded": "dataset",
        "split_text": "split",
        "windows": "batches",
        "without_folders": "recorded",
    },
)
