"""Forecasts against published runs, against each other, and their refusals."""

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest

from vitral import forecast
from vitral.core.errors import UsageError
from vitral.runs import RunConfig
from vitral.training.costs import training_bytes
from vitral.training.forecast import accelerators

GPT2_XL = {"context_length": 1024, "d_model": 1600, "num_layers": 48, "num_heads": 25, "tie_head": True}
LLAMA_8B = {
    **{"context_length": 8192, "d_model": 4096, "num_layers": 32, "num_heads": 32, "num_kv_heads": 8},
    **{"feed_forward": "swiglu", "d_ff": 14336, "norm_type": "rmsnorm", "positions": "rotary", "bias": False},
}
LLAMA_2 = {
    **{"context_length": 4096, "feed_forward": "swiglu", "norm_type": "rmsnorm", "positions": "rotary", "bias": False},
    **{"d_model": 5120, "num_layers": 40, "num_heads": 40, "d_ff": 13824},
}
LLAMA_2_7B = {**LLAMA_2, "d_model": 4096, "num_layers": 32, "num_heads": 32, "d_ff": 11008}
WIDE, NARROW = (
    {"context_length": 16, "d_model": 1024, "num_layers": 1, "num_heads": 1},
    {"context_length": 7, "d_model": 12, "num_layers": 1, "num_heads": 2},
)
MPT = {"context_length": 2048, "d_model": 4096, "num_layers": 32, "num_heads": 32, "tie_head": True}
MPT_1B = {**MPT, "d_model": 2048, "num_layers": 24, "num_heads": 16}
MPT_3B, MPT_13B = (
    {**MPT, **dict(zip(("d_model", "num_heads", "num_layers"), sizes, strict=True))}
    for sizes in ((2560, 20, 32), (5120, 40, 40))
)
TITAN, TITAN_A100 = (
    "torchtitan, benchmarks/llama3_h100_202412_torchtitan.md",
    "torchtitan at 04133643, docs/performance.md",
)
FOUNDRY, FMS = "llm-foundry at 061f2c7c, scripts/train/benchmarking", "fms-fsdp at 0d319983, README.md"
PUBLISHED = (
    ("llm.c, scripts/run_gpt2_1558M.sh: 2.80 s for 1,048,576 tokens", "h100", GPT2_XL, 50304, 8, 1_048_576 / 2.80 / 8),
    (f"{TITAN}, Llama 3.1 8B, FSDP", "h100", LLAMA_8B, 128256, 8, 5762),
    (f"{TITAN}, the same compiled", "h100", LLAMA_8B, 128256, 8, 6667),
    (f"{TITAN}, 128 H100", "h100", LLAMA_8B, 128256, 128, 5605),
    (f"{TITAN}, compiled, 128 H100", "h100", LLAMA_8B, 128256, 128, 6514),
    (f"{FOUNDRY}, MPT 3B", "h100", MPT_3B, 50368, 64, 22525),
    (f"{FOUNDRY}, MPT 7B", "h100", MPT, 50368, 8, 10643),
    (f"{FOUNDRY}, MPT 13B", "h100", MPT_13B, 50368, 64, 4800),
    (f"{TITAN_A100}, Llama 3 8B, FSDP", "a100", LLAMA_8B, 128256, 64, 2904),
    (f"{TITAN_A100}, Llama 2 13B", "a100", LLAMA_2, 32000, 64, 2162),
    (f"{FMS}, Llama 2 7B", "a100", LLAMA_2_7B, 32000, 128, 3760),
    (f"{FMS}, Llama 2 13B", "a100", LLAMA_2, 32000, 128, 1700),
    (f"{FOUNDRY}, MPT 1B", "a100", MPT_1B, 50368, 8, 20513),
    (f"{FOUNDRY}, MPT 7B", "a100", MPT, 50368, 8, 4641),
    (f"{FOUNDRY}, MPT 3B", "a100-40", MPT_3B, 50368, 128, 9538),
    (f"{FOUNDRY}, MPT 7B", "a100-40", MPT, 50368, 8, 3679),
    (f"{FOUNDRY}, MPT 13B", "a100-40", MPT_13B, 50368, 8, 1668),
)
"""Source, kind, model, vocabulary, accelerators and tokens a second on each."""


def written(folder: Path, model: dict, **training: object) -> Path:
    lines = [
        *("[corpus]", 'tokenizer = "byte"', "[model]"),
        *(f"{key} = {_toml(value)}" for key, value in model.items()),
    ]
    lines += ["[training]", *(f"{key} = {_toml(value)}" for key, value in training.items())]
    (folder / "run.toml").write_text("\n".join(lines), encoding="utf-8")
    return folder / "run.toml"


def _toml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value).replace("'", '"')


@pytest.mark.parametrize(
    ("source", "kind", "model", "vocabulary", "gpus", "speed"),
    PUBLISHED,
    ids=[f"{row[1]}: {row[0]}" for row in PUBLISHED],
)
def test_the_range_holds_published_speeds(
    source: str, kind: str, model: dict, vocabulary: int, gpus: int, speed: float, tmp_path: Path
) -> None:
    config = written(tmp_path, model, accumulation=gpus, batch_size=8)
    told = forecast(config, gpus=gpus, kind=kind, vocabulary=vocabulary)
    assert told.tokens_per_second is not None
    low, high = told.tokens_per_second
    assert low <= gpus * speed <= high
    assert (high - low) / (high + low) <= 0.25


@pytest.mark.parametrize("kind", accelerators())
def test_a_kind_without_a_published_training_says_so_and_takes_the_range_of_all_others(
    kind: str, tmp_path: Path
) -> None:
    config = written(tmp_path, WIDE, accumulation=1, batch_size=2**14, dtype="bfloat16")
    told = forecast(config, kind=kind, vocabulary=7)
    assert told.tokens_per_second is not None
    shares = [speed * told.flops_per_token / told.accelerator.flops for speed in told.tokens_per_second]
    assert told.accelerator.utilisation is None or kind in {row[1] for row in PUBLISHED}
    assert shares == pytest.approx(told.accelerator.utilisation or (0.32, 0.65))
    (note,) = told.notes
    assert ("h100, a100" in note) == (told.accelerator.utilisation is None)


def test_hours_and_memory_by_hand(tmp_path: Path) -> None:
    config = written(tmp_path, WIDE, steps=50, accumulation=8, batch_size=2**14, dtype="bfloat16")
    told = forecast(config, gpus=4, kind="a100", vocabulary=7)
    assert told.tokens_per_step == 8 * 2**14 * 16
    assert told.tokens == 50 * told.tokens_per_step
    assert told.hours is not None
    assert told.tokens_per_second is not None
    low, high = told.hours
    assert low == pytest.approx(told.tokens / told.tokens_per_second[1] / 3600)
    assert high == pytest.approx(told.flops_per_token * told.tokens / (0.45 * 4 * 312e12) / 3600)
    assert told.memory == training_bytes(RunConfig.parse(tomllib.loads(config.read_text())), 7, 4, device="cuda")
    assert told.fits
    assert told.plain()["notes"]


def test_a_forecast_from_this_machine(tmp_path: Path) -> None:
    told = forecast(written(tmp_path, NARROW, accumulation=3, batch_size=5), gpus=3, vocabulary=11, measure=True)
    assert told.hours is not None
    assert told.tokens_per_second is not None
    low, high = told.tokens_per_second
    assert low == pytest.approx(0.85 * high)
    assert told.accelerator.kind == "here"
    assert all(math.isfinite(each) for each in told.hours)


def test_the_speed_of_a_narrow_model_is_unknown(tmp_path: Path) -> None:
    told = forecast(written(tmp_path, NARROW, accumulation=3, batch_size=5), gpus=3, vocabulary=11)
    assert (told.tokens_per_second, told.hours) == (None, None)
    assert {row["quantity"] for row in told.records()} == {"memory of one", "operations per token"}
    assert "1,600" in str(told)


def test_refusals(tmp_path: Path) -> None:
    wide = written(tmp_path, WIDE, accumulation=3)
    cases: tuple[tuple[str, dict[str, Any]], ...] = (
        ("cannot be shared out evenly among 2; set training.accumulation = 4", {"gpus": 2}),
        ("kind 'h10' is unknown", {"gpus": 3, "kind": "h10"}),
    )
    for complaint, given in cases:
        with pytest.raises(UsageError, match=complaint):
            forecast(wide, vocabulary=7, **given)
