"""Vitral as a contender: the only module here that uses Vitral's internals."""

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.shapes import Shape
from vitral.core.streams import numpy_stream
from vitral.data import Batches, Corpus, CorpusConfig, Dataset, Tokenizer, char_tokenizer, prepare
from vitral.decoding import GenerateOptions, Sampling, generate
from vitral.model import Transformer
from vitral.runs import RunFolder
from vitral.training import RunConfig, silent
from vitral.training.loop import Trainer, one_step

Feed = Callable[[], tuple[Tensor, Tensor]]
"""Returns the next batch, inputs and targets [batch, time]; drawing it is part of a step."""

CPU = torch.device("cpu")
LEARNING_RATE = 3e-3


def tokenizer(vocab: int) -> Tokenizer:
    """A character tokenizer with a given number of tokens, including `<PAD>` and a newline."""
    return char_tokenizer("\n" + "".join(map(chr, range(0x100, 0x100 + vocab - 2))))


def synthetic(shape: Shape) -> Dataset:
    """A text of random characters, since the time of a step does not depend on the content."""
    alphabet = tokenizer(shape.vocab).alphabet
    drawn = numpy_stream(0, "benchmark").integers(len(alphabet), size=300_000)
    # Every character of the alphabet has to occur, or the vocabulary would be smaller.
    text = alphabet + "".join(np.array(list(alphabet))[drawn])
    raw = text.encode()
    corpus = Corpus("synthetic", text, len(raw), hashlib.sha256(raw).hexdigest())
    return prepare(CorpusConfig(), corpus=corpus)


def feed(shape: Shape, dataset: Dataset, seed: int = 1) -> Feed:
    """The batches of Vitral's training, for all contenders: the same windows in the same order."""
    batches = Batches(dataset.splits["train"], context_length=shape.context, batch_size=shape.batch, seed=seed)
    step = -1

    def draw() -> tuple[Tensor, Tensor]:
        nonlocal step
        step += 1
        return batches.batch(step)

    return draw


def model(shape: Shape, seed: int = 1) -> Transformer:
    """The model of this shape."""
    return Transformer(shape.model_config(), shape.vocab, seed=seed)


def trainer(
    shape: Shape,
    dataset: Dataset,
    dtype: str = "float32",
    *,
    device: torch.device = CPU,
    compiled: bool = False,
) -> Callable[[], object]:
    """One complete training step of Vitral's loop."""
    training = {
        "steps": 10**9,
        "batch_size": shape.batch,
        "optimizer": {"name": "adamw", "learning_rate": LEARNING_RATE},
        "device": device.type,
        "dtype": dtype,
        "compile": compiled,
    }
    config = RunConfig.parse({"model": shape.model_config().plain(), "training": training})
    ours = model(shape, config.seed).to(device)
    trainer = Trainer(config, dataset, ours, RunFolder(Path(tempfile.gettempdir())), silent)

    def step() -> None:
        one_step(trainer)
        trainer.state.step += 1

    return step


def generator(shape: Shape, num_tokens: int, samples: int = 1) -> Callable[[], object]:
    """Samples of a given number of tokens, from the beginning of a line."""
    ours, letters, options = model(shape).eval(), tokenizer(shape.vocab), GenerateOptions(num_samples=samples)
    return lambda: generate(ours, letters, [""], max_tokens=num_tokens, sampling=Sampling(), options=options)


def window(shape: Shape) -> Tensor:
    """One full window of random tokens, [1, time]."""
    return torch.from_numpy(numpy_stream(0, "window").integers(1, shape.vocab, size=(1, shape.context)))
