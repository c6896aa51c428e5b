"""What a capture frees is there for the next one."""

import subprocess
import sys

import pytest

REPEATED = """
import resource
import torch
from vitral.model import ModelConfig, Transformer

torch.set_num_threads(1)
model = Transformer(ModelConfig(context_length=5, d_model=6, num_layers=1, num_heads=1), 3)
model.trace(torch.zeros(1, 5, dtype=torch.long))
for _ in range(7):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    as_many = [torch.zeros(2**18) for _ in range(61)]
    del as_many
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, 61 * 2**20 // resource.getpagesize())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc is asked to keep it")
def test_after_a_capture_freed_memory_is_used_again() -> None:
    done = subprocess.run([sys.executable, "-c", REPEATED], capture_output=True, text=True, check=True)
    faults, pages = map(int, done.stdout.split())
    assert faults < pages / 10
