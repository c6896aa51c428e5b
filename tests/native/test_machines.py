"""The C file in a program of its own: under sanitizers, without wide vectors, and on another processor."""

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from variants import TOKENIZER, VARIANTS, made

from vitral.model import KVCache, Transformer
from vitral.model.native import Choice, NativeStep, build, native_step

HERE = Path(__file__).parent
ROWS, PROMPT, COUNT, THREADS = 3, 5, 7, 2
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-g",
    "-DVITRAL_ONE_TARGET",
    "-DVITRAL_ALONE=1",
)
CHOICE = Choice(temperature=0.9, top_k=8, top_p=0.95, min_p=0.02, repetition_penalty=1.2)


def program(folder: Path, compiler: Sequence[str], *flags: str) -> Path | None:
    """The driver, compiled; None where this compiler or its libraries are not installed."""
    made = folder / "driver"
    source = build.SOURCE
    words = [
        "-std=gnu11",
        "-Wall",
        "-Wno-psabi",
        "-pthread",
        f"-I{source.parent}",
        str(HERE / "driver.c"),
        "-o",
        str(made),
        "-lm",
    ]
    assert compiler
    if shutil.which(compiler[0]) is None:
        return None
    done = subprocess.run([*compiler, *flags, *words], capture_output=True, text=True, check=False)
    if done.returncode and "cannot find" in done.stderr:  # the sanitizers' libraries
        return None
    assert done.returncode == 0, done.stderr
    return made


def case_of(model: Transformer, tokens: torch.Tensor, chances: np.ndarray) -> bytes:
    """The bytes of the driver's case: a prompt of every row, and tokens to choose."""
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
    shape = (context, tokens.shape[1], 0, ROWS, 0, 0, PROMPT, chances.shape[1], len(forbidden), THREADS)
    data.append(struct.pack("<11q", *shape, tokens.numel()) + tokens.numpy().tobytes())
    data.append(struct.pack("<5d", *CHOICE) + struct.pack(f"<{len(forbidden)}q", *forbidden))
    return b"".join([*data, chances.tobytes(), struct.pack("<q", context)])


def compare(folder: Path, command: Sequence[str], variant: str) -> None:
    """Run a case; the ids are those of the library, and the logits up to rounding."""
    model = made(variant)
    together = 0 if model.mask is None else model.mask.joint_prefix()
    count = 1 if together is None or together > PROMPT else COUNT  # such a window is read anew
    tokens = torch.zeros(ROWS, PROMPT + count, dtype=torch.int64)
    tokens[:, :PROMPT] = torch.randint(TOKENIZER.vocab_size, (ROWS, PROMPT), generator=torch.Generator().manual_seed(1))
    chances = np.random.default_rng(3).random((ROWS, count))
    (folder / "in").write_bytes(case_of(model, tokens, chances))
    done = subprocess.run([*command, "in", "out"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (variant, done.stderr[-3000:])
    data = (folder / "out").read_bytes()
    size = 8 * (1 + tokens.numel())
    made_there, *ids = np.frombuffer(data[:size], np.int64).tolist()
    step = native_step(model)
    assert isinstance(step, NativeStep)
    cache = KVCache(model.config, ROWS, model.config.context_length, dtype=torch.float32, device=torch.device("cpu"))
    forbidden = TOKENIZER.specials
    made_here = step.write(tokens, cache, begin=0, length=PROMPT, choice=CHOICE, chances=chances, forbidden=forbidden)
    assert made_there == made_here == count
    assert ids == tokens.flatten().tolist(), variant
    again = KVCache(model.config, ROWS, model.config.context_length, dtype=torch.float32, device=torch.device("cpu"))
    logits = torch.frombuffer(bytearray(data[size:]), dtype=torch.float32).view(ROWS, -1)
    expected = step(tokens[:, :-1].contiguous(), again)
    torch.testing.assert_close(logits, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.usefixtures("used")
@pytest.mark.parametrize("flags", [("-O1",), ("-O1", "-mavx2", "-mfma")], ids=["plain", "AVX2"])
def test_sanitizers_find_nothing(flags: tuple[str, ...], tmp_path: Path) -> None:
    if len(flags) > 1 and torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("this processor has no AVX2")
    command = program(tmp_path, build.compiler() or (), *flags, *SANITIZERS)
    if command is None:
        pytest.skip("the compiler has no sanitizers")
    for variant in VARIANTS:
        compare(tmp_path, [str(command)], variant)


@pytest.mark.usefixtures("used")
def test_it_computes_the_same_on_aarch64(tmp_path: Path) -> None:
    command = program(tmp_path, ["aarch64-linux-gnu-gcc"], "-O2", "-static")
    emulator = shutil.which("qemu-aarch64") or shutil.which("qemu-aarch64-static")
    if command is None or emulator is None:
        pytest.skip("the compiler for aarch64 or its emulator is not installed")
    for variant in VARIANTS:
        compare(tmp_path, [emulator, str(command)], variant)
