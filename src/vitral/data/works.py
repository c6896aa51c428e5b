"""The works of a text: the files of a folder, the sections that chosen lines begin, or those of its table of contents.

A table of contents is a line `Contents` and the lines after it, up to where the first of them stands again. A work goes
from the line that is its title to the line that is the next title. Where the next title does not occur again word for
word, the end of the work is unknown, and it is omitted.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream
from vitral.data.config import CorpusConfig
from vitral.data.corpora import Corpus
from vitral.data.long_texts import Text, pieces
from vitral.data.split import BLOCK, SPLIT_SEED, SPLITS, Blocks, Work, dealt, in_blocks, split_text

HEAD = 200_000
"""Characters in which a table of contents begins, and which it has at most."""
BY_WORKS = ("works", "one-work")
"""Splits for which the works of a text must be known."""
_FEWEST = 3
"""Works below which none can be held out."""


def corpus_works(corpus: Corpus, config: CorpusConfig) -> list[Work]:
    """The works of a text, in its order: by `corpus.works`, else its files, else its table of contents.

    Empty where the configuration does not need them.

    Raises:
        UsageError: no line of the text is as `corpus.works` says, or the text has no works of its own.
    """
    if config.split not in BY_WORKS and config.num_works is None:
        return []
    if config.works is not None:
        return works_from(corpus.text, config.works)
    if len(corpus.files) > 1:
        return list(corpus.files)
    found = works_of(corpus.text)
    if not found:
        raise UsageError(
            "{name}: not a folder of files, and without a table of contents, so its works are not known; name the "
            'lines that begin them: corpus.works = ["CHAPTER *"]',
            name=corpus.name,
        )
    return found


def refuse_unused(config: CorpusConfig) -> None:
    """Refuse keys of a configuration that would change nothing.

    Raises:
        UsageError: `works` or `draw` is not used, or `num_works` is given where one work is trained on.
    """
    if config.works is not None and config.split not in BY_WORKS and config.num_works is None:
        raise UsageError(
            'corpus.works: split = {split!r} does not need the works; set split = "works" or "one-work", or num_works, '
            "or leave works out",
            split=config.split,
        )
    if config.num_works is not None and config.split == "one-work" and config.train_on is None:
        raise UsageError(
            'corpus.num_works: split = "one-work" trains on the rest of one work; leave num_works out, or set '
            'train_on = "others" to draw among the other works'
        )
    if config.draw is not None and not config.is_drawn:
        raise UsageError(
            'corpus.draw: nothing is drawn; set share, num_works or split = "one-work" too, or leave draw out'
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
    if lines[start][0] >= HEAD or lines[again][0] - lines[start][0] >= HEAD:
        return []
    begins, place = list[int | None](), again
    for title in titles[start:again]:
        found = titles.index(title, place) if title in titles[place:] else None
        begins.append(None if found is None else lines[found][0])
        place = place if found is None else found + 1
    spans = zip(titles[start:], begins, [*begins[1:], len(text)], strict=False)
    return [Work(title, begin, end) for title, begin, end in spans if begin is not None and end is not None]


def works_from(text: Text, lines: Sequence[str]) -> list[Work]:
    r"""The works that lines begin; `*` in a line stands for any characters. Text before the first is of no work.

    >>> [(work.title, work.end) for work in works_from("by me\nCHAPTER I\nyes\nCHAPTER II\nno\n", ["CHAPTER *"])]
    [('CHAPTER I', 20), ('CHAPTER II', 34)]

    Raises:
        UsageError: no line of the text is like one of them.
    """
    patterns = {line: re.compile(".*".join(map(re.escape, line.split("*")))) for line in lines}
    begins = [(begin, line) for begin, line in lines_of(text) if any(one.fullmatch(line) for one in patterns.values())]
    for wanted, pattern in patterns.items():
        if not any(pattern.fullmatch(line) for _, line in begins):
            raise UsageError(
                "corpus.works: no line of the text reads {line!r}; copy a line exactly, including leading spaces",
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


def works_by_split(config: CorpusConfig, works: Sequence[Work]) -> dict[str, list[Work]]:
    """The works of each split; empty where splits are not by works.

    Raises:
        UsageError: the works are too few.
    """
    if config.split == "works":
        return held_out(works)
    if config.split != "one-work":
        return {}
    chosen = chosen_work(works, config.draw)
    others = [work for work in works if work != chosen]
    return {split: [chosen] for split in SPLITS} | ({"train": others} if config.train_on == "others" else {})


def split_corpus(num_characters: int, config: CorpusConfig, works: Mapping[str, Sequence[Work]]) -> dict[str, Blocks]:
    """The splits of a text by its configuration: `split_text`, the sequences of a task, or whole works held out.

    Args:
        num_characters: length of the text.
        config: of the text.
        works: those of each split, see `works_by_split`.

    Raises:
        UsageError: the text is too short.
    """
    if config.split == "one-work":
        found = _split_one(works["test"][0])
        return found | ({"train": _outside(works["test"], num_characters)} if config.train_on == "others" else {})
    if config.task is not None:
        sequences = split_text(num_characters, "blocks", config.task.span)
        return {split: Blocks(blocks.spans, apart=True) for split, blocks in sequences.items()}
    if config.split != "works":
        return split_text(num_characters, config.split)
    held = {split: works[split] for split in ("validation", "test")}
    rest = _outside([work for some in held.values() for work in some], num_characters)
    return {"train": rest, **{split: in_blocks((one.begin, one.end) for one in some) for split, some in held.items()}}


def _outside(works: Sequence[Work], num_characters: int) -> Blocks:
    """The text that is in none of these works."""
    borders = [0, *sorted(place for work in works for place in (work.begin, work.end)), num_characters]
    spans = zip(borders[::2], borders[1::2], strict=True)
    return in_blocks((begin, end) for begin, end in spans if begin < end)


def held_out(works: Sequence[Work]) -> dict[str, list[Work]]:
    """Whole works for each split, drawn with seed 0 until test has a tenth of their text, validation a twentieth.

    Raises:
        UsageError: the works are too few.
    """
    _require(works, _FEWEST, "works")
    order = numpy_stream(SPLIT_SEED, "works").permutation(len(works)).tolist()
    in_all, found = sum(work.num_characters for work in works), dict[str, list[Work]]()
    for split, share, left in (("test", 0.1, 2), ("validation", 0.05, 1)):
        taken = [order.pop(0)]
        while sum(works[one].num_characters for one in taken) < share * in_all and len(order) > left:
            taken.append(order.pop(0))
        found[split] = [works[one] for one in sorted(taken)]
    return {"train": [works[one] for one in sorted(order)], **found}


def _require(works: Sequence[Work], needed: int, split: str) -> None:
    if len(works) < needed:
        raise UsageError(
            'the text has {works} works; corpus.split = "{split}" needs at least {needed}',
            works=len(works),
            split=split,
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
    _require(works, 2, "one-work")
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
