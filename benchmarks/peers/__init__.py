"""The peers: alternatives to Vitral, built with the same shape and fed the same batches."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.options import Options
from benchmarks.ours import Feed
from benchmarks.peers import hf, nanogpt, plain, xt
from benchmarks.shapes import Shape

Action = Callable[[], object]

PLAIN = "plain PyTorch"
CROPPING = "plain, cropping"
TRANSFORMERS = "transformers"
X_TRANSFORMERS = "x-transformers"
NANOGPT = "nanoGPT"


@dataclass(frozen=True)
class Peer:
    """A library or a program with the same functions as Vitral.

    Attributes:
        name: its name in the tables.
        trainer: returns an action for one training step of this shape, with batches from the feed.
        generator: returns an action that generates one sample of a given number of tokens from one token.
    """

    name: str
    trainer: Callable[[Shape, Feed], Action]
    generator: Callable[[Shape, int], Action]


def available(options: Options) -> tuple[list[Peer], list[str]]:
    """The installed peers, and a line about each that is missing or differs.

    Raises:
        LeftOut: there is no checkout of nanoGPT where one was promised.
    """
    peers, notes = [Peer(PLAIN, plain.trainer, plain.generator)], []
    for name, module, peer in (
        (TRANSFORMERS, "transformers", Peer(TRANSFORMERS, hf.trainer, hf.generator)),
        (X_TRANSFORMERS, "x_transformers", Peer(X_TRANSFORMERS, xt.trainer, xt.generator)),
    ):
        if importlib.util.find_spec(module):
            peers.append(peer)
        else:
            notes.append(f"{name} is not installed and is left out; pip install '.[bench]'")
    if options.nanogpt is not None:
        source = nanogpt.load(options.nanogpt)
        peers.append(Peer(NANOGPT, source.trainer, source.generator))
        notes.append(f"{NANOGPT}: its head is tied, its one dropout is in every place, and it clips its gradients")
    return peers, notes
