"""The results of health checks, and the health of this machine. Nothing is written."""

import os
import shutil
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch

from vitral.core.errors import UsageError, reason
from vitral.core.language import N_, _
from vitral.core.machine import memory_limit
from vitral.core.streams import torch_stream
from vitral.core.tables import Tabular
from vitral.core.versions import versions
from vitral.figures.notebook import Shown
from vitral.figures.text import visible
from vitral.interop.targets.onnx_model import LOWEST_TORCH, PACKAGES
from vitral.lab.configuration import presets
from vitral.lab.machine_speed import ComparedSpeed, compare_speeds
from vitral.model import ModelConfig, Transformer
from vitral.model.initialisation import MOST_EXCESS
from vitral.model.native import native, native_step
from vitral.model.selfcheck import check_device, fresh_excess
from vitral.runs import RunConfig

Mark = Literal["ok", "wrong", "unknown", "same", "slower"]
MARKS: dict[Mark, str] = {"ok": "✓", "wrong": "✗", "unknown": "·", "same": "=", "slower": "!"}
PROBE = {"context_length": 16, "d_model": 64, "num_layers": 2, "num_heads": 2}
DIFFERENCE = 0.05
"""A choice that changes the time of a training step by less than this share makes no difference."""


@dataclass(frozen=True)
class HealthCheck:
    """The result of one check.

    Attributes:
        mark: "ok" or "wrong", "unknown" where it was not checked; of a choice, "ok" if it makes training faster here,
            "same" if it makes no difference, "slower" if it does harm.
        what: the subject of the check, in English.
        found: the result in one line, as a message.
    """

    mark: Mark
    what: str
    found: str


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown, Tabular):
    """The results of all checks.

    Attributes:
        findings: one for each check.
        repaired: what was repaired before, one line each.
    """

    findings: tuple[HealthCheck, ...]
    repaired: tuple[str, ...] = ()

    def told(self) -> list[tuple[str, str, str]]:
        """The mark, the subject and the result of each check, in the current language."""
        return [(MARKS[check.mark], _(check.what), _(check.found)) for check in self.findings]

    @property
    def healthy(self) -> bool:
        """Whether no check found something wrong."""
        return all(finding.mark != "wrong" for finding in self.findings)

    def __str__(self) -> str:
        """One line for each check, as the command prints them."""
        checks = self.told()
        width = max((len(what) for _, what, _ in checks), default=0)
        lines = [f"{mark} {what:{width}}  {found}" for mark, what, found in checks]
        return visible("\n".join([*map(_, self.repaired), *lines]))

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        repaired = {"repaired": list(self.repaired)} if self.repaired else {}
        return {"healthy": self.healthy, "findings": self.records(), **repaired}

    def records(self) -> list[dict[str, Any]]:
        """One row for each check."""
        return [asdict(finding) for finding in self.findings]


def examine_machine() -> Diagnosis:
    """Processor, memory, disk and compiler of this machine, what makes training faster, and whether it is correct."""
    memory, disk = memory_limit(), shutil.disk_usage(Path.cwd())
    compiler = next((found for name in ("c++", "g++", "clang++", "cl") if (found := shutil.which(name))), None)
    processor = N_("{cores:d} cores, {instructions}").format(
        cores=os.cpu_count() or 1, instructions=torch.backends.cpu.get_cpu_capability()
    )
    known_memory = N_("unknown") if memory is None else N_("{size:,.1f} GB").format(size=memory / 1e9)
    free = N_("{size:,.1f} GB free").format(size=disk.free / 1e9)
    compiling = N_("whether training.compile helps is measured by --plan auto where training takes 30 minutes or more")
    found = N_("{compiler}; {what}").format(compiler=compiler, what=compiling)
    without = N_("none; training.compile has no effect")
    findings = [
        HealthCheck("ok", N_("versions"), versions()),
        HealthCheck("ok", N_("processor"), processor),
        HealthCheck("ok", N_("memory"), known_memory),
        HealthCheck("ok" if disk.free > 1e9 else "wrong", N_("disk here"), free),
        *(judge_speed(compared) for compared in compare_speeds()),
        HealthCheck(
            "unknown",
            N_("compiler"),
            N_("{compiler}; {what}").format(compiler=compiler, what=compiling) if compiler else without,
        ),
        _native_finding(),
        _precision_finding(),
        _fresh_finding(),
        _onnx_finding(),
    ]
    return Diagnosis((*findings, *_accelerator_findings()))


def judge_speed(compared: ComparedSpeed) -> HealthCheck:
    """Whether a choice makes training faster."""
    places = {"times": compared.times, "plain": compared.plain}
    mark: Mark
    if compared.times >= 1 + DIFFERENCE and compared.is_least:
        mark = "slower"
        found = N_("a training step takes at least {times:.2f} times as long as with {plain}: slower here, use {plain}")
    elif compared.times >= 1 + DIFFERENCE:
        mark = "slower"
        found = N_("a training step takes {times:.2f} times as long as with {plain}: slower here, use {plain}")
    elif compared.times > 1 - DIFFERENCE:
        mark = "same"
        found = N_("a training step takes {times:.2f} times as long as with {plain}: no difference here")
    else:
        mark, found = "ok", N_("a training step takes {times:.2f} times as long as with {plain}: faster here")
    return HealthCheck(mark, compared.choice, found.format(**places))


def _probe() -> Transformer:
    return Transformer(ModelConfig.parse(PROBE), 61, seed=1).eval()


def _native_finding() -> HealthCheck:
    """Whether generation runs in C; the first tokens of a small model are compared with the modules' logits."""
    step = native_step(_probe())
    if isinstance(step, str):
        return HealthCheck("slower" if native().is_stale else "unknown", N_("generation in C"), step)
    model, tokens = _probe(), torch.randint(61, (2, 16), generator=torch_stream(0, "doctor"))
    with torch.inference_mode():
        difference = float((step(tokens, model.new_cache(2)) - model(tokens)[:, -1]).abs().max())
    found = N_("{instructions}; logits of a small model differ from PyTorch by {difference:.1e}")
    mark: Mark = "ok" if difference < 1e-4 else "wrong"
    return HealthCheck(mark, N_("generation in C"), found.format(instructions=native().found, difference=difference))


def _precision_finding() -> HealthCheck:
    model, tokens = _probe(), torch.randint(61, (2, 16), generator=torch_stream(0, "doctor"))
    with torch.inference_mode():
        single = model(tokens).double()
        difference = float((single - model.double()(tokens)).abs().max())
    mark: Mark = "ok" if difference < 1e-4 else "wrong"
    found = N_("logits of a small model differ from float64 by {difference:.1e}").format(difference=difference)
    return HealthCheck(mark, "float32", found)


def _fresh_finding() -> HealthCheck:
    known, excess = presets(), dict[str, float]()
    mark: Mark = "ok"
    for name, preset in known.items():
        config = RunConfig.parse(dict(preset.run), name).model
        excess[name] = fresh_excess(Transformer(config, preset.vocabulary, seed=1))
        mark = mark if excess[name] <= MOST_EXCESS[config.initialisation] else "wrong"
    largest = max(excess, key=lambda name: excess[name])
    found = N_(
        "the loss of fresh models on random tokens exceeds ln V, of V tokens, by at most {excess:.3f} "
        "({preset}, of {n} presets)"
    )
    return HealthCheck(mark, N_("initial loss"), found.format(n=len(known), preset=largest, excess=excess[largest]))


def _onnx_finding() -> HealthCheck:
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        found = N_("not installed: {packages}; pip install 'vitral[interop]'").format(packages=", ".join(missing))
        return HealthCheck("unknown", N_("export to ONNX"), found)
    numbers = tuple(int(number) for number in torch.__version__.split(".")[:2])
    # Three parts: two are a decimal number, which Portuguese writes with a comma.
    places = {"version": torch.__version__, "lowest": ".".join(map(str, (*LOWEST_TORCH, 0)))}
    if numbers < LOWEST_TORCH:
        found = N_("tested from PyTorch {lowest} on, here is {version}")
        return HealthCheck("unknown", N_("export to ONNX"), found.format(**places))
    return HealthCheck("ok", N_("export to ONNX"), N_("PyTorch {version}, at least {lowest}").format(**places))


def _accelerator_findings() -> list[HealthCheck]:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not any(there.values()):
        return [HealthCheck("ok", N_("accelerator"), N_("none; everything runs on the CPU"))]
    findings = []
    for name, is_there in there.items():
        if is_there:
            try:
                difference = check_device(_probe(), torch.device(name))
                found = N_("logits differ from the CPU by {difference:.1e}").format(difference=difference)
                findings.append(HealthCheck("ok", name, found))
            except UsageError as error:
                findings.append(HealthCheck("wrong", name, reason(error)))
    return findings
