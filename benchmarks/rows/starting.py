"""Row `startup`: time until the program responds."""

from collections.abc import Sequence

from benchmarks.options import Options
from benchmarks.processes import cold, finish, python, wall
from benchmarks.results import Goal, Section
from benchmarks.results import measure as measure_contenders

NAMES = ("startup",)
HELP, TOKEN = "vitral --help", "vitral generate, one token"
BARE, TORCH = "python -c pass", "python -c 'import torch'"
HELP_SECONDS, BEYOND_TORCH = 0.3, 0.3
TEXT = "the quick brown fox jumps over the lazy dog\n" * 4000


def measure(names: Sequence[str], options: Options) -> list[Section]:
    """Measure processes from start to end, their bytecode compiled, their files in the system's cache.

    Raises:
        LeftOut: a process failed.
    """
    with cold(options) as (scratch, env):
        text, run = scratch / "tiny.txt", scratch / "run"
        text.write_text(TEXT, encoding="utf-8")
        training = ("--set", "training.steps=1", "--set", "model.d_model=32", "--set", "training.sample_every=1")
        finish(python("-m", "vitral", "train", str(text), "--out", str(run), *training), env)
        generate = ("-m", "vitral", "generate", str(run), "--max-tokens", "1")
        measured = measure_contenders(
            {
                HELP: wall(python("-m", "vitral", "--help"), env),
                BARE: wall(python("-c", "pass"), env),
                TOKEN: wall(python(*generate), env),
                TORCH: wall(python("-c", "import torch"), env),
            },
            options.rounds,
            warmup=1,
        )
    by_name = {one.name: one for one in measured}
    return [
        Section(
            "startup",
            "help, a process from start to end",
            (by_name[HELP], by_name[BARE]),
            goals=(Goal("seconds", HELP_SECONDS),),
        ),
        Section(
            "startup",
            "the first token of a run, a process from start to end",
            (by_name[TOKEN], by_name[TORCH]),
            goals=(Goal("beyond", BEYOND_TORCH, TORCH),),
        ),
    ]
