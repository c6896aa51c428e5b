"""The loss that a scaling study predicts: the law behind the study's numbers, its warnings, and refusals."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
import tomli_w

from vitral.core.errors import UsageError
from vitral.core.seals import sealed_json
from vitral.lab import forecast, forecasting
from vitral.reports.folder import ReportFolder
from vitral.reports.forecast import Forecast
from vitral.runs import RunConfig

WIDTHS, STEPS = (8, 12, 20), (30, 60, 120, 240)
MODEL = {"context_length": 7, "num_layers": 1, "num_heads": 2}
TRAINING = {"batch_size": 5, "dtype": "float32"}


def loss_at(size: float, amount: float) -> float:
    return 0.7 + 9 * size**-0.45 + 20 * amount**-0.4


def configured(width: int, steps: int, **changes: Any) -> dict[str, Any]:
    training = {**TRAINING, "steps": steps, "evaluate_every": steps}
    plain = {"corpus": {"source": "words", "tokenizer": "char"}, "model": {**MODEL, "d_model": width} | changes}
    return RunConfig.parse({**plain, "training": training}).plain()


def blocks(width: int) -> int:
    """Parameters of one block with a GELU layer four times as wide: matrices, biases, two norms, and the last norm."""
    return 12 * width**2 + 13 * width + 2 * width


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a study keeps, its losses in bits per character exactly on a law; two of its runs are beyond the grid."""
    monkeypatch.setattr(forecasting, "rank_bytes", lambda *_: {"Total": 1})
    folder, arms = tmp_path / "study", []
    (folder / "measures/scaling-fit").mkdir(parents=True)
    places = [(f"d{width}-{steps}", width, steps) for width in WIDTHS for steps in STEPS]
    for name, width, steps in [*places, ("ten-times", 60, 240)]:
        size, amount = blocks(width), steps * 35
        loss = loss_at(size, amount) * (1.2 if name == "ten-times" else 1)
        data = {"size": size, "amount": amount, "compute": 6 * size * amount, "characters_per_token": 1.0}
        plain = {"format": 3, "of": {"run": name, "step": steps}, "data": data}
        (folder / f"measures/scaling-fit/{name}-seed-1.json").write_bytes(sealed_json(plain))
        run = {"seed": 1, "compared_loss": loss / math.log(2)}
        arms.append({"name": name, "title": name, "configuration": configured(width, steps), "runs": [run]})
    report = ReportFolder(folder / "report")
    report.add_json("results.json", {"unit": "bits per character", "arms": arms})
    report.write()
    return folder


def asked(folder: Path, width: int = 16, steps: int = 100, **changes: Any) -> Forecast:
    config = folder.with_name("asked.toml")
    config.write_bytes(tomli_w.dumps(configured(width, steps, **changes)).encode())
    return forecast(config, study=folder, vocabulary=11)


def test_a_law_is_found_and_said_with_its_range(study: Path) -> None:
    found = asked(study).loss
    assert found is not None
    assert (found.size, found.amount) == (blocks(16), 3500)
    assert (found.sizes, found.amounts) == ((blocks(8), blocks(20)), (1050, 8400))
    assert found.is_within
    (law, *_others) = found.laws
    assert law.low <= law.loss <= law.high
    assert law.loss == pytest.approx(loss_at(blocks(16), 3500), rel=1e-3)
    assert json.loads(json.dumps(asked(study).plain()))["loss"]["laws"][0]["law"] == law.law


def test_what_speaks_against_it(study: Path) -> None:
    within, beyond = asked(study), asked(study, width=40, steps=4000)
    assert beyond.loss is not None
    assert not beyond.loss.is_within
    assert len(beyond.notes) > len(within.notes)
    assert any("0 of 1 " in note and "20.0%" in note for note in within.notes)
    assert not any("model." in note for note in within.notes)
    assert any("model.norm_type" in note for note in asked(study, norm_type="rmsnorm").notes)


def test_refusals(study: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not the folder of a finished study"):
        asked(tmp_path)
    with pytest.raises(UsageError, match="byte"):
        forecast("fast", study=study, vocabulary=256, corpus={"tokenizer": "byte"})
    changed = study / "measures" / "scaling-fit" / "d8-30-seed-1.json"
    changed.write_bytes(changed.read_bytes().replace(b"1050", b"1051"))
    with pytest.raises(UsageError, match="SHA-256"):
        asked(study)
    for one in changed.parent.iterdir():
        one.unlink()
    with pytest.raises(UsageError, match="is not a scaling study"):
        asked(study)
    (study / "report" / "results.json").write_text("{}", encoding="utf-8")
    with pytest.raises(UsageError, match=r"results\.json"):
        asked(study)
