"""Calls of the library with wrong values, in a process of its own: as a user runs it, without the tests' type checker.

    python library_values.py SEED COUNT FOLDER

The table has one valid call of each public function. A trial replaces one or two of its arguments by values of a shared
pool, leaves one out, or adds an unknown one. The last line printed is a JSON object: the number of refusals, and the
failures.
"""

import contextlib
import faulthandler
import json
import math
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import vitral
from vitral import attention, data, decoding, explanation, model, training
from vitral.core.errors import VitralError
from vitral.lab.examples import gallery

COURSE = Path(__file__).parents[2] / "docs" / "gallery"
MOST_SECONDS = 10.0
LONGEST_LINE = 1000
WORDS = ("the", "cat", "saw", "a", "bird", "and", "sang", "to", "me", "dog", "of")


class Case(NamedTuple):
    """One valid call: the callable, its arguments by name; whether it is refused, since one that is not takes long."""

    function: Callable[..., Any]
    valid: dict[str, Any]
    is_refused: bool = False

    @property
    def name(self) -> str:
        """For reports."""
        return getattr(self.function, "__qualname__", "")


def own_norm(d_model: int) -> torch.nn.Module:
    """A factory of an own part."""
    return torch.nn.Identity()


class Hang(BaseException):
    """A call took too long."""


def scalars(folder: Path) -> list[Any]:
    return [
        *(None, True, False, "x", "", "\n\x1b[2J", "é" * 5000, -1, 0, 1.5, -0.5, 10**30, 2**63),
        *(math.nan, math.inf, -math.inf, 1e308, [], {}, (), [None], ["x"], [1, "x"], [[]], {"x": 1}, {1: 2}),
        *(object(), b"x", b"", int, len, Ellipsis, 1j, range(3), {1}, np.int64(3), np.float32(0.5), np.str_("x")),
        *(folder, folder / "missing", folder / "file.txt", str(folder / "missing.toml"), lambda: None, "9" * 5000),
    ]


def arrays() -> list[Any]:
    return [
        torch.zeros(()),
        torch.zeros(0),
        torch.zeros(3),
        torch.zeros(2, 3),
        torch.zeros(1, 2, 3),
        torch.ones(1, 2, 3, 4),
        torch.zeros(0, 3),
        torch.zeros(2, 3, dtype=torch.int64),
        torch.ones(1, 4, dtype=torch.bool),
        torch.full((1, 3), -1),
        torch.full((1, 3), 10**9),
        torch.full((2, 5), math.nan),
        torch.zeros(1, 500, dtype=torch.int64),
        torch.zeros(1, 2, 4, 8),
        torch.zeros(2, 5, dtype=torch.complex64),
        torch.zeros(1, 2, 4, 6),
        np.zeros(3),
        np.zeros((2, 2), dtype=np.int64),
        np.array([[5, 2]]),
        np.array(["x"]),
        np.array(1),
    ]


def world(folder: Path) -> list[Case]:
    """The valid calls, on a tiny run."""
    text = " ".join(WORDS[(n * n // 7 + n // 3) % 11] for n in range(2000)) + "\n"
    source = folder / "words.txt"
    source.write_text(text, encoding="utf-8", newline="\n")
    (folder / "file.txt").write_text("x", encoding="utf-8")
    tables: dict[str, Any] = {
        "corpus": {"source": str(source), "tokenizer": "char", "split": "tail"},
        "model": {"context_length": 11, "d_model": 6, "num_heads": 3, "num_layers": 1},
        "training": {"steps": 1, "batch_size": 3, "sample_every": 9, "device": "cpu"},
    }
    config = training.RunConfig.parse({**tables, "seed": 1})
    run_folder = training.train(config, folder / "run")
    run = vitral.load(run_folder.path)
    q = torch.randn(1, 2, 4, 8)
    masks = {"mask": "causal", "scale": "sqrt", "bias": torch.zeros(4, 4), "dropout": 0.0}
    return [
        Case(vitral.Run, {"path": run.path, "which": "best", "device": "cpu", "dtype": "float32"}),
        Case(run.generate, {"prompt": "the", "max_tokens": 3, "seed": 1, "stop": ["x"], "top_k": 2}),
        Case(run.samples, {"prompts": ["the"], "max_tokens": 3, "num_beams": 2, "temperature": 0.5}),
        Case(run.stream, {"prompt": "the", "max_tokens": 3, "min_p": 0.1, "use_cache": True}),
        Case(run.beam, {"prompt": "the", "max_tokens": 3, "num_beams": 2, "n_best": 1, "stop": ["x"]}),
        Case(run.measure, {"copying": False}),
        Case(run.encode, {"text": "the"}),
        Case(run.trace, {"text": "the", "names": ["embed"]}),
        Case(run.explain, {"text": "the", "view": explanation.RunView()}),
        Case(run.inspect, {"text": "the", "windows": 2, "top": 2}),
        *(Case(method, {}) for method in (run.evaluate, run.dataset, run.ngram_baselines, run.parameters)),
        Case(vitral.attend, {"q": q, "k": q, "v": q, **masks}),
        Case(vitral.attend_traced, {"q": q, "k": q, "v": q, **masks}),
        *(Case(method, {"event": "step"}) for method in (run.metrics, run.records, run.to_pandas)),
        Case(vitral.evaluate, {"run": run, "copying": False, "checkpoint": "last", "dtype": "float32"}),
        Case(vitral.generate, {"run": run.path, "prompt": "the", "max_tokens": 3, "greedy": True}),
        Case(vitral.inspect, {"run": run, "text": "the", "windows": 2, "top": 2, "device": "cpu"}),
        Case(
            vitral.explain,
            {"what": run, "text": "the", "layer": 0, "head": [0, 1], "query": 1, "key": 0, "column": 1, "block": True},
        ),
        Case(vitral.explain, {"what": "the-cat-sat", "head": "all", "query": 2, "column": 1}),
        # Without a run the machine would be examined, which takes long.
        Case(lambda run: vitral.doctor("x" if run is None else run), {"run": run.path}),
        Case(vitral.continue_, {"run": run, "out": folder / "out", "steps": 1, "threads": 1}),
        Case(vitral.set_language, {"name": "en"}),
        *(Case(each, {}) for each in (vitral.presets, vitral.list_presets, vitral.list_texts)),
        *(Case(each, {}) for each in (vitral.list_studies, vitral.list_examples)),
        Case(vitral.list_runs, {"folder": run.path, "order": "time", "text": "words"}),
        Case(
            lambda one, two, **options: vitral.compare(one, two, **options),
            {"one": run, "two": run.path, "prompt": "the", "seed": 1, "max_tokens": 3, "losses": True},
            is_refused=True,
        ),
        Case(vitral.check, {"example": next(iter(gallery())), "fix": False}),
        Case(
            vitral.configure,
            {"start": "fast", "corpus": None, "minutes": 1.0, "overrides": [{"model": {"d_model": 64}}]},
        ),
        Case(vitral.count, {"start": "fast", "vocabulary": 50, "model": {"d_model": 64}}),
        Case(vitral.exercise, {"positions": 2, "d_model": 2, "seed": 3, "mask": "causal", "scale": "sqrt"}),
        Case(vitral.grade, {"folder": COURSE / "class", "key": COURSE / "class-key.toml", "total": 10.0}),
        Case(vitral.load, {"path": run.path, "which": "last", "device": "cpu"}),
        Case(vitral.import_, {"source": folder / "missing", "out": "out", "tokenizer": source}, True),
        Case(vitral.register, {"kind": "norm", "name": "own-identity", "factory": own_norm}),
        Case(vitral.resume, {"run": run.path}, True),
        Case(vitral.study, {"name": "nowhere", "start": None, "budget": "quick", "corpus": None, "seeds": [1]}, True),
        Case(vitral.survey, {"source": str(source), "tokenizer": "char", "split": "tail", "share": 0.5}),
        Case(
            vitral.train,
            # One step: without a start, the default would be two minutes.
            {
                "start": str(run.path / "config.toml"),
                "out": folder / "out",
                "training": {"steps": 1, "batch_size": 3},
            },
        ),
        Case(attention.Window, {"size": 3}),
        Case(attention.Prefix, {"length": 3}),
        Case(model.AttentionConfig, {"mask": attention.Causal(), "scale": "sqrt"}),
        Case(model.ModelConfig, {"d_model": 8, "num_heads": 2, "norm": "pre", "positions": "rotary"}),
        Case(data.CorpusConfig, {"source": "sample", "tokenizer": "char", "split": "tail", "share": 0.5}),
        Case(data.BPEConfig, {"vocab_size": 300}),
        Case(decoding.Sampling, {"temperature": 1.0, "top_k": 2, "top_p": 0.5, "min_p": 0.1}),
        Case(decoding.GenerateOptions, {"num_samples": 1, "first_sample": 0, "crop": True}),
        Case(
            training.RunConfig,
            {"corpus": config.corpus, "model": config.model, "training": config.training},
        ),
        Case(training.TrainingConfig, {"steps": 1, "batch_size": 2, "device": "cpu"}),
    ]


def wrong_call(
    case: Case, pools: tuple[list[Any], list[Any]], chance: random.Random
) -> tuple[list[Any], dict[str, Any]]:
    """The valid call with one or two wrong values, one argument missing, or one too many."""
    args: list[Any] = []
    given, plain, shaped = dict(case.valid), *pools
    kind = chance.uniform(0.16 if getattr(case.function, "__name__", "") == "<lambda>" else 0, 1)
    if kind < 0.06 and given:
        del given[chance.choice(sorted(given))]
    elif kind < 0.12:
        given[chance.choice(["sed", "x", "max_token", "Seed"])] = 1
    elif kind < 0.16 or not given:
        args = [chance.choice(plain) for _ in range(chance.randint(1, 12))]
    else:
        for name in chance.sample(sorted(given), min(len(given), chance.choice([1, 1, 1, 2]))):
            with_shape = hasattr(given[name], "shape")
            given[name] = chance.choice(shaped if chance.random() < (0.6 if with_shape else 0.2) else plain)
    return args, given


def complaint(
    case: Case, args: list[Any], given: dict[str, Any], counts: dict[str, int], most: float = MOST_SECONDS
) -> str | None:
    """What this call did wrong; None if it returned, or refused its arguments in one line of ours."""
    started = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, most)
    refused = False
    try:
        result = case.function(*args, **given)
        if isinstance(result, Iterator):
            list(islice(result, 20))
    except VitralError as error:
        refused = True
        counts["refused"] += 1
        text = str(error)
        if not text or not text.isprintable() or len(text) >= LONGEST_LINE:
            return f"no printable line: {text[:200]!a}"
        if text.strip() != text or text.endswith(":"):
            return f"an odd line: {text[:200]!a}"
    except Hang:
        return f"took longer than {most:g} s"
    except BaseException as error:
        return f"{type(error).__name__}: {str(error)[:200]!a}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    left = os.listdir()
    for path in left:
        shutil.rmtree(path) if Path(path).is_dir() else Path(path).unlink()
    if refused and left:
        return f"refused, but left {left[:3]}"
    seconds = time.perf_counter() - started
    return f"{seconds:.1f} s" if seconds > most else None


def shown(value: Any) -> str:
    with contextlib.suppress(Exception):
        return f"{value.dtype} {tuple(value.shape)}"
    return f"{value!r:.40}" if len(f"{type(value)}") < 60 else type(value).__name__


def main(seed: int, count: int, folder: Path) -> dict[str, Any]:
    """Run so many trials; every case once before any case twice."""

    def ring(*_: Any) -> None:
        raise Hang

    faulthandler.enable()
    signal.signal(signal.SIGALRM, ring)
    torch.manual_seed(0)
    cases, pools = world(folder), (scalars(folder), arrays())
    (folder / "work").mkdir()
    os.chdir(folder / "work")
    failures: list[str] = []
    counts = {"refused": 0}
    for case in cases:
        if not case.is_refused:
            before = counts["refused"]
            found = complaint(case, [], case.valid, counts, most=60)  # it imports what it needs
            if found or counts["refused"] > before:
                failures.append(f"{case.name}: the valid call: {found or 'refused'}")
            shutil.rmtree(folder / "out", ignore_errors=True)
    counts["refused"] = 0
    chance = random.Random(seed)
    order: list[Case] = []
    for number in range(count):
        order = order or chance.sample(cases, len(cases))
        case = order.pop()
        args, given = wrong_call(case, pools, random.Random(f"{seed} {number}"))
        faulthandler.dump_traceback_later(60, exit=True)
        found = complaint(case, args, given, counts)
        faulthandler.cancel_dump_traceback_later()
        shutil.rmtree(folder / "out", ignore_errors=True)
        if found:
            written = [*map(shown, args), *(f"{name}={shown(value)}" for name, value in given.items())]
            failures.append(f"trial {number}: {case.name}({', '.join(written)}): {found}")
    return {**counts, "failures": failures}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).resolve())))
