"""Checks and repairs of a machine, a run, a study; here their results, and the checks of the machine."""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from vitral.core.devices import resolve_device
from vitral.core.errors import VitralError, reason
from vitral.core.files import MANIFEST, check_report, names
from vitral.core.language import N_, _
from vitral.core.machine import memory_limit, versions
from vitral.core.shown import Shown, Tabular
from vitral.core.streams import torch_stream
from vitral.core.text import visible
from vitral.model import ModelConfig, Transformer
from vitral.model.native import native, native_step
from vitral.model.transformer import check_device
from vitral.training.configuration import DEFAULT_PRESET, configure, presets
from vitral.training.plans import resolve_plan
from vitral.training.run import build_model

PROBE = {"context_length": 16, "d_model": 64, "num_layers": 2, "num_heads": 2}
MOST_DIFFERENCE = 1e-4
"""Between logits of a small model, computed in two ways."""
Mark = Literal["ok", "wrong", "unknown"]
MARKS: dict[Mark, str] = {"ok": "✓", "wrong": "✗", "unknown": "·"}


@dataclass(frozen=True)
class HealthCheck:
    """The result of one check.

    Attributes:
        mark: "ok" or "wrong", or "unknown" where it was not checked.
        what: the subject of the check, in English.
        found: the result in one line, as a message.
    """

    mark: Mark
    what: str
    found: str


def finding(mark: Mark, what: str, sentence: str, /, **values: Any) -> HealthCheck:
    """A check with its result: a sentence with values in its places."""
    return HealthCheck(mark, what, reason(VitralError(sentence, **values)))


ok, wrong, unknown = (partial(finding, mark) for mark in MARKS)


def collected(what: str, made: Iterable[HealthCheck]) -> Iterator[HealthCheck]:
    """Checks as they are made; an error ends them, and is one of them."""
    try:
        yield from made
    except (VitralError, OSError) as error:
        yield wrong(what, reason(error))


@dataclass(frozen=True, repr=False)
class Diagnosis(Shown, Tabular):
    """The results of all checks.

    Attributes:
        findings: one for each check.
        repaired: what was repaired before, one line each.
    """

    findings: tuple[HealthCheck, ...]
    repaired: tuple[str, ...] = ()

    @property
    def healthy(self) -> bool:
        """Whether no check found something wrong."""
        return all(finding.mark != "wrong" for finding in self.findings)

    def __str__(self) -> str:
        """One line for each repair and each check, in the current language."""
        width = max((len(_(check.what)) for check in self.findings), default=0)
        lines = [f"{MARKS[check.mark]} {_(check.what):{width}}  {_(check.found)}" for check in self.findings]
        return visible("\n".join([*map(_, self.repaired), *lines]))

    def plain(self) -> dict[str, Any]:
        """As plain data."""
        repaired = {"repaired": list(self.repaired)} if self.repaired else {}
        return {"healthy": self.healthy, "findings": self.records(), **repaired}

    def records(self) -> list[dict[str, Any]]:
        """One row for each check."""
        return [asdict(finding) for finding in self.findings]


def examine_report(folder: Path) -> Iterator[HealthCheck]:
    """Pages and figures, compared with their manifest; nothing where there are none."""
    is_listed, complaints = MANIFEST in names(folder), check_report(folder)
    yield from ((wrong if is_listed else unknown)("report", complaint) for complaint in complaints)
    if is_listed and not complaints:
        yield ok("report", "agrees with its manifest")


# ---------------------------------------------------------------- the machine


def examine_machine() -> Diagnosis:
    """Processor, memory, disk and compiler of this machine, what training chooses here, and whether it is correct."""
    return Diagnosis((*_checks(), *collected(N_("accelerator"), _correctness())))


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
    """Whether a small model has the same logits in C, in float64 and on an accelerator."""
    model = Transformer(ModelConfig.parse(PROBE), 61, seed=1).eval()
    tokens = torch.randint(61, (2, 16), generator=torch_stream(0, "doctor"))
    logits, step = model(tokens), native_step(model)
    if isinstance(step, str):
        yield unknown("generation in C", step)
    else:
        sentence = N_("{instructions}; logits of a small model differ from PyTorch by {difference:.1e}")
        differences = step(tokens, model.new_cache(2)) - logits[:, -1]
        yield _near("generation in C", differences, sentence, instructions=native().detail)
    differences = logits.double() - model.double()(tokens)
    yield _near("float32", differences, N_("logits of a small model differ from float64 by {difference:.1e}"))
    device = resolve_device("auto")
    if device.type == "cpu":
        yield ok("accelerator", "none; everything runs on the CPU")
    else:
        difference = check_device(model.float(), device)
        yield ok(device.type, "logits differ from the CPU by {difference:.1e}", difference=difference)


def _near(what: str, differences: Tensor, sentence: str, **values: Any) -> HealthCheck:
    """Whether the largest of some differences is one of rounding."""
    most = float(differences.abs().max())
    return finding("ok" if most < MOST_DIFFERENCE else "wrong", what, sentence, difference=most, **values)
