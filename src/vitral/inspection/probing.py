"""What a linear probe reads from activations that no count of tokens contains, beside controls of the probe itself.

Three tasks, for each of which a probe (`vitral.inspection.classification.linear_probe`) is fitted on windows of the
training split and scored on windows of the test split:

    order       is a window as written, or are its words in random order? Both have the same tokens, so counting them is
                right in one half of the cases
    word begin  tokens since the word began, at one position: 0, 1, 2, or 3 and more; on the left side
    word end    tokens until the word ends, counted the same way; on the right side, where a causal mask sees nothing

The probe itself must not have learned the task (Hewitt & Liang 2019). So each probe has beside it the same probe on
the untrained model, a probe that sees the current token alone (or token counts), and a control task: classes drawn at
random for each pair of tokens, as frequent as the task's. A probe that is as good at the control task has memorised.
"""

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int

from vitral.core.streams import numpy_stream
from vitral.data import Split, Tokenizer
from vitral.inspection.attention import landmarks
from vitral.inspection.classification import final_activations, linear_probe, mean_activations, token_frequencies
from vitral.inspection.windows import spread_windows
from vitral.model import Transformer

FARTHEST = 3
"""Tokens to the border of a word, from which on they are one class."""
SPLITS: tuple[str, ...] = ("train", "validation", "test")
Windows = Int[np.ndarray, "windows time"]


def linear_probes(
    model: Transformer,
    fresh: Transformer,
    tokenizer: Tokenizer,
    splits: Mapping[str, Split],
    sizes: Mapping[str, int],
) -> dict[str, Any] | None:
    """The accuracy of every probe on every task.

    Args:
        model: in evaluation mode.
        fresh: the same before its first step.
        tokenizer: of the model; gives the borders of words.
        splits: "train", "validation" and "test".
        sizes: by split, the number of windows, at most.

    Returns:
        By task (`order`, `word begin`, `word end`) and probe what `linear_probe` returns: `trained`, `untrained`,
        `tokens`, and `control`, the trained model's on the control task (none for `order`). None where a split has too
        few windows.
    """
    time = model.config.context_length
    windows = {name: spread_windows(splits[name], time, sizes[name]).numpy() for name in SPLITS}
    if time < 2 * (FARTHEST + 1) or min(map(len, windows.values())) < 2 * (FARTHEST + 1):
        return None
    word = landmarks(tokenizer).word.numpy()
    models = {"trained": model, "untrained": fresh}
    return {"order": _order(models, windows, word), **_borders(models, windows, word)}


def _order(models: Mapping[str, Transformer], windows: Mapping[str, Windows], word: np.ndarray) -> dict[str, Any]:
    mixed, classes = {}, {}
    for name, rows in windows.items():
        stream = numpy_stream(0, "order of words", name)
        classes[name] = np.arange(len(rows)) % 2
        mixed[name] = np.stack(
            [with_mixed_words(row, word, stream) if odd else row for row, odd in zip(rows, classes[name], strict=True)]
        )
    features = {
        name: {part: mean_activations(model, torch.from_numpy(rows)) for part, rows in mixed.items()}
        for name, model in models.items()
    }
    vocab = models["trained"].vocab_size
    features["tokens"] = {part: token_frequencies(rows, vocab) for part, rows in mixed.items()}
    return {name: _probe(each, classes) for name, each in features.items()}


def with_mixed_words(row: Int[np.ndarray, " time"], word: Bool[np.ndarray, " vocab"], stream: np.random.Generator):
    """The row with its whole words in random order; what is before the first and after the last border stays.

    A word begins with a token that begins with a space or a line break, so the tokens stay the same.
    """
    borders = np.flatnonzero(word[row])
    if len(borders) < 2:
        return row
    pieces = [row[begin:end] for begin, end in pairwise(borders.tolist())]
    mixed = [pieces[index] for index in stream.permutation(len(pieces))]
    return np.concatenate([row[: borders[0]], *mixed, row[borders[-1] :]])


def _borders(models: Mapping[str, Transformer], windows: Mapping[str, Windows], word: np.ndarray) -> dict[str, Any]:
    """The tasks `word begin` and `word end`, at the middle of each window."""
    vocab, middle = models["trained"].vocab_size, windows["train"].shape[1] // 2
    features = {
        name: {part: activations_at(model, rows, middle) for part, rows in windows.items()}
        for name, model in models.items()
    }
    features["tokens"] = {part: token_frequencies(rows[:, [middle]], vocab) for part, rows in windows.items()}
    found: dict[str, Any] = {}
    for task, distance in (("word begin", since_border), ("word end", until_border)):
        classes = {part: distance(word[rows], middle) for part, rows in windows.items()}
        probes = {name: _probe(features[name], classes) for name in ("tokens", *models)}
        pairs = {part: rows[:, middle - 1 : middle + 1] for part, rows in windows.items()}
        found[task] = probes | {"control": _probe(features["trained"], random_classes(pairs, classes, task))}
    return found


def _probe(features: Mapping[str, np.ndarray], classes: Mapping[str, np.ndarray]) -> dict[str, Any]:
    return linear_probe(*((features[part], classes[part]) for part in SPLITS))


def activations_at(model: Transformer, rows: Windows, position: int) -> np.ndarray:
    """The activations after the final norm at one position of each row, float64."""
    return final_activations(model, torch.from_numpy(rows), lambda seen: seen[:, position].double())


def since_border(begins: Bool[np.ndarray, "windows time"], middle: int) -> Int[np.ndarray, " windows"]:
    """Tokens from the last beginning of a word at or before the position, FARTHEST at most."""
    return _steps(begins[:, middle - np.arange(FARTHEST)])


def until_border(begins: Bool[np.ndarray, "windows time"], middle: int) -> Int[np.ndarray, " windows"]:
    """Tokens between the position and the next beginning of a word, FARTHEST at most."""
    return _steps(begins[:, middle + 1 + np.arange(FARTHEST)])


def _steps(begins: Bool[np.ndarray, "windows steps"]) -> Int[np.ndarray, " windows"]:
    return np.where(begins.any(axis=1), begins.argmax(axis=1), FARTHEST)


def random_classes(
    pairs: Mapping[str, Int[np.ndarray, "_ 2"]], classes: Mapping[str, Int[np.ndarray, " _"]], task: str
) -> dict[str, Int[np.ndarray, " _"]]:
    """The control task: for each pair of tokens a class drawn from the task's own, the same wherever the pair is."""
    vocab = 1 + max(int(each.max()) for each in pairs.values())
    codes = {part: each[:, 0].astype(np.int64) * vocab + each[:, 1] for part, each in pairs.items()}
    there = np.unique(np.concatenate(list(codes.values())))  # far fewer than vocab * vocab
    drawn = numpy_stream(0, "control task", task).choice(classes["train"], size=len(there))
    return {part: drawn[np.searchsorted(there, each)] for part, each in codes.items()}
