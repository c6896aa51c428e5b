"""The health of this machine, and how a training here is planned. Nothing is written."""

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import torch

from vitral.core.language import N_
from vitral.core.machine import memory_limit
from vitral.core.streams import torch_stream
from vitral.core.versions import versions
from vitral.doctor import Diagnosis, HealthCheck, check, finding, ok, unknown
from vitral.model import ModelConfig, Transformer
from vitral.model.native import native, native_step
from vitral.model.selfcheck import check_device
from vitral.training.configuration import DEFAULT_PRESET, configure, presets
from vitral.training.plans import resolve_plan
from vitral.training.run import build_model

PROBE = {"context_length": 16, "d_model": 64, "num_layers": 2, "num_heads": 2}
MOST_DIFFERENCE = 1e-4
"""Between logits of a small model, computed in two ways."""


def examine_machine() -> Diagnosis:
    """Processor, memory, disk and compiler of this machine, what training chooses here, and whether it is correct."""
    return Diagnosis((*_checks(), *_correctness()))


def _checks() -> Iterator[HealthCheck]:
    memory, free = memory_limit(), shutil.disk_usage(Path.cwd()).free
    instructions = torch.backends.cpu.get_cpu_capability()
    yield ok("versions", versions())
    yield ok("processor", "{cores:d} cores, {instructions}", cores=os.cpu_count() or 1, instructions=instructions)
    if memory:
        yield ok("memory", "{size:,.1f} GB", size=memory / 1e9)
    yield finding("ok" if free > 1e9 else "wrong", N_("disk here"), N_("{size:,.1f} GB free"), size=free / 1e9)
    config = configure(DEFAULT_PRESET, overrides=[{"training": {"device": "cpu", "plan": "auto"}}])
    build = partial(build_model, vocab_size=presets()[DEFAULT_PRESET].vocabulary)
    yield from (ok("training", note) for note in resolve_plan(config, build, 0).notes)
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++", "cl"))), None)
    yield unknown("compiler", compiler or N_("none; training.compile has no effect"))


@torch.inference_mode()
def _correctness() -> Iterator[HealthCheck]:
    """Whether a small model has the same logits in C, in float64 and on accelerators."""
    model = Transformer(ModelConfig.parse(PROBE), 61, seed=1).eval()
    tokens = torch.randint(61, (2, 16), generator=torch_stream(0, "doctor"))
    logits, step = model(tokens), native_step(model)
    if isinstance(step, str):
        yield unknown("generation in C", step)
    else:
        difference = float((step(tokens, model.new_cache(2)) - logits[:, -1]).abs().max())
        yield finding(
            "ok" if difference < MOST_DIFFERENCE else "wrong",
            "generation in C",
            N_("{instructions}; logits of a small model differ from PyTorch by {difference:.1e}"),
            instructions=native().found,
            difference=difference,
        )
    difference = float((logits.double() - model.double()(tokens)).abs().max())
    yield finding(
        "ok" if difference < MOST_DIFFERENCE else "wrong",
        "float32",
        N_("logits of a small model differ from float64 by {difference:.1e}"),
        difference=difference,
    )
    model, there = model.float(), {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    yield from (check(name, _accelerated, model, name) for name, is_there in there.items() if is_there)
    if not any(there.values()):
        yield ok("accelerator", "none; everything runs on the CPU")


def _accelerated(model: Transformer, name: str) -> str:
    found = N_("logits differ from the CPU by {difference:.1e}")
    return found.format(difference=check_device(model, torch.device(name)))
