"""The training text: parts of a text's training split, drawn or chosen, and further texts.

`num_works`, `share` and `also` of the configuration change the training split only, so losses of runs with
different training text can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data.config import CorpusConfig
from vitral.data.corpora import Corpus
from vitral.data.long_texts import hash_text
from vitral.data.split import SPLIT_SEED, Blocks, whole
from vitral.data.works import Work


@dataclass(frozen=True)
class Addition:
    """An additional training text (`corpus.also`).

    Attributes:
        corpus: the text.
        blocks: its training blocks.
        text_hash: see `hash_text`.
    """

    corpus: Corpus
    blocks: Blocks
    text_hash: str

    def describe(self) -> dict[str, Any]:
        """The description saved with a run, JSON-ready."""
        return {
            "name": self.corpus.name,
            "bytes": self.corpus.num_bytes,
            "characters": len(self.corpus.text),
            "sha256": self.corpus.sha256,
            "training_characters": self.blocks.num_characters,
            **self.corpus.origin(),
        }


@dataclass(frozen=True)
class TrainingText:
    """The training blocks of a text.

    Attributes:
        blocks: of the training split, or what the configuration leaves of it.
        works: titles of the works they were drawn from, where `num_works` chose some.
    """

    blocks: Blocks
    works: tuple[str, ...] = ()


def restricted(blocks: Blocks, config: CorpusConfig, works: Sequence[Work] = ()) -> TrainingText:
    """The training blocks selected by `num_works` and `share`.

    Without `num_works`, a share takes the first blocks of a random order, so that a smaller share is always a subset of
    a larger one of the same draw.

    Raises:
        UsageError: too few works are long enough.
    """
    if config.num_works is not None:
        return _of_works(works, blocks, config, config.num_works)
    return TrainingText(blocks if config.share is None else shared(blocks, config.share, config.draw))


def _of_works(works: Sequence[Work], blocks: Blocks, config: CorpusConfig, num_works: int) -> TrainingText:
    """Equal parts of works drawn from those that are long enough; together the share of all of the training split."""
    parts = [(work, Blocks(blocks.inside(work.begin, work.end))) for work in works]
    each = 1 if config.share is None else max(1, round(config.share * blocks.num_characters) // num_works)
    parts = [(work, part) for work, part in parts if part.num_characters >= each]
    if len(parts) < num_works:
        raise UsageError(
            "corpus.num_works: {found} works have {characters:,} characters in the training split, and {wanted} are "
            "asked for; give fewer works or a smaller share",
            found=len(parts),
            characters=each,
            wanted=num_works,
        )
    draw = SPLIT_SEED if config.draw is None else config.draw
    order = numpy_stream(draw, "works trained on").permutation(len(parts))
    chosen: list[tuple[Work, Blocks]] = [parts[place] for place in sorted(order[:num_works].tolist())]
    taken = [part if config.share is None else drawn(part, each, draw, work.begin) for work, part in chosen]
    return TrainingText(Blocks(np.concatenate([part.spans for part in taken])), tuple(work.title for work, _ in chosen))


def shared(blocks: Blocks, share: float, draw: int | None = None) -> Blocks:
    """A share of the blocks; a subset of every larger share of the same draw.

    Args:
        blocks: a text.
        share: of it, above 0 and at most 1.
        draw: number of the random order; its share is exact, one block is cut. None: a fixed order, and whole blocks.

    >>> all_of_them = whole(50_000)
    >>> [len(shared(all_of_them, share)) for share in (0.01, 0.5, 1.0)]
    [1, 5, 10]
    >>> [shared(all_of_them, share, draw=1).num_characters for share in (0.01, 0.5, 1.0)]
    [500, 25000, 50000]
    """
    if draw is not None:
        return drawn(blocks, max(1, round(share * blocks.num_characters)), draw)
    order = numpy_stream(SPLIT_SEED, "share").permutation(len(blocks))
    return blocks.chosen(np.sort(order[: max(1, round(share * len(blocks)))]))


def drawn(blocks: Blocks, characters: int, draw: int, *of: int) -> Blocks:
    """So many characters of the blocks: the first of a random order, the last one cut.

    Args:
        blocks: with at least so many characters.
        characters: wanted.
        draw: number of the random order.
        of: numbers that tell several random orders of one draw apart.
    """
    spans = blocks.spans[numpy_stream(draw, "share", "drawn", *of).permutation(len(blocks))]
    ends = np.cumsum(spans[:, 1] - spans[:, 0])
    kept = spans[: int(np.searchsorted(ends, characters)) + 1].copy()
    kept[-1, 1] -= max(0, int(ends[len(kept) - 1]) - characters)
    return Blocks(kept[np.argsort(kept[:, 0])])


def additions(config: CorpusConfig, main: Corpus, others: Sequence[Corpus]) -> tuple[Addition, ...]:
    """The texts of `also`, already loaded, whole.

    Raises:
        UsageError: a text is the main text, whose test split would become training text, or is there twice.
    """
    added: list[Addition] = []
    known = {hash_text(main.text)} if others else set()
    for name, corpus in zip(config.also or (), others, strict=True):
        text_hash = hash_text(corpus.text)
        if text_hash in known:
            raise UsageError(
                "corpus.also: {name!r} is the main text itself, or is given twice; leave it out", name=name
            )
        known.add(text_hash)
        added.append(Addition(corpus, whole(len(corpus.text)), text_hash))
    return tuple(added)


def in_parts(added: Sequence[Addition], config: CorpusConfig, training: Blocks) -> tuple[Addition, ...]:
    """The further texts reduced to `share`: of each text, or with `draw` to as many characters as the main text has.

    Args:
        added: whole texts.
        config: of the main text.
        training: what is left of its training split.

    Raises:
        UsageError: a text is shorter than what is left of the main one.
    """
    if config.share is None:
        return tuple(added)
    if config.draw is None:
        return tuple(replace(one, blocks=shared(one.blocks, config.share)) for one in added)
    wanted = training.num_characters
    for one in added:
        if one.blocks.num_characters < wanted:
            raise UsageError(
                "corpus.also: {name} has {characters:,} characters; with corpus.draw each gives as many as the main "
                "one, {wanted:,}; give a smaller share",
                name=one.corpus.name,
                characters=one.blocks.num_characters,
                wanted=wanted,
            )
    return tuple(replace(one, blocks=drawn(one.blocks, wanted, config.draw)) for one in added)


def train_key(config: CorpusConfig, added: Sequence[Addition]) -> list[Any]:
    """The part of a dataset's fingerprint that depends on the training text; empty for the default."""
    chosen: Mapping[str, Any] = {
        "share": config.share,
        "also": [addition.text_hash for addition in added] or None,
        "num_works": config.num_works,
        "train_on": config.train_on,
        "draw": config.draw if config.is_drawn else None,
    }
    asked = {key: value for key, value in chosen.items() if value is not None}
    return [asked] if asked else []
