"""From any text to batches of tokens: corpora, tokenizers, the split, the store, and a report on it all."""

from vitral.data.alphabet import UnseenCharacter
from vitral.data.batches import Batches, count_windows, windows
from vitral.data.bpe import BPETokenizer
from vitral.data.config import BPEConfig, ByteConfig, CharConfig, CorpusConfig, TokenizerConfig
from vitral.data.corpora import Corpus, corpus_names, load_corpus
from vitral.data.dataset import Dataset, encode_splits, prepare
from vitral.data.download import SOURCES, Source, cache_folder
from vitral.data.duplicates import Duplicates
from vitral.data.longtext import LongText, Text
from vitral.data.report import CharacterCount, CorpusReport, Lines, corpus_report
from vitral.data.split import BLOCK, PARTS, SPLIT_SEED, Blocks, split_text
from vitral.data.store import Split
from vitral.data.tokenizers import (
    PAD,
    ByteTokenizer,
    CharTokenizer,
    Tokenizer,
    build_tokenizer,
    tokenizer_from_plain,
)

__all__ = [
    "BLOCK",
    "PAD",
    "PARTS",
    "SOURCES",
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
    "Duplicates",
    "Lines",
    "LongText",
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
    "encode_splits",
    "load_corpus",
    "prepare",
    "split_text",
    "tokenizer_from_plain",
    "windows",
]
