"""Study files: the named studies, the format's example, grids and shared changes, and one-line refusals."""

import re
import tomllib
from pathlib import Path

import pytest

from vitral.core.errors import UsageError
from vitral.studies import read_study
from vitral.studies.study_file import parse_study

MANUAL = Path(__file__).parents[2] / "docs" / "study-files.md"
HEAD = 'name = "s"\ntitle = "S"\nquestion = "?"\n'
BASE = '[[arms]]\nname = "base"\ntitle = "the base"\n'


def arm(text: str) -> str:
    """A file with a base and one more table of arms."""
    return f'{HEAD}{BASE}[[arms]]\nname = "other"\ntitle = "other"\n{text}'


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


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (arm("colour = 3\nchanges.model.norm = 'post'"), "arms.1: unknown key 'colour'"),
        (arm("budget = 'huge'\nchanges.model.norm = 'post'"), "arms.1: budget: 'huge' is not one of quick"),
        (f"{HEAD}probs = []\n{BASE}", "unknown key 'probs', did you mean 'probes'"),
        (f"{HEAD}changes = 3\n[budgets.quick]\n{BASE}", "changes: input should be a valid dict"),
        (f"{HEAD}changes.model.d_model = 4\n{BASE}", "changes: only a study with budgets"),
        (f"{HEAD}changes.model.d_model = 4\n[budgets.quick]\nchanges = 3\n{BASE}", "budgets.quick.changes: "),
        (f"{HEAD}arms = 3", "arms: "),
        (arm("grid = [[3]]"), "arms.1: grid.0.0: "),
        (arm("grid = ['no axis']"), "arms.1: grid.0: "),
        (arm("grid = [[{ a = 1 }], [{ a = 2 }]]"), "arms.1.grid: two axes have the key 'a'"),
        (arm("grid = [[{ a = 1, budget = 'huge' }]]\nchanges.model.d_ff = '{a}'"), "arms.1: budget: 'huge' is not one"),
        (arm("grid = [[{ a = 1 }]]\nchanges.model.d_ff = '{b}'"), "arms.1: '{b}' asks for 'b'"),
        ("name = ", "not TOML"),
    ],
)
def test_a_mistake_is_refused_in_one_line_with_file_and_key(text: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=re.escape(f"{path}: {complaint}")):
        read_study(path)


def test_changes_of_a_budget_win_over_those_of_the_study() -> None:
    text = f"{HEAD}changes.training = {{ steps = 5, batch_size = 3 }}\n[budgets.quick]\nchanges.training.steps = 7\n"
    study = parse_study(tomllib.loads(text + arm("changes.model.norm = 'post'").removeprefix(HEAD)), "mine.toml")
    assert study.budgets["quick"].changes == {"training": {"steps": 7, "batch_size": 3}}
