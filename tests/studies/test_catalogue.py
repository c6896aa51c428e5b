"""Study files: the named studies, the format's example, grids and shared changes, and one-line refusals."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from vitral.core.errors import UsageError
from vitral.model import ModelConfig
from vitral.model.counts import parameter_table
from vitral.studies import read_study, study_named, study_names
from vitral.studies.design import BUDGETS
from vitral.studies.probes import probe_named
from vitral.studies.study_file import parse_study

MANUAL = Path(__file__).parents[2] / "docs" / "study-files.md"
HEAD = 'name = "s"\ntitle = "S"\nquestion = "?"\n'
BASE = '[[arms]]\nname = "base"\ntitle = "the base"\n'


def arm(text: str) -> str:
    """A file with a base and one more table of arms."""
    return f'{HEAD}{BASE}[[arms]]\nname = "other"\ntitle = "other"\n{text}'


def test_names_are_those_of_the_files_and_begin_in_the_order_of_the_lists() -> None:
    names = list(study_names())
    assert names[:4] == ["no-attention", "scale", "mask", "norm"]
    assert sorted(names) == sorted(
        path.name.removesuffix(".toml")
        for path in files("vitral.studies.catalogue").iterdir()
        if path.name.endswith(".toml")
    )
    assert all(study_named(name).name == name for name in names)


@pytest.mark.parametrize("name", study_names())
def test_a_named_study_has_every_budget_a_claim_and_probes_that_exist(name: str) -> None:
    study = study_named(name)
    assert tuple(study.budgets) == BUDGETS
    assert study.claim
    assert study.design
    assert study.source
    for probe in study.probes:
        probe_named(probe)


def test_the_manuals_example_is_read(tmp_path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", MANUAL.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    path = tmp_path / "heads-and-depth.toml"
    path.write_text(example[1], encoding="utf-8")
    study = read_study(path)
    assert [arm.name for arm in study.arms[:4]] == ["four", "eight", "one-block", "eight-one-block"]
    assert [(arm.name, arm.budget) for arm in study.arms[4:]] == [
        ("narrow-32-1", "quick"),
        ("narrow-32-2", "quick"),
        ("narrow-48-1", "full"),
        ("narrow-48-2", "full"),
    ]
    assert study.arms[5].title == "width 32, 2 heads"
    assert study.arms[5].changes == {"model": {"d_model": 32, "num_heads": 2}}
    assert not study.arms[5].compared
    assert study.budgets["quick"].changes == {
        "model": {"d_model": 96},
        "training": {"steps": 240, "evaluate_every": 120},
    }
    assert len(study.at("full").seeds) == 6


def test_the_manual_names_every_probe() -> None:
    from vitral.studies.probes import PROBES

    text = MANUAL.read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in PROBES)


def test_the_grid_of_the_scaling_study_by_hand() -> None:
    study = study_named("scaling")
    arms = {one.name: one for one in study.arms}
    widths, steps = (16, 24, 32, 40, 64), (60, 120, 240, 480, 960)
    pairs = {f"bpe-d{width}-{step}" for width in (16, 24, 64) for step in (60, 120, 240, 480)}
    assert set(arms) == {f"d{w}-{s}" for w in widths for s in steps} | pairs | {
        *("ten-times", "ten-times-longer"),
        "more-tokens",
    }
    assert study.arms[0].name == "d64-480"
    for name, one in arms.items():
        if name == "d64-480":
            continue
        training = one.changes["training"]
        assert training["evaluate_every"] == training["steps"] == 20 * training["schedule"]["warmup_steps"]
    quick = {one.name for one in study.at("quick").arms}
    assert {name for name in pairs if name in quick} == {f"bpe-d{w}-{s}" for w in (16, 64) for s in (60, 240)}
    assert not any("960" in name for name in quick | {one.name for one in study.at("standard").arms})
    assert arms["more-tokens"].changes["training"]["steps"] == 4 * 480


def test_ten_times_is_ten_times_the_largest_of_the_grid() -> None:
    def blocks(width: int) -> int:
        model = ModelConfig.parse({"d_model": width, "num_heads": 4, "num_layers": 2, "context_length": 64})
        return sum(row.count for row in parameter_table(model, 109) if row.part not in ("embedding", "head"))

    arms = {one.name: one.changes.get("model", {}).get("d_model", 64) for one in study_named("scaling").arms[1:]}
    widths = {width for name, width in arms.items() if not name.startswith("ten-times")}
    assert blocks(arms["ten-times"]) / blocks(max(widths)) == pytest.approx(10, rel=0.02)
    assert blocks(max(widths)) / blocks(min(widths)) > 10


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (arm("colour = 3\nchanges.model.norm = 'post'"), "arms.1: unknown key 'colour'"),
        (arm("budget = 'huge'\nchanges.model.norm = 'post'"), "arms.1: budget: 'huge' is not one of quick"),
        (arm("compared = 1\nchanges.model.norm = 'post'"), "arms.1: compared: "),
        (f"{HEAD}probs = []\n{BASE}", "unknown key 'probs', did you mean 'probes'"),
        (f"{HEAD}changes = 3\n[budgets.quick]\n{BASE}", "changes: expected a table, not 3"),
        (f"{HEAD}changes.model.d_model = 4\n{BASE}", "changes: only a study with budgets"),
        (f"{HEAD}changes.model.d_model = 4\n[budgets.quick]\nchanges = 3\n{BASE}", "budgets.quick.changes: "),
        (f"{HEAD}arms = 3", "arms: "),
        (arm("grid = 3"), "arms.1.grid: expected axes"),
        (arm("grid = [[]]"), "arms.1.grid: expected axes"),
        (arm("grid = [[3]]"), "arms.1.grid: expected axes"),
        (arm("grid = [[{ a = 1 }], [{ a = 2 }]]"), "arms.1.grid: two axes have the key 'a'"),
        (arm(f"grid = [[{', '.join(['{ a = 1 }'] * 1001)}]]"), "arms.1.grid: more than 1000"),
        (arm("grid = [[{ a = 1, budget = 'huge' }]]\nchanges.model.d_ff = '{a}'"), "arms.1: budget: 'huge' is not one"),
        (arm("grid = [[{ a = 1 }]]\nchanges.model.d_ff = '{b}'"), "arms.1: '{b}' asks for 'b'"),
        (arm("grid = [[{ a = 1 }, { a = 2 }]]\nchanges.model.d_ff = '{a}'"), "arms: two arms are called 'other'"),
        ("name = ", "not TOML"),
    ],
)
def test_a_mistake_is_refused_in_one_line_with_file_and_key(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=rf"^mine\.toml: {re.escape(complaint)}") as refused:
        parse_study(text, "mine.toml")
    assert "\n" not in str(refused.value)


def test_an_error_after_a_grid_counts_tables_as_written() -> None:
    grid = "grid = [[{ a = 1 }, { a = 2 }]]\nchanges.model.d_ff = '{a}'\n".replace("other", "other-{a}")
    text = arm(grid).replace('name = "other"', 'name = "other-{a}"') + '[[arms]]\nname = "third"\n'
    with pytest.raises(UsageError, match=r"arms\.2: title: is required"):
        parse_study(text, "mine.toml")


def test_changes_of_a_budget_win_over_those_of_the_study() -> None:
    text = f"{HEAD}changes.training = {{ steps = 5, batch_size = 3 }}\n[budgets.quick]\nchanges.training.steps = 7\n"
    study = parse_study(text + arm("changes.model.norm = 'post'").removeprefix(HEAD), "mine.toml")
    assert study.budgets["quick"].changes == {"training": {"steps": 7, "batch_size": 3}}
