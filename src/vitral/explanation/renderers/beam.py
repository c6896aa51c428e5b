"""Beam search without decisions in Python, so that it has a graph; otherwise that of `operations.decoding.Beam`."""

import torch
from torch import Tensor

from vitral.decoding import distribution
from vitral.explanation.operations.decoding import Beam


def search_in_tensors(beam: Beam, table: Tensor) -> Tensor:
    """The words found, [length], or their probability, [1], of a bigram table [vocab, vocab].

    The hypotheses stay in the order of their words, so that of equal ones the first by index is kept.
    """
    steps = distribution(table.log()).log()
    words, scores, last = torch.zeros(1, 0).long(), steps.new_zeros(1), torch.tensor([beam.start])
    for _ in range(beam.length):
        grown = (scores[:, None] + steps[last]).flatten()
        kept = grown.sort(descending=True, stable=True).indices[: beam.num_beams].sort().values
        before, last, scores = kept // len(table), kept % len(table), grown[kept]
        words = torch.cat((words[before], last[:, None]), dim=1)
    best = scores.argmax(dim=0, keepdim=True)
    return scores[best].exp() if beam.probability else words[best][0].double()
