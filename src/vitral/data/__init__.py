"""Texts, tokenizers, splits, datasets and batches, and a report on a text."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.data.alphabet import PAD, UnseenCharacter
    from vitral.data.batches import Batches, ShuffledBatches, Split, count_windows, windows
    from vitral.data.byte_pairs import BPETokenizer
    from vitral.data.config import BPEConfig, ByteConfig, CharConfig, CorpusConfig, FileConfig, TokenizerConfig
    from vitral.data.corpora import Corpus, corpus_names, load_corpus
    from vitral.data.dataset import Dataset, prepare, prepare_recorded
    from vitral.data.duplicates import Duplicates
    from vitral.data.file_tokenizer import FileTokenizer
    from vitral.data.long_texts import LongText, Text
    from vitral.data.recorded import RecordedText, without_folders
    from vitral.data.report import CharacterCount, CorpusReport, LineStatistics, corpus_report
    from vitral.data.sources import SOURCES, Source, cache_folder
    from vitral.data.split import BLOCK, SPLIT_SEED, SPLITS, Blocks, split_text
    from vitral.data.tokenizers import (
        ByteTokenizer,
        CharTokenizer,
        DeclaringTokenizer,
        Tokenizer,
        build_tokenizer,
        tokenizer_from_plain,
    )

__all__ = [
    "BLOCK",
    "PAD",
    "SOURCES",
    "SPLITS",
    "SPLIT_SEED",
    "BPEConfig",
    "BPETokenizer",
    "Batches",
    "Blocks",
    "ByteConfig",
    "ByteTokenizer",
    "CharConfig",
    "CharTokenizer",
    "CharacterCount",
    "Corpus",
    "CorpusConfig",
    "CorpusReport",
    "Dataset",
    "DeclaringTokenizer",
    "Duplicates",
    "FileConfig",
    "FileTokenizer",
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
    "build_tokenizer",
    "cache_folder",
    "corpus_names",
    "corpus_report",
    "count_windows",
    "load_corpus",
    "prepare",
    "prepare_recorded",
    "split_text",
    "tokenizer_from_plain",
    "windows",
    "without_folders",
]

__getattr__ = lazily(
    __name__,
    {
        "BLOCK": "split",
        "BPEConfig": "config",
        "BPETokenizer": "byte_pairs",
        "Batches": "batches",
        "Blocks": "split",
        "ByteConfig": "config",
        "ByteTokenizer": "tokenizers",
        "CharConfig": "config",
        "CharTokenizer": "tokenizers",
        "CharacterCount": "report",
        "Corpus": "corpora",
        "CorpusConfig": "config",
        "CorpusReport": "report",
        "Dataset": "dataset",
        "DeclaringTokenizer": "tokenizers",
        "Duplicates": "duplicates",
        "FileConfig": "config",
        "FileTokenizer": "file_tokenizer",
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
        "build_tokenizer": "tokenizers",
        "cache_folder": "sources",
        "corpus_names": "corpora",
        "corpus_report": "report",
        "count_windows": "batches",
        "load_corpus": "corpora",
        "prepare": "dataset",
        "prepare_recorded": "dataset",
        "split_text": "split",
        "tokenizer_from_plain": "tokenizers",
        "windows": "batches",
        "without_folders": "recorded",
    },
)
