"""The health of this machine. Nothing is written."""

import os
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import torch

from vitral.core.errors import UsageError, reason
from vitral.core.language import N_
from vitral.core.machine import memory_limit
from vitral.core.streams import torch_stream
from vitral.core.versions import versions
from vitral.doctor.health import Diagnosis, HealthCheck
from vitral.doctor.speed import examine_speed
from vitral.interop.targets.onnx_model import LOWEST_TORCH, PACKAGES
from vitral.model import ModelConfig, Transformer
from vitral.model.initialisation import MOST_EXCESS
from vitral.model.native import native, native_step
from vitral.model.selfcheck import check_device, fresh_excess
from vitral.runs import RunConfig
from vitral.training.configuration import presets

PROBE = {"context_length": 16, "d_model": 64, "num_layers": 2, "num_heads": 2}
MOST_DIFFERENCE = 1e-4
"""Between logits of a small model, computed in two ways."""


def examine_machine() -> Diagnosis:
    """Processor, memory, disk and compiler of this machine, what makes training faster, and whether it is correct."""
    checks = (_parts, examine_speed, _compiler, _native, _precision, _initial_loss, _onnx, _accelerators)
    return Diagnosis(tuple(found for examine in checks for found in examine()))


def _parts() -> Iterator[HealthCheck]:
    memory, free = memory_limit(), shutil.disk_usage(Path.cwd()).free
    processor = N_("{cores:d} cores, {instructions}").format(
        cores=os.cpu_count() or 1, instructions=torch.backends.cpu.get_cpu_capability()
    )
    yield HealthCheck("ok", N_("versions"), versions())
    yield HealthCheck("ok", N_("processor"), processor)
    size = N_("unknown") if memory is None else N_("{size:,.1f} GB").format(size=memory / 1e9)
    yield HealthCheck("ok", N_("memory"), size)
    there = N_("{size:,.1f} GB free").format(size=free / 1e9)
    yield HealthCheck("ok" if free > 1e9 else "wrong", N_("disk here"), there)


def _compiler() -> Iterator[HealthCheck]:
    compiler = next((found for name in ("c++", "g++", "clang++", "cl") if (found := shutil.which(name))), None)
    measured = N_("whether training.compile helps is measured by --plan auto where training takes 30 minutes or more")
    found = N_("{compiler}; {what}").format(compiler=compiler, what=measured)
    without = N_("none; training.compile has no effect")
    yield HealthCheck("unknown", N_("compiler"), found if compiler else without)


def _probe() -> tuple[Transformer, torch.Tensor]:
    model = Transformer(ModelConfig.parse(PROBE), 61, seed=1).eval()
    return model, torch.randint(61, (2, 16), generator=torch_stream(0, "doctor"))


@torch.inference_mode()
def _native() -> Iterator[HealthCheck]:
    """Whether generation runs in C; the first tokens of a small model are compared with the modules' logits."""
    model, tokens = _probe()
    step = native_step(model)
    if isinstance(step, str):
        yield HealthCheck("slower" if native().is_stale else "unknown", N_("generation in C"), step)
        return
    difference = float((step(tokens, model.new_cache(2)) - model(tokens)[:, -1]).abs().max())
    found = N_("{instructions}; logits of a small model differ from PyTorch by {difference:.1e}")
    found = found.format(instructions=native().found, difference=difference)
    yield HealthCheck("ok" if difference < MOST_DIFFERENCE else "wrong", N_("generation in C"), found)


@torch.inference_mode()
def _precision() -> Iterator[HealthCheck]:
    model, tokens = _probe()
    single = model(tokens).double()
    difference = float((single - model.double()(tokens)).abs().max())
    found = N_("logits of a small model differ from float64 by {difference:.1e}").format(difference=difference)
    yield HealthCheck("ok" if difference < MOST_DIFFERENCE else "wrong", "float32", found)


def _initial_loss() -> Iterator[HealthCheck]:
    excess, is_small = dict[str, float](), True
    for name, preset in presets().items():
        config = RunConfig.parse(dict(preset.run), name).model
        excess[name] = fresh_excess(Transformer(config, preset.vocabulary, seed=1))
        is_small = is_small and excess[name] <= MOST_EXCESS[config.initialisation]
    largest = max(excess, key=lambda name: excess[name])
    found = N_(
        "the loss of fresh models on random tokens exceeds ln V, of V tokens, by at most {excess:.3f} "
        "({preset}, of {n} presets)"
    ).format(n=len(excess), preset=largest, excess=excess[largest])
    yield HealthCheck("ok" if is_small else "wrong", N_("initial loss"), found)


def _onnx() -> Iterator[HealthCheck]:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    # Three parts: two are a decimal number, which Portuguese writes with a comma.
    places = {"version": torch.__version__, "lowest": ".".join(map(str, (*LOWEST_TORCH, 0)))}
    is_new = tuple(int(number) for number in torch.__version__.split(".")[:2]) >= LOWEST_TORCH
    if missing:
        found = N_("not installed: {packages}; pip install 'vitral[interop]'").format(packages=", ".join(missing))
    elif is_new:
        found = N_("PyTorch {version}, at least {lowest}").format(**places)
    else:
        found = N_("tested from PyTorch {lowest} on, here is {version}").format(**places)
    yield HealthCheck("ok" if is_new and not missing else "unknown", N_("export to ONNX"), found)


def _accelerators() -> Iterator[HealthCheck]:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    for name in (name for name, is_there in there.items() if is_there):
        try:
            difference = check_device(_probe()[0], torch.device(name))
            found = N_("logits differ from the CPU by {difference:.1e}").format(difference=difference)
            yield HealthCheck("ok", name, found)
        except UsageError as error:
            yield HealthCheck("wrong", name, reason(error))
    if not any(there.values()):
        yield HealthCheck("ok", N_("accelerator"), N_("none; everything runs on the CPU"))
