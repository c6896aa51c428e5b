"""How a text is cut: its works, its splits, and its training text, drawn or chosen, with further texts.

The works are the files of a folder, the sections that chosen lines begin, or those of the table of contents: a line
`Contents` and the lines after it, up to where the first of them stands again. A work goes from the line that is its
title to the line that is the next title. Where the next title does not occur again word for word, the end of the work
is unknown, and it is omitted.

`num_works`, `share` and `also` of the configuration change the training split only, so losses of runs with different
training text can be compared.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from vitral.core.errors import UsageError
from vitral.core.files import sha256
from vitral.core.streams import numpy_stream
from vitral.data.config import CorpusConfig
from vitral.data.long_texts import Text, hash_text, pieces
from vitral.data.split import BLOCK, SPLIT_SEED, SPLITS, Blocks, Work, dealt, in_blocks, split_text, whole
from vitral.data.texts import Corpus

_CHOOSING = ("share", "num_works", "train_on", "draw")
"""Keys that choose the training text."""
_FEWEST = 3
"""Works below which none can be held out."""


def corpus_works(corpus: Corpus, config: CorpusConfig) -> list[Work]:
    """The works of a text, in its order: by `corpus.works`, else its files, else its table of contents.

    Empty where the configuration does not need them.

    Raises:
        UsageError: no line of the text is as `corpus.works` says, or the text has no works of its own.
    """
    if not needs_works(config):
        return []
    if config.works is not None:
        return works_from(corpus.text, config.works)
    if len(corpus.files) > 1:
        return list(corpus.files)
    if works := works_of(corpus.text):
        return works
    raise UsageError(
        "{name}: not a folder of files, and without a table of contents, so its works are not known; name the "
        'lines that begin them: corpus.works = ["CHAPTER *"]',
        name=corpus.name,
    )


def needs_works(config: CorpusConfig) -> bool:
    """Whether the works of a text must be known."""
    return config.split in ("works", "one-work") or config.num_works is not None


def refuse_unused(config: CorpusConfig) -> None:
    """Refuse keys of a configuration that would change nothing.

    Raises:
        UsageError: `works`, `draw`, `train_on` or `num_works` is not used.
    """
    one = config.split == "one-work"
    used = {
        "works": needs_works(config),
        "draw": config.is_drawn,
        "train_on": one,
        "num_works": not one or config.train_on is not None,
    }
    for key, is_used in used.items():
        if getattr(config, key) is not None and not is_used:
            raise UsageError(
                'corpus.{key}: changes nothing with split = "{split}" and the other keys; leave it out, or see '
                "docs/configuration.md",
                key=key,
                split=config.split,
            )


def works_of(text: Text) -> list[Work]:
    r"""The works of a table of contents, in the order of the text; none where there is no table.

    >>> [work.title for work in works_of("Contents\nHAMLET\nLEAR\n\nHAMLET\nto be\nLEAR\nnothing\n")]
    ['HAMLET', 'LEAR']
    """
    lines = [(begin, line.strip()) for begin, line in lines_of(text) if line]
    titles = [title for _, title in lines]
    try:
        start = [title.lower() for title in titles].index("contents") + 1
        again = titles.index(titles[start], start + 1)
    except (ValueError, IndexError):
        return []
    begins, search_from = list[int | None](), again
    for title in titles[start:again]:
        index = titles.index(title, search_from) if title in titles[search_from:] else None
        begins.append(None if index is None else lines[index][0])
        search_from = search_from if index is None else index + 1
    spans = zip(titles[start:], begins, [*begins[1:], len(text)], strict=False)
    return [Work(title, begin, end) for title, begin, end in spans if begin is not None and end is not None]


def works_from(text: Text, lines: Sequence[str]) -> list[Work]:
    r"""The works that lines begin; `*` in a line stands for any characters. Text before the first is of no work.

    >>> [(work.title, work.end) for work in works_from("by me\nCHAPTER I\nyes\nCHAPTER II\nno\n", ["CHAPTER *"])]
    [('CHAPTER I', 20), ('CHAPTER II', 34)]

    Raises:
        UsageError: no line of the text is like one of them.
    """
    patterns = [re.compile(".*".join(map(re.escape, line.split("*")))) for line in lines]
    begins = [(begin, line) for begin, line in lines_of(text) if any(one.fullmatch(line) for one in patterns)]
    for wanted, pattern in zip(lines, patterns, strict=True):
        if not any(pattern.fullmatch(line) for _, line in begins):
            raise UsageError(
                "corpus.works: no line of the text is like {line!r}; copy a line that begins a work exactly, including "
                "leading spaces",
                line=wanted,
            )
    ends = [*(begin for begin, _ in begins[1:]), len(text)]
    return [Work(title.strip(), begin, end) for (begin, title), end in zip(begins, ends, strict=True)]


def lines_of(text: Text) -> Iterator[tuple[int, str]]:
    """Every line with its offset, without trailing spaces."""
    begin, rest = 0, ""
    for piece in pieces(text):
        *lines, rest = (rest + piece).split("\n")
        for line in lines:
            yield begin, line.rstrip()
            begin += len(line) + 1
    yield begin, rest.rstrip()


def split_corpus(
    num_characters: int, config: CorpusConfig, works: Sequence[Work], records: Blocks | None = None
) -> tuple[dict[str, Blocks], dict[str, list[Work]]]:
    """The splits of a text by its configuration, and the works of each split where splits are by works.

    Splits are those of `split_text`, whole records, whole works held out, or parts of one work.

    Args:
        num_characters: length of the text.
        config: of the text.
        works: of the text.
        records: of the text, if it has them: one in ten is for test and one in twenty for validation, and only in
            training one counts as often as it is there.

    Raises:
        UsageError: the text is too short, or the works or records are too few.
    """
    if config.split == "works":
        of = held_out(works)
        held = {split: in_blocks((one.begin, one.end) for one in of[split]) for split in ("validation", "test")}
        return {"train": _outside(of["validation"] + of["test"], num_characters), **held}, of
    if config.split == "one-work":
        chosen = chosen_work(works, config.draw)
        splits, of = _split_one(chosen), dict[str, list[Work]]((split, [chosen]) for split in SPLITS)
        if config.train_on == "others":
            splits["train"] = _outside([chosen], num_characters)
            of["train"] = [work for work in works if work != chosen]
        return splits, of
    if records is not None:
        number = len(records.distinct)
        _require(number, _FEWEST, f"records = {config.records!r}")
        splits = dealt(records.distinct, "split", (number + 5) // 10, (number + 10) // 20)
        trained_on = np.isin(records.spans[:, 0], splits["train"].spans[:, 0])
        return {**splits, "train": records.chosen(trained_on)}, {}
    return split_text(num_characters, config.split), {}


def _outside(works: Sequence[Work], num_characters: int) -> Blocks:
    """The text that is in none of these works."""
    borders = [0, *sorted(border for work in works for border in (work.begin, work.end)), num_characters]
    spans = zip(borders[::2], borders[1::2], strict=True)
    return in_blocks((begin, end) for begin, end in spans if begin < end)


def held_out(works: Sequence[Work]) -> dict[str, list[Work]]:
    """Whole works for each split, drawn with seed 0 until test has a tenth of their text, validation a twentieth.

    Raises:
        UsageError: the works are too few.
    """
    _require(len(works), _FEWEST, 'split = "works"')
    order = numpy_stream(SPLIT_SEED, "works").permutation(len(works)).tolist()
    in_all, splits = sum(work.num_characters for work in works), dict[str, list[Work]]()
    for split, share, left in (("test", 0.1, 2), ("validation", 0.05, 1)):
        taken = [order.pop(0)]
        while sum(works[one].num_characters for one in taken) < share * in_all and len(order) > left:
            taken.append(order.pop(0))
        splits[split] = [works[one] for one in sorted(taken)]
    return {"train": [works[one] for one in sorted(order)], **splits}


def _require(number: int, needed: int, key: str) -> None:
    if number < needed:
        raise UsageError(
            "the text has {number} works or records; corpus.{key} needs at least {needed}",
            number=number,
            key=key,
            needed=needed,
        )


def chosen_work(works: Sequence[Work], draw: int | None) -> Work:
    """One work of those at least half as long as the longest: number `draw` of one fixed random order.

    Args:
        works: of a text.
        draw: number of the draw; None: the same as 0. Only after all works comes the first one again.

    Raises:
        UsageError: there is no work besides it.
    """
    _require(len(works), 2, 'split = "one-work"')
    least = max(work.num_characters for work in works) / 2
    long = [work for work in works if work.num_characters >= least]
    order = numpy_stream(SPLIT_SEED, "one work").permutation(len(long))
    return long[int(order[(draw or 0) % len(long)])]


def _split_one(work: Work) -> dict[str, Blocks]:
    """Three tenths of a work's blocks for test, one for validation, the rest of it for training."""
    blocks = in_blocks([(work.begin, work.end)])
    if len(blocks) < _FEWEST:
        raise UsageError(
            'the work {title!r} has {characters:,} characters; corpus.split = "one-work" needs at least {needed:,}',
            title=work.title,
            characters=work.num_characters,
            needed=_FEWEST * BLOCK,
        )
    return dealt(blocks, "split of one work", 3 * len(blocks) // 10, len(blocks) // 10)


class Cut(NamedTuple):
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
        UsageError: the text cannot be cut in this way: see `corpus_works`, `split_corpus`, `additions`; or too
            few works are long enough.
    """
    works = corpus_works(corpus, config)
    splits, by_split = split_corpus(len(corpus.text), config, works, corpus.records)
    training, drawn_from = splits["train"], list[str]()
    if config.num_works is not None:
        training, drawn_from = _of_works(works, training, config, config.num_works)
    elif config.share is not None:
        training = shared(training, config.share, config.draw)
    added = additions(config, text_hash, also, training)
    asked: dict[str, Any] = {"also": [*added]} if added else {}
    asked |= {key: value for key in _CHOOSING if (value := getattr(config, key)) is not None}
    trained_on = {
        "training_characters": training.num_characters,
        **({"works": drawn_from} if drawn_from else {}),
        "also": [
            {**other.record.plain(), "training_characters": blocks.num_characters} for other, blocks in added.values()
        ],
    }
    method = {"method": config.split, "block": BLOCK}
    if config.records:
        method = {"method": "records"}
    elif config.task is not None:
        method = {"method": "sequences", "block": config.task.span}
    key = [*method.values(), SPLIT_SEED]
    further = (
        asked or None,
        config.replacement and {"replacement": config.replacement},
        [[work.begin, work.end] for work in works] or None,
        by_split["test"][0].begin if config.split == "one-work" else None,
    )
    key += [each for each in further if each is not None]
    if config.records is not None:  # one text may be cut into records in several ways
        key += [sha256(one.records.spans.tobytes()) for one in (corpus, *also) if one.records is not None]
    return Cut(
        method=method,
        splits=splits,
        blocks={**splits, "train": training},
        others=[(other.text, blocks) for other, blocks in added.values()],
        works={split: [work.title for work in of] for split, of in by_split.items()},
        trained_on=trained_on if asked else {},
        key=key,
    )


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
    chosen: list[tuple[Work, Blocks]] = [parts[index] for index in sorted(order[:num_works].tolist())]
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
        UsageError: a text is the main text, whose test split would become training text, or is there twice, whole or
            as records; or `_part` refuses it.
    """
    added = dict[str, tuple[Corpus, Blocks]]()
    for name, corpus in zip(config.also or (), others, strict=True):
        digest = hash_text(corpus.text)
        if not corpus.text or digest in (text_hash, *added):
            raise UsageError("corpus.also: {name!r} is in the main text, or is given twice; leave it out", name=name)
        added[digest] = corpus, _part(corpus, config, training)
    return added


def _part(corpus: Corpus, config: CorpusConfig, training: Blocks) -> Blocks:
    """The share of a further text, or with `draw` as many characters as the main text has.

    Raises:
        UsageError: it is shorter than what is left of the main one.
    """
    blocks, wanted = corpus.records or whole(len(corpus.text)), training.num_characters
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
