"""Freed memory serves the next pass; training keeps all of it, in large pages where the kernel gives them."""

import subprocess
import sys

import pytest

from vitral.core import allocation

pytestmark = pytest.mark.skipif(allocation._glibc() is None, reason="only glibc is asked to keep it")
CAPTURE = """
import torch
from vitral.model import ModelConfig, Transformer

model = Transformer(ModelConfig(context_length=5, d_model=6, num_layers=1, num_heads=1), 3)
model.trace(torch.zeros(1, 5, dtype=torch.long))
"""
TRAINING = """
import torch
from vitral.core.allocation import keep_all_freed_memory

keep_all_freed_memory()
"""
REPEATED = """
import resource

torch.set_num_threads(1)
for _ in range(7):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    as_many = [torch.zeros(SIZE // 4) for _ in range(COUNT)]
    del as_many
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, COUNT * SIZE // resource.getpagesize())
"""
LIMITED = """
import resource

resource.setrlimit(resource.RLIMIT_DATA, (2**36, 2**36))
"""
ADVISED = """
lines = open("/proc/self/smaps").read().splitlines()
begins = [place for place, line in enumerate(lines) if line.endswith("[heap]")]
flags = [next(line for line in lines[place:] if line.startswith("VmFlags:")) for place in begins]
print(any("hg" in line.split() for line in flags))
"""


def printed(*parts: str) -> list[str]:
    command = [sys.executable, "-c", "".join(parts)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize("beginning", [CAPTURE, TRAINING, TRAINING + CAPTURE], ids=["capture", "training", "both"])
def test_freed_memory_is_used_again(beginning: str) -> None:
    assert _is_used_again(beginning, size=2**20, count=61)


def test_in_training_that_of_large_tensors_too() -> None:
    assert _is_used_again(TRAINING + CAPTURE, size=61 * 2**20, count=7)


def _is_used_again(beginning: str, *, size: int, count: int) -> bool:
    faults, pages = map(int, printed(beginning, REPEATED.replace("SIZE", str(size)).replace("COUNT", str(count))))
    return faults < pages / 10


@pytest.mark.skipif(not allocation._bytes_to_ask_for(), reason="no large pages, or addresses are limited")
def test_large_pages_are_asked_for_unless_addresses_are_limited() -> None:
    assert printed(TRAINING, ADVISED) == ["True"]
    assert printed(LIMITED, TRAINING, ADVISED) == ["False"]
