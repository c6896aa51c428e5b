"""Two simple classifiers of labelled texts, beside which a model stands: the most frequent label, and naive Bayes."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import log

from vitral.data.answers import ANSWER, END
from vitral.data.dataset import Dataset
from vitral.evaluation.losses import AnswerScore

_WORD = re.compile(r"\w+")
MAJORITY, NAIVE_BAYES = "majority", "naive_bayes"


def label_baselines(dataset: Dataset) -> dict[str, AnswerScore]:
    """What two classifiers that are counted on the training split reach on the test split.

    `MAJORITY` always says the most frequent label. `NAIVE_BAYES` is the multinomial one over words in small letters,
    every count one more (Manning, Raghavan & Schütze 2008, section 13.2); words that the training split lacks do not
    count.

    Args:
        dataset: of labelled texts.
    """
    labels, counts = Counter[str](), defaultdict[str, Counter[str]](Counter)
    for words, label in _texts(dataset, "train"):
        labels[label] += 1
        counts[label].update(words)
    known = set[str]().union(*counts.values())

    def score(label: str, words: list[str]) -> float:
        total = counts[label].total() + len(known)
        return log(labels[label]) + sum(log((counts[label][word] + 1) / total) for word in words if word in known)

    test = list(_texts(dataset, "test"))
    (most, _), *_ = labels.most_common(1)
    bayes = sum(max(sorted(labels), key=lambda one: score(one, words)) == label for words, label in test)
    return {
        MAJORITY: AnswerScore(sum(label == most for _, label in test), len(test)),
        NAIVE_BAYES: AnswerScore(bayes, len(test)),
    }


def _texts(dataset: Dataset, name: str) -> Iterator[tuple[list[str], str]]:
    """The words of each text of a split, and its label."""
    split = dataset.splits[name]
    for begin, end in split.segments:
        text, _, label = dataset.tokenizer.decode(split.tokens[begin:end]).partition(ANSWER)
        yield _WORD.findall(text.lower()), label.removesuffix(END)
