"""Row `encode`: text to token ids, characters."""

from collections.abc import Sequence

import numpy as np

from benchmarks.options import Options
from benchmarks.processes import shakespeare_corpus
from benchmarks.results import OURS, Goal, Section
from benchmarks.results import measure as measure_contenders
from benchmarks.timing import clocked
from vitral.data import CorpusConfig, build_tokenizer

NAMES = ("encode",)
DICTIONARY = "a dict, character by character"
MEGABYTE = 10**6
MEGABYTES, QUICK_MEGABYTES = 50, 1


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure the row.

    Raises:
        LeftOut: the complete Shakespeare is not here.
    """
    corpus = str(shakespeare_corpus().text)
    size = (QUICK_MEGABYTES if options.quick else MEGABYTES) * MEGABYTE
    text = (corpus * (1 + size // len(corpus)))[:size]
    megabytes = len(text.encode()) / MEGABYTE
    tokenizer = build_tokenizer(CorpusConfig(), corpus, [])
    ids = {character: token for token, character in enumerate(sorted(set(corpus)), start=1)}

    def by_dictionary() -> np.ndarray:
        return np.array([ids[character] for character in text], dtype=np.uint16)

    if not np.array_equal(tokenizer.encode(text[:MEGABYTE]), [ids[character] for character in text[:MEGABYTE]]):
        raise AssertionError("Vitral and the dict give different tokens")
    contenders = {
        OURS: clocked(lambda: tokenizer.encode(text), options.least_seconds),
        DICTIONARY: clocked(by_dictionary, options.least_seconds),
    }
    return [
        Section(
            "encode",
            f"{megabytes:,.1f} MB of UTF-8, {len(text):,} characters, into token ids",
            measure_contenders(contenders, options.rounds),
            unit="MB",
            work=megabytes,
            goals=(Goal("faster", 10, DICTIONARY), Goal("rate", 100)),
            notes=("both run on one core", f"{DICTIONARY}: a list, then an array, as nanoGPT prepares its data"),
        )
    ]
