"""What the probe `meaning` measured of an arm, as the numbers that are shown: means over seeds, or one for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean

from vitral.studies.probes.protocol import Plain

CHANCE = 0.5
TIE = 1e-4
"""Nats by which rounding may part two sentences that are equally probable."""


@dataclass(frozen=True)
class MeaningArm:
    """An arm and what was measured of it.

    Attributes:
        name: the arm's.
        title: the arm's.
        runs: what was measured, by seed.
    """

    name: str
    title: str
    runs: Mapping[int, Plain]

    @property
    def language(self) -> str:
        """Of its text."""
        return self.first["language"]

    @property
    def gain_by_seed(self) -> dict[int, float]:
        """By seed, how much further apart contexts are after the last block than in the embedding, mean over words.

        Only of words that every seed has.
        """
        words = set(self.separations)
        return {
            seed: fmean(_gain(sense) for sense in run["senses"] if sense["word"] in words)
            for seed, run in self.runs.items()
            if words
        }

    @property
    def right_by_seed(self) -> dict[int, float]:
        """By seed, the share of its scored pairs of which the right sentence is more probable; a tie is half."""
        scored = {
            seed: [_point(pair["preference"]) for pair in run["pairs"] if pair["preference"] is not None]
            for seed, run in self.runs.items()
        }
        return {seed: fmean(points) for seed, points in scored.items() if points}

    @property
    def first(self) -> Plain:
        """The first seed's."""
        return next(iter(self.runs.values()))

    @property
    def correlations(self) -> list[float]:
        """Of embedding and counted contexts, one for each seed that has enough words."""
        return [run["neighbours"]["correlation"] for run in self.runs.values() if run["neighbours"]]

    @property
    def shuffled(self) -> list[float]:
        """The highest correlation of a shuffled embedding, one for each such seed."""
        return [max(run["neighbours"]["shuffled"]) for run in self.runs.values() if run["neighbours"]]

    def senses(self, what: str) -> dict[str, list[float]]:
        """By word, a cosine at every place, mean over seeds."""
        columns = [{sense["word"]: sense[what] for sense in run["senses"]} for run in self.runs.values()]
        shared = [word for word in columns[0] if all(word in column for column in columns)]
        return {
            word: [fmean(place) for place in zip(*(column[word] for column in columns), strict=True)] for word in shared
        }

    @property
    def separations(self) -> dict[str, list[float]]:
        """By word, within a sense less across senses at every place, mean over seeds."""
        across = self.senses("across")
        return {
            word: [one - other for one, other in zip(places, across[word], strict=True)]
            for word, places in self.senses("within").items()
        }

    def right(self, kind: str | None = None) -> list[float]:
        """For each pair of a kind (of all if None) the share of seeds that prefer the good one; a tie is half."""
        columns = [
            [pair["preference"] for pair in run["pairs"] if kind in (None, pair["kind"])] for run in self.runs.values()
        ]
        return [fmean(map(_point, seeds)) for seeds in zip(*columns, strict=True) if None not in seeds]

    @property
    def moved(self) -> list[float]:
        """For each subject the share of seeds in which its form moves the preference the right way; a tie is half.

        A subject has two pairs, one after the other. What prefers one form whatever the subject gains in the one what
        it loses in the other, so their sum tells whether the subject matters, however strong that preference is.
        """
        columns = [[pair["preference"] for pair in run["pairs"]] for run in self.runs.values()]
        both = [
            [None if None in two else sum(two) for two in zip(column[::2], column[1::2], strict=True)]
            for column in columns
        ]
        return [fmean(map(_point, seeds)) for seeds in zip(*both, strict=True) if None not in seeds]

    @property
    def kinds(self) -> list[str]:
        """Of pairs, in order, those with a pair that could be scored."""
        kinds = dict.fromkeys(pair["kind"] for pair in self.first["pairs"])
        return [kind for kind in kinds if self.right(kind)]


def _gain(sense: Plain) -> float:
    """Within less across at the last place, less the same at the first."""
    apart = [one - other for one, other in zip(sense["within"], sense["across"], strict=True)]
    return apart[-1] - apart[0]


def _point(preference: float) -> float:
    if abs(preference) < TIE:
        return CHANCE
    return 1.0 if preference > 0 else 0.0
