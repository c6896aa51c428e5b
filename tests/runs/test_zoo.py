"""The zoo: small runs that come with Vitral."""

import pytest

import vitral
from docs.make_zoo import is_made_by, numbers
from vitral import UsageError
from vitral.runs import verify
from vitral.runs.zoo import FOLDER, located, recipe, zoo_names
from vitral.runs.zoo import numbers as written

MOST = 1_000_000
"""Bytes of a run."""
FLOOR = {"right": 0.99, "exact": 0.99, "prefix": 0.8}
"""The least share of right answers, and the least score of the best induction head."""


@pytest.mark.parametrize("name", zoo_names())
def test_a_run_of_the_zoo_is_whole_small_and_made_by_its_recipe(name):
    result = verify(located(f"zoo:{name}"), deep=True)
    assert not result.findings
    assert is_made_by(recipe(name)["run"], result.config)
    assert written()[name]["bytes"] <= MOST


@pytest.mark.parametrize("name", zoo_names())
def test_its_numbers_are_those_of_its_weights(name):
    run = vitral.load(f"zoo:{name}")
    result = numbers(run)
    assert result == pytest.approx(written()[name], abs=1e-3)
    assert all(result[key] >= least for key, least in FLOOR.items() if key in result)
    assert name.endswith("no-attention") or result.get("loss", 0) < result.get("table", 1)


def test_it_is_read_wherever_a_run_is_and_never_written():
    run = vitral.load("zoo:aldermere")
    assert len(run.generate("The ", max_tokens=20, seed=1)) > 20
    assert str(run.path) == vitral.generate("zoo:aldermere", max_tokens=1).run == "zoo:aldermere"
    assert vitral.count("zoo:aldermere").vocab_size == run.tokenizer.vocab_size
    assert "zoo:aldermere" in vitral.list_zoo()
    for change in (vitral.resume, vitral.continue_):
        with pytest.raises(UsageError, match="zoo:aldermere"):
            change("zoo:aldermere")
    for change in (vitral.resume, vitral.continue_, lambda path: vitral.doctor(path, repair=True)):
        with pytest.raises(UsageError):
            change(FOLDER / "aldermere")
    with pytest.raises(UsageError, match="induction, masked"):
        vitral.load("zoo:nothing")


def test_what_it_was_trained_for():
    letters = "stained glass window of an old house".replace(" ", "")
    sources = [letters[begin : begin + 20] for begin in range(12)] + [letters[:length] for length in range(6, 14)]
    answers = vitral.generate("zoo:reverse", source=sources, temperature=0)
    assert [each.text for each in answers.samples] == [source[::-1] for source in sources]
    assert vitral.fill("zoo:masked", "I have t[MASK]en my letter").plain()["gaps"]
