"""Which characters of a text are for training, which for validation, which for test: decided before tokenization.

A text is cut into blocks, and every block belongs to one part. The split does not depend on the seed of a run, so
that all runs on a text are measured on the same characters.
"""

from vitral.core.errors import UsageError
from vitral.core.streams import numpy_stream

PARTS = ("train", "validation", "test")
BLOCK = 5_000
"""Characters of a block."""
SPLIT_SEED = 0
"""The seed of the split, whatever the seed of the run."""

_MIN_BLOCKS = 3
_MIN_TAIL = 20


def split_text(num_characters: int, method: str) -> dict[str, list[tuple[int, int]]]:
    """Divide the characters of a text into blocks and the blocks into parts.

    `blocks`: one block in ten is for test and one in twenty for validation (at least one of each), drawn by a stream
    of seed 0. What is left over after the last whole block belongs to it, so that no part can be left with a scrap.
    `tail`: the last tenth is for test, the twentieth before it for validation, the rest for training.

    Args:
        num_characters: length of the text.
        method: `"blocks"` or `"tail"`.

    Returns:
        Part -> its blocks as (begin, end), sorted; together they cover every character once. Blocks are 5,000
        characters long, except the last of the text (`blocks`: up to 9,999) or of a part (`tail`: the rest).

    >>> {part: len(blocks) for part, blocks in split_text(100_000, "blocks").items()}
    {'train': 17, 'validation': 1, 'test': 2}

    Raises:
        UsageError: the text is too short to be split this way.
    """
    return _split_blocks(num_characters) if method == "blocks" else _split_tail(num_characters)


def runs_of_blocks(blocks: list[tuple[int, int]]) -> list[list[tuple[int, int]]]:
    """Group sorted blocks into runs in which each begins where the one before it ends.

    >>> runs_of_blocks([(0, 5), (5, 10), (15, 20)])
    [[(0, 5), (5, 10)], [(15, 20)]]
    """
    runs: list[list[tuple[int, int]]] = []
    for block in blocks:
        if runs and runs[-1][-1][1] == block[0]:
            runs[-1].append(block)
        else:
            runs.append([block])
    return runs


def _split_blocks(num_characters: int) -> dict[str, list[tuple[int, int]]]:
    num_blocks = num_characters // BLOCK
    if num_blocks < _MIN_BLOCKS:
        needed = _MIN_BLOCKS * BLOCK
        raise UsageError(
            f'the text has {num_characters:,} characters, split = "blocks" needs at least {needed:,}; '
            'give a longer text or use split = "tail"'
        )
    blocks = [(index * BLOCK, (index + 1) * BLOCK) for index in range(num_blocks)]
    blocks[-1] = (blocks[-1][0], num_characters)
    order = numpy_stream(SPLIT_SEED, "split").permutation(num_blocks).tolist()
    num_test = max(1, (num_blocks + 5) // 10)
    num_validation = max(1, (num_blocks + 10) // 20)
    chosen = {
        "test": order[:num_test],
        "validation": order[num_test : num_test + num_validation],
        "train": order[num_test + num_validation :],
    }
    return {part: [blocks[index] for index in sorted(chosen[part])] for part in PARTS}


def _split_tail(num_characters: int) -> dict[str, list[tuple[int, int]]]:
    if num_characters < _MIN_TAIL:
        raise UsageError(
            f'the text has {num_characters:,} characters, split = "tail" needs at least {_MIN_TAIL}; give a longer text'
        )
    test = num_characters - num_characters // 10
    validation = test - num_characters // 20
    borders = {"train": (0, validation), "validation": (validation, test), "test": (test, num_characters)}
    return {
        part: [(at, min(at + BLOCK, end)) for at in range(begin, end, BLOCK)] for part, (begin, end) in borders.items()
    }
