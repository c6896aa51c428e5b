"""What a pass frees is there for the next one, in large pages where the kernel gives them."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc is asked to keep it")
LARGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")
CAPTURE = """
import resource
import torch
from vitral.model import ModelConfig, Transformer

torch.set_num_threads(1)
LIMIT
model = Transformer(ModelConfig(context_length=5, d_model=6, num_layers=1, num_heads=1), 3)
model.trace(torch.zeros(1, 5, dtype=torch.long))
"""
REPEATED = """
for _ in range(7):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    as_many = [torch.zeros(SIZE // 4) for _ in range(COUNT)]
    del as_many
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, COUNT * SIZE // resource.getpagesize())
"""
ADVISED = """
lines = open("/proc/self/smaps").read().splitlines()
begins = [place for place, line in enumerate(lines) if line.endswith("[heap]")]
flags = [next(line for line in lines[place:] if line.startswith("VmFlags:")) for place in begins]
print(any("hg" in line.split() for line in flags))
"""


def printed(*parts: str, limit: str = "") -> list[str]:
    code = CAPTURE.replace("LIMIT", limit) + "".join(parts)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(("size", "count"), [(2**20, 61), (61 * 2**20, 3)])
def test_after_a_capture_freed_memory_is_used_again(size: int, count: int) -> None:
    faults, pages = map(int, printed(REPEATED.replace("SIZE", str(size)).replace("COUNT", str(count))))
    assert faults < pages / 10


@pytest.mark.skipif(
    not LARGE_PAGES.exists() or "[never]" in LARGE_PAGES.read_text(encoding="ascii"),
    reason="this kernel gives no large pages",
)
def test_large_pages_are_asked_for_unless_addresses_are_limited() -> None:
    assert printed(ADVISED) == ["True"]
    limited = "resource.setrlimit(resource.RLIMIT_DATA, (2**36, 2**36))"
    assert printed(ADVISED, limit=limited) == ["False"]
