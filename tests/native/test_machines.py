"""The C file in a program of its own: under sanitizers, without wide vectors, and on another processor."""

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from variants import GENERATED, TOKENIZER, made, made_wide

from tests.native.conftest import LONG
from vitral.model import KVCache, Transformer
from vitral.model.native import Choice, NativeStep, build, native_step

pytestmark = [pytest.mark.merge, pytest.mark.usefixtures("used")]
HERE = Path(__file__).parent
ROWS, COUNT = 3, 7
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-DVITRAL_ONE_TARGET",
    "-DVITRAL_ALONE=1",
)
INSTRUCTIONS = {"plain": (), "AVX2": ("-mavx2", "-mfma"), "AVX-512": ("-march=x86-64-v4",)}
PROCESSORS = {"AVX2": ("AVX2", "AVX512"), "AVX-512": ("AVX512",)}
CHOICE = Choice(temperature=0.9, top_k=8, top_p=0.95, min_p=0.02, repetition_penalty=1.2)


class Window(NamedTuple):
    """Tokens of each row, the first that the model reads; parts of the rows, each with so many threads."""

    length: int
    begin: int = 0
    parts: int = 1
    threads: int = 2


def program(folder: Path, compiler: Sequence[str], *flags: str) -> Path | None:
    """The driver, compiled; None where this compiler or its libraries are not installed."""
    made = folder / "driver"
    words = [
        "-std=gnu11",
        "-pthread",
        f"-I{build.SOURCE.parent}",
        str(HERE / "driver.c"),
        "-o",
        str(made),
        "-lm",
    ]
    if shutil.which(compiler[0]) is None:
        return None
    done = subprocess.run([*compiler, *flags, *words], capture_output=True, text=True, check=False)
    if done.returncode and "cannot find" in done.stderr:  # the sanitizers' libraries
        return None
    assert done.returncode == 0, done.stderr
    return made


def case_of(model: Transformer, window: Window, tokens: torch.Tensor, chances: np.ndarray) -> bytes:
    """The bytes of the driver's case: a window of every row, and tokens to choose."""
    step = native_step(model)
    assert isinstance(step, NativeStep)
    numbers, tensors = list(step._known.numbers), step._known.tensors
    context = model.config.context_length
    cache = KVCache(model.config, ROWS, context, dtype=torch.float32, device=torch.device("cpu"))
    data = [struct.pack(f"<{len(numbers) + 1}q", len(numbers), *numbers), struct.pack("<q", len(tensors))]
    for tensor in tensors:
        data.append(struct.pack("<q", -1 if tensor is None else tensor.numel()))
        if tensor is not None:
            data.append(tensor.detach().numpy().tobytes())
    kept = step._kept(cache)
    data.append(struct.pack("<q", len(kept)))
    data += [struct.pack("<q", tensor.numel()) + tensor.numpy().tobytes() for tensor in kept]
    forbidden = TOKENIZER.specials
    shape = (context, tokens.shape[1], 0, ROWS, window.begin, 0, window.length, chances.shape[1], len(forbidden))
    data.append(struct.pack("<11q", *shape, window.threads, tokens.numel()) + tokens.numpy().tobytes())
    data.append(struct.pack("<5d", *CHOICE) + struct.pack(f"<{len(forbidden)}q", *forbidden))
    return b"".join([*data, chances.tobytes(), struct.pack("<2q", context, window.parts)])


def compare(folder: Path, command: Sequence[str], model: Transformer, variant: str, window: Window) -> None:
    """Run a case; the ids are those of the library, and the logits up to rounding."""
    together = 0 if model.mask is None else model.mask.joint_prefix()
    count = 1 if together is None or together > window.length else COUNT  # such a window is read anew
    tokens = torch.zeros(ROWS, window.length + count, dtype=torch.int64)
    given = torch.randint(TOKENIZER.vocab_size, (ROWS, window.length), generator=torch.Generator().manual_seed(1))
    tokens[:, : window.length] = given
    chances = np.random.default_rng(3).random((ROWS, count))
    (folder / "in").write_bytes(case_of(model, window, tokens, chances))
    done = subprocess.run([*command, "in", "out"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (variant, done.stderr[-3000:])
    data = (folder / "out").read_bytes()
    size = 8 * (1 + tokens.numel())
    made_there, *ids = np.frombuffer(data[:size], np.int64).tolist()
    step = native_step(model)
    assert isinstance(step, NativeStep)
    cache = KVCache(model.config, ROWS, model.config.context_length, dtype=torch.float32, device=torch.device("cpu"))
    forbidden = TOKENIZER.specials
    where = {"begin": window.begin, "length": window.length}
    made_here = step.write(tokens, cache, **where, choice=CHOICE, chances=chances, forbidden=forbidden)
    assert made_there == made_here == count
    assert ids == tokens.flatten().tolist(), variant
    again = KVCache(model.config, ROWS, model.config.context_length, dtype=torch.float32, device=torch.device("cpu"))
    logits = torch.frombuffer(bytearray(data[size:]), dtype=torch.float32).view(ROWS, -1)
    expected = step(tokens[:, window.begin : -1].contiguous(), again)
    torch.testing.assert_close(logits, expected, rtol=2e-5, atol=2e-5)


def compare_all(folder: Path, command: Sequence[str]) -> None:
    """Some variants in a short window, and in one that began anew and is longer than a block, with wide heads; threads
    share either a product or the rows."""
    for variant in LONG[::3]:
        compare(folder, command, made(variant), variant, Window(5))
        compare(folder, command, made_wide(variant), variant, Window(130, begin=61, parts=2, threads=1))


@pytest.mark.parametrize(
    "instructions", [pytest.param(name, marks=() if name == "AVX2" else pytest.mark.full) for name in INSTRUCTIONS]
)
def test_sanitizers_find_nothing(instructions: str, tmp_path: Path) -> None:
    if instructions != "plain" and torch.backends.cpu.get_cpu_capability() not in PROCESSORS[instructions]:
        pytest.skip(f"this processor has no {instructions}")
    command = program(tmp_path, build.compiler() or (), "-O1", *INSTRUCTIONS[instructions], *SANITIZERS)
    if command is None:
        pytest.skip("the compiler has no sanitizers")
    compare_all(tmp_path, [str(command)])
    for variant in GENERATED if instructions == "plain" else ():  # every branch; other instructions have other loops
        compare(tmp_path, [str(command)], made(variant), variant, Window(5))


def test_it_computes_the_same_on_aarch64(tmp_path: Path) -> None:
    command = program(tmp_path, ["aarch64-linux-gnu-gcc"], "-O2", "-static")
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if command is None or emulator is None:
        pytest.skip("the compiler for aarch64 or its emulator is not installed")
    compare_all(tmp_path, [emulator, str(command)])
