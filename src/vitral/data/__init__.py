"""Texts, tokenizers, splits, datasets and batches, and a report on a text."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.data.alphabet import UnseenCharacter
    from vitral.data.batches import Batches, Split, windows
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

__getattr__ = lazily(__name__)
