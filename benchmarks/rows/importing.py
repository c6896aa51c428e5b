"""Row `gpt2`: a GPT-2 of transformers imported, and a sample of it, beside transformers itself."""

import importlib
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from benchmarks.options import LeftOut, Options
from benchmarks.peers import TRANSFORMERS
from benchmarks.results import OURS, Goal, Section
from benchmarks.results import measure as measure_contenders
from benchmarks.timing import Contender, clocked
from vitral.decoding import Sampling, generate
from vitral.interop import import_model
from vitral.runs import load_run

NAMES = ("gpt2",)
SECONDS = 10
"""Within which a model of this size is imported."""
TOKENS, QUICK_TOKENS = 100, 8
SIZE: dict[str, int] = {"vocab_size": 50_257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12}
QUICK_SIZE: dict[str, int] = {"vocab_size": 300, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
_NOTES = ("random weights in the configuration of openai-community/gpt2, float32; a folder written by transformers",)


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure the import and the generation.

    Raises:
        LeftOut: transformers is not installed.
    """
    if find_spec("transformers") is None:
        raise LeftOut("transformers is not installed; pip install '.[bench]'")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is to be downloaded
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    size, tokens = (QUICK_SIZE, QUICK_TOKENS) if options.quick else (SIZE, TOKENS)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "gpt2"
        model = write_model(source, size)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        return [
            Section(
                "gpt2",
                f"import of {parameters / 1e6:,.1f} M parameters",
                measure_contenders(_imports(source), options.rounds),
                unit="parameters",
                work=parameters,
                goals=(Goal("seconds", SECONDS),),
                notes=(*_NOTES, f"{TRANSFORMERS}: from_pretrained, which makes no run folder"),
            ),
            Section(
                "gpt2",
                f"{tokens} tokens of {parameters / 1e6:,.1f} M parameters",
                measure_contenders(_samples(source, model, tokens, options), options.rounds),
                unit="tokens",
                work=tokens,
                notes=(*_NOTES, "one sample at temperature 1 from one token, the same weights"),
            ),
        ]


def write_model(folder: Path, size: dict[str, int]) -> Any:
    """A GPT-2 of random weights as a folder of transformers, with a tokenizer; returns it in that library."""
    # By name at run time: the type checker's environment need not have the peers.
    transformers: Any = importlib.import_module("transformers")
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(0)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**size, bos_token_id=None, eos_token_id=None)).eval()
    model.save_pretrained(folder, safe_serialization=True)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = ("".join(pair) for pair in itertools.product(letters, repeat=2))
    words = [*letters, *itertools.islice(pairs, size["vocab_size"] - len(letters))]
    engine = Tokenizer(models.BPE(vocab={word: at for at, word in enumerate(words)}, merges=[]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    engine.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return model


def _imports(source: Path) -> dict[str, Contender]:
    transformers: Any = importlib.import_module("transformers")
    run = source.parent / "imported"

    def ours() -> float:
        begin = time.perf_counter()
        import_model(source, run)
        seconds = time.perf_counter() - begin
        shutil.rmtree(run)  # the next round makes it again
        return seconds

    return {OURS: ours, TRANSFORMERS: clocked(lambda: transformers.AutoModelForCausalLM.from_pretrained(source))}


def _samples(source: Path, theirs: Any, tokens: int, options: Options) -> dict[str, Contender]:
    run = load_run(import_model(source, source.parent / "run").path)
    prompt = torch.ones(1, 1, dtype=torch.long)
    wanted = {"max_new_tokens": tokens, "min_new_tokens": tokens, "do_sample": True, "top_k": 0, "pad_token_id": 0}
    mask = torch.ones_like(prompt)
    return {
        OURS: clocked(
            lambda: generate(run.model, run.tokenizer, [""], max_tokens=tokens, sampling=Sampling()),
            options.least_seconds,
        ),
        TRANSFORMERS: clocked(lambda: theirs.generate(prompt, attention_mask=mask, **wanted), options.least_seconds),
    }
