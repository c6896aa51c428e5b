"""Calls of the library with wrong values, in a process of its own: as a user runs it, without the tests' type checker.

    python library_values.py SEED COUNT FOLDER

The table has valid calls of the facade and of configurations, which alone promise it. A trial replaces one or two of
its arguments by wrong values, or adds an unknown one. The last line printed is a JSON object: the number of
refusals, and
the failures.
"""

import faulthandler
import json
import math
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitral
from vitral import decoding, model, training
from vitral.core.errors import VitralError
from vitral.explanation.examples.by_name import gallery

COURSE = Path(__file__).parents[2] / "docs" / "gallery"
MOST_SECONDS = 60
"""After which a call has hung: the process ends, and says where."""
LONGEST_LINE = 1000
WORDS = ("the", "cat", "saw", "a", "bird", "and", "sang", "to", "me", "dog", "of")

Case = tuple[Callable[..., Any], dict[str, Any]]


def wrong(folder: Path) -> list[Any]:
    """Values, a few of them right for some argument."""
    return [
        *(None, True, "x", "", "\n\x1b[2J", "é" * 5000, -1, 0, 1.5, -0.5, 10**30, 2**63, "9" * 5000, math.nan),
        *(math.inf, 1e308, [], {}, [None], ["x"], [[]], {"x": 1}, {1: 2}, object(), b"x", int, len, 1j, range(3)),
        *(np.int64(3), np.float32(0.5), np.zeros(3), np.array([[5, 2]]), np.array(["x"])),
        *(folder, folder / "missing", folder / "words.txt", str(folder / "missing.toml"), lambda: None),
        *(torch.zeros(()), torch.zeros(0), torch.zeros(2, 3), torch.ones(1, 2, 3, 4), torch.full((1, 3), 10**9)),
        *(torch.zeros(2, 3, dtype=torch.int64), torch.full((2, 5), math.nan), torch.zeros(2, 5, dtype=torch.complex64)),
    ]


def world(folder: Path) -> tuple[list[Case], list[Case]]:
    """Valid calls, on a tiny run; and calls of what would take long, which are made with wrong values alone."""
    source = folder / "words.txt"
    source.write_text(" ".join(WORDS[(n * n // 7 + n // 3) % 11] for n in range(2000)) + "\n", encoding="utf-8")
    tables: dict[str, Any] = {
        "corpus": {"source": str(source), "tokenizer": "char", "split": "tail"},
        "model": {"context_length": 11, "d_model": 6, "num_heads": 3, "num_layers": 1},
        "training": {"steps": 1, "batch_size": 3, "sample_every": 9, "device": "cpu"},
    }
    run = vitral.load(training.train(training.RunConfig.parse({**tables, "seed": 1}), folder / "run").path)
    place = {"layer": 0, "head": [0, 1], "query": 1, "key": 0, "column": 1, "block": True}
    valid: list[Case] = [
        (vitral.generate, {"run": run, "prompt": "the", "max_tokens": 3, "top_k": 2, "stop": ["x"]}),
        (vitral.inspect, {"run": run, "text": "the", "windows": 2, "top": 2}),
        (vitral.evaluate, {"run": run, "copying": False, "checkpoint": "last", "dtype": "float32"}),
        (vitral.explain, {"what": run, "text": "the", **place}),
        (vitral.explain, {"what": "the-cat-sat", "head": "all", "query": 2, "column": 1}),
        (vitral.continue_, {"run": run, "out": folder / "out", "steps": 1, "threads": 1}),
        (vitral.set_language, {"name": "en"}),
        (vitral.list_runs, {"folder": run.path, "order": "time", "text": "words"}),
        (vitral.check, {"example": next(iter(gallery())), "fix": False}),
        (
            vitral.configure,
            {"start": "fast", "corpus": None, "minutes": 1.0, "overrides": [{"model": {"d_model": 64}}]},
        ),
        (vitral.count, {"start": "fast", "vocabulary": 50, "model": {"d_model": 64}}),
        (vitral.exercise, {"positions": 2, "d_model": 2, "seed": 3, "mask": "causal", "scale": "sqrt"}),
        (vitral.grade, {"folder": COURSE / "class", "key": COURSE / "class-key.toml", "total": 10.0}),
        (vitral.register, {"kind": "norm", "name": "own", "factory": torch.nn.LayerNorm}),
        (vitral.survey, {"source": str(source), "tokenizer": "char", "split": "tail", "share": 0.5}),
        (vitral.train, {"start": str(run.path / "config.toml"), "out": folder / "out", "training": {"steps": 1}}),
        (model.ModelConfig, {"d_model": 8, "num_heads": 2, "norm": "pre", "positions": "rotary"}),
        (decoding.Sampling, {"temperature": 1.0, "top_k": 2, "top_p": 0.5, "min_p": 0.1}),
        (decoding.GenerateOptions, {"num_samples": 1, "first_sample": 0, "crop": True}),
        (training.TrainingConfig, {"steps": 1, "batch_size": 2, "device": "cpu"}),
    ]
    refused: list[Case] = [
        (lambda path: vitral.doctor("x" if path is None else path), {"path": folder / "missing"}),
        (vitral.import_, {"source": folder / "missing", "out": "out", "tokenizer": source}),
        (vitral.resume, {"run": run.path}),
        (vitral.study, {"name": "nowhere", "start": None, "budget": "quick", "corpus": None, "seeds": [1]}),
    ]
    return valid, refused


def complaint(function: Callable[..., Any], given: dict[str, Any], *, may_refuse: bool) -> tuple[bool, str | None]:
    """Whether this call was refused; and its fault, unless it returned or refused in one line of ours."""
    refused, fault = False, None
    faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
    try:
        result = function(**given)
        if isinstance(result, Iterator):
            list(islice(result, 20))
    except VitralError as error:
        refused, text = True, str(error)
        if not (may_refuse and text and text.isprintable() and len(text) < LONGEST_LINE and text.strip(" :") == text):
            fault = f"refused with {text[:200]!a}"
    except BaseException as error:
        fault = f"{type(error).__name__}: {str(error)[:200]!a}"
    faulthandler.cancel_dump_traceback_later()
    left = os.listdir()
    for name in left:
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()
    return refused, f"refused, but left {left}" if refused and left else fault


def main(seed: int, count: int, folder: Path) -> dict[str, Any]:
    """Every valid call, then so many trials."""
    torch.manual_seed(0)
    (valid, only_refused), pool, failures, refusals = world(folder), wrong(folder), list[str](), 0
    (folder / "work").mkdir()
    os.chdir(folder / "work")
    for function, given in valid:
        _, fault = complaint(function, given, may_refuse=False)
        failures += [f"the valid call of {function}: {fault}"] if fault else []
        shutil.rmtree(folder / "out", ignore_errors=True)
    order = list[Case]()
    for number in range(count):
        draw = random.Random(f"{seed} {number}")
        order = order or draw.sample([*valid, *only_refused], len(valid) + len(only_refused))
        function, right = order.pop()
        names = draw.sample(sorted(right), min(len(right), draw.choice((1, 1, 2))))
        given = right | {name: draw.choice(pool) for name in names}
        if draw.random() < 0.1:
            given["max_token"] = 1
        refused, fault = complaint(function, given, may_refuse=True)
        refusals += refused
        failures += [f"trial {number}: {function}({str(given)[:500]}): {fault}"] if fault else []
        shutil.rmtree(folder / "out", ignore_errors=True)
    return {"refused": refusals, "failures": failures}


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]).resolve())))
