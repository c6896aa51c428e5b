"""Freed memory serves the next pass; training keeps all of it, in large pages where the kernel gives them."""

import pytest
from fresh import printed

from vitral.core import machine

pytestmark = pytest.mark.skipif(machine._glibc() is None, reason="only glibc is asked to keep it")
LARGE_PAGES = bool(machine._bytes_to_ask_for())
CAPTURE = """
import torch
from vitral.model import ModelConfig, Transformer

model = Transformer(ModelConfig(context_length=5, d_model=6, num_layers=1, num_heads=1), 3)
model.trace(torch.zeros(1, 5, dtype=torch.long))
"""
TRAINING = """
import torch
from vitral.core.machine import keep_all_freed_memory

keep_all_freed_memory()
"""
REPEATED = """
import resource

torch.set_num_threads(1)
for size, count in SIZES:
    for _ in range(7):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        as_many = [torch.zeros(size // 4) for _ in range(count)]
        del as_many
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < count * size // resource.getpagesize() / 10)
"""
ADVISED = """
lines = open("/proc/self/smaps").read().splitlines()
begins = [place for place, line in enumerate(lines) if line.endswith("[heap]")]
flags = [next(line for line in lines[place:] if line.startswith("VmFlags:")) for place in begins]
print(any("hg" in line.split() for line in flags))
"""
SMALL, LARGE = (2**20, 61), (61 * 2**20, 7)


@pytest.mark.merge
def test_training_uses_all_freed_memory_again_in_large_pages() -> None:
    """A capture, which keeps less, does not undo it."""
    sizes = REPEATED.replace("SIZES", str([SMALL, LARGE]))
    result = printed(TRAINING + CAPTURE + sizes + ADVISED * LARGE_PAGES)
    assert result.split() == ["True"] * (2 + LARGE_PAGES)
