"""How a text is cut, and its training text: parts of the training split, drawn or chosen, and further texts.

`num_works`, `share` and `also` of the configuration change the training split only, so losses of runs with
different training text can be compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data.config import CorpusConfig
from vitral.data.corpora import Corpus
from vitral.data.long_texts import Text, hash_text
from vitral.data.split import BLOCK, SPLIT_SEED, Blocks, Work, whole
from vitral.data.works import corpus_works, split_corpus, works_by_split


@dataclass(frozen=True)
class Cut:
    """How a text and further ones are cut.

    Attributes:
        method: of the split, and the characters of a block, as plain data.
        splits: split -> its blocks.
        blocks: the same, with what the configuration leaves of the training split.
        others: further training texts and their blocks.
        works: where splits are by works, split -> titles of its works.
        trained_on: how the training split differs from the text's own, as plain data; empty if it does not.
        key: what the fingerprint of a dataset depends on, besides its text and tokenizer.
    """

    method: dict[str, Any]
    splits: dict[str, Blocks]
    blocks: dict[str, Blocks]
    others: list[tuple[Text, Blocks]]
    works: dict[str, list[str]]
    trained_on: dict[str, Any]
    key: list[Any]


def cut(config: CorpusConfig, corpus: Corpus, text_hash: str, also: Sequence[Corpus]) -> Cut:
    """Cut a text and further ones.

    Args:
        config: of the text.
        corpus: the text.
        text_hash: see `hash_text`.
        also: the further texts.

    Raises:
        UsageError: the text cannot be cut in this way: see `corpus_works`, `works_by_split`, `split_corpus`,
            `restricted` and `additions`.
    """
    works = corpus_works(corpus, config)
    by_split = works_by_split(config, works)
    splits = split_corpus(len(corpus.text), config, by_split)
    training, drawn_from = restricted(splits["train"], config, works)
    added = additions(config, text_hash, also, training)
    chosen: Mapping[str, Any] = {
        "share": config.share,
        "also": [*added] or None,
        "num_works": config.num_works,
        "train_on": config.train_on,
        "draw": config.draw if config.is_drawn else None,
    }
    asked = {key: value for key, value in chosen.items() if value is not None}
    trained_on = {
        "training_characters": training.num_characters,
        **({"works": drawn_from} if drawn_from else {}),
        "also": [
            {**other.record.plain(), "training_characters": blocks.num_characters} for other, blocks in added.values()
        ],
    }
    method = {"method": config.split, "block": BLOCK}
    if config.task is not None:
        method = {"method": "sequences", "block": config.task.span}
    key = [*method.values(), SPLIT_SEED]
    key += [asked] if asked else []
    key += [{"replacement": config.replacement}] if config.replacement is not None else []
    key += [[[work.begin, work.end] for work in works]] if works else []
    key += [by_split["test"][0].begin] if config.split == "one-work" else []
    return Cut(
        method=method,
        splits=splits,
        blocks={**splits, "train": training},
        others=[(other.text, blocks) for other, blocks in added.values()],
        works={split: [work.title for work in of] for split, of in by_split.items()},
        trained_on=trained_on if asked else {},
        key=key,
    )


def restricted(blocks: Blocks, config: CorpusConfig, works: Sequence[Work] = ()) -> tuple[Blocks, list[str]]:
    """The training blocks selected by `num_works` and `share`, and the titles of the works that were drawn.

    Without `num_works`, a share takes the first blocks of a random order, so that a smaller share is always a subset of
    a larger one of the same draw.

    Raises:
        UsageError: too few works are long enough.
    """
    if config.num_works is not None:
        return _of_works(works, blocks, config, config.num_works)
    return (blocks if config.share is None else shared(blocks, config.share, config.draw)), []


def _of_works(works: Sequence[Work], blocks: Blocks, config: CorpusConfig, num_works: int) -> tuple[Blocks, list[str]]:
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
    return Blocks(np.concatenate([part.spans for part in taken])), [work.title for work, _ in chosen]


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


def additions(
    config: CorpusConfig, text_hash: str, others: Sequence[Corpus], training: Blocks
) -> dict[str, tuple[Corpus, Blocks]]:
    """By its hash each text of `also`, already loaded, and its training blocks: whole, or with `share` a part of it.

    Args:
        config: of the main text.
        text_hash: of the main text.
        others: the texts.
        training: what is left of the training split of the main text.

    Raises:
        UsageError: a text is the main text, whose test split would become training text, or is there twice; or `_part`
            refuses it.
    """
    added = dict[str, tuple[Corpus, Blocks]]()
    for name, corpus in zip(config.also or (), others, strict=True):
        found = hash_text(corpus.text)
        if found in (text_hash, *added):
            raise UsageError(
                "corpus.also: {name!r} is the main text itself, or is given twice; leave it out", name=name
            )
        added[found] = corpus, _part(corpus, config, training)
    return added


def _part(corpus: Corpus, config: CorpusConfig, training: Blocks) -> Blocks:
    """The share of a further text, or with `draw` as many characters as the main text has.

    Raises:
        UsageError: it is shorter than what is left of the main one.
    """
    blocks, wanted = whole(len(corpus.text)), training.num_characters
    if config.share is None:
        return blocks
    if config.draw is None:
        return shared(blocks, config.share)
    if blocks.num_characters < wanted:
        raise UsageError(
            "corpus.also: {name} has {characters:,} characters; with corpus.draw each gives as many as the main "
            "one, {wanted:,}; give a smaller share",
            name=corpus.name,
            characters=blocks.num_characters,
            wanted=wanted,
        )
    return drawn(blocks, wanted, config.draw)
