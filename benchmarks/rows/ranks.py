"""Row `ranks`: a step of two ranks that add gradients in one order, beside the engine's own order."""

import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w

from benchmarks.options import LeftOut, Options
from benchmarks.processes import cold
from benchmarks.results import OURS, Goal, Section
from benchmarks.results import measure as measure_contenders
from vitral.core.errors import UsageError

NAMES = ("ranks",)
RANKS = 2
FAST = "the engine's order"
MOST = 1.25
"""How many times as long a step in canonical order may take."""
MODEL: dict[str, Any] = {"context_length": 64, "d_model": 128, "num_layers": 4, "num_heads": 4}
QUICK_MODEL: dict[str, Any] = {"context_length": 8, "d_model": 8, "num_layers": 1, "num_heads": 1}
STEPS, QUICK_STEPS = 60, 2


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure steps in canonical order.

    Raises:
        LeftOut: this PyTorch cannot connect ranks.
    """
    from vitral.training.ranks import require_ranks

    try:
        require_ranks()
    except UsageError as error:
        raise LeftOut(str(error)) from None
    steps = QUICK_STEPS if options.quick else STEPS
    with cold(options) as (scratch, environment):
        contenders = {
            name: partial(_seconds, _config(scratch, reduction, options), scratch, environment)
            for name, reduction in ((OURS, "canonical"), (FAST, "fast"))
        }
        section = Section(
            "ranks",
            f"{steps} steps of {RANKS} ranks",
            measure_contenders(contenders, options.rounds),
            unit="steps",
            work=steps,
            goals=(Goal("within", MOST, FAST),),
            notes=("4 batches a step, AdamW, clipping; seconds spent in steps; gloo, one thread a rank",),
        )
    return [section]


def _config(scratch: Path, reduction: str, options: Options) -> Path:
    text = scratch / "words.txt"
    text.write_text("the cat saw a bird and the dog sang to me of it\n" * 999, encoding="utf-8")
    plain = {
        "corpus": {"source": str(text), "tokenizer": "char", "split": "tail"},
        "model": QUICK_MODEL if options.quick else MODEL,
        "training": {
            "steps": QUICK_STEPS if options.quick else STEPS,
            "batch_size": 4,
            "accumulation": 4,
            "clip_norm": 1.0,
            "evaluate_every": 10**6,
            "reduction": reduction,
            "threads": 1,
            "watch": False,
            "device": "cpu",
        },
    }
    path = scratch / f"{reduction}.toml"
    path.write_bytes(tomli_w.dumps(plain).encode())
    return path


def _seconds(config: Path, scratch: Path, environment: dict[str, str]) -> float:
    """Train it anew; the seconds spent in its steps."""
    out = scratch / f"run-{len(list(scratch.glob('run-*')))}"
    command = [sys.executable, "-m", "vitral", "train", str(config), "--ranks", str(RANKS), "--out", str(out)]
    subprocess.run(command, env=environment, check=True, capture_output=True)
    lines = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    plain = tomllib.loads(config.read_text(encoding="utf-8"))
    tokens = plain["training"]["batch_size"] * plain["training"]["accumulation"] * plain["model"]["context_length"]
    before, seconds = 0, 0.0
    for event in map(json.loads, lines):
        if event["event"] == "step":  # its speed has no evaluation and no save in it
            seconds += (event["step"] - before) * tokens / event["tokens_per_second"]
            before = event["step"]
    return seconds
