"""The document of a page: its policy, its parts, what it holds, and what its documentation says."""

import gzip
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from pages import Carried, weights_of
from typer.main import get_command
from variants import TEXT, TOKENIZER

import vitral
from vitral.app.terminal import app
from vitral.core.errors import UsageError
from vitral.page.content import expected_size, in_commands
from vitral.page.document import SCRIPT, as_text, asset, own_stops, page_document, parts_of, sentences, words
from vitral.page.tour import KEYS, LEFT_OUT, stops_of

MOST_WEIGHT = 102_500
"""Bytes of script and style, compressed; the words, which are data, come on top."""


def test_script_and_style_are_light_and_end_no_element() -> None:
    assert sum(len(gzip.compress(asset(name).encode(), 9)) for name in (SCRIPT, "page.css")) <= MOST_WEIGHT
    assert "</script" not in asset(SCRIPT)
    assert "</style" not in asset("page.css")


def test_every_sentence_of_the_front_end_has_its_translation() -> None:
    told = words()
    assert told["en"] == list(sentences())
    assert len(told["pt"]) == len(told["en"])
    assert all(told["pt"])


def test_data_cannot_end_their_element() -> None:
    text = as_text({"</script>": "\u2028\ud800<!--"})
    assert text.isascii()
    assert "<" not in text


def test_the_numbers_that_a_page_carries_are_the_models(carried: Carried) -> None:
    model, content = carried("pre")
    weights, state = weights_of(content), model.state_dict()
    assert all(torch.equal(weights[name], state[name]) for name in state)
    assert {each["name"] for each in content.graphs["step"]["constants"]} <= state.keys()
    assert set(content.graphs["model"]["outputs"]) == set(content.about["names"]) == set(model.activation_names)
    short, whole = content.checks.sentences
    truth = model.trace(torch.tensor([short["ids"]]))
    assert (short["ids"][: len(TEXT)], short["text"]) == (
        TOKENIZER.encode(TEXT).tolist(),
        TOKENIZER.decode(short["ids"]),
    )
    assert (len(whole["ids"]), whole["last"]) == (13, 1)
    for told in short["values"]:
        kept = torch.frombuffer(bytearray(content.checks.truth), dtype=torch.float32)[told["start"] // 4 :]
        assert torch.equal(kept[: truth[told["name"]].numel()], truth[told["name"]].flatten())


def test_the_file_has_every_part(carried: Carried) -> None:
    model, content = carried("pre")
    document = page_document(content)
    run: Any = SimpleNamespace(model=model, tokenizer=TOKENIZER)
    assert len(document) == pytest.approx(expected_size(run), rel=0.6)
    for name, text in parts_of(content).items():
        assert f'id="{name}">{text}</script>' in document
    assert json.loads(parts_of(content)["about"]) == content.about


def test_commands_name_a_run_from_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run, other = Path("runs") / "mine", tmp_path.parent / "other"
    assert in_commands(run, shared=True) == in_commands(run.absolute(), shared=False) == "runs/mine"
    assert [in_commands(other, shared=shared) for shared in (True, False)] == ["other", str(other)]


DOCS = Path(__file__).parents[2] / "docs"
STATE = DOCS.parent / "web" / "src" / "page" / "state.ts"
PAGES = [DOCS / "page.md", DOCS / "pt" / "page.md"]


@pytest.mark.parametrize("page", PAGES, ids=["en", "pt"])
def test_its_commands_its_line_of_python_and_its_tour_are_right(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    (tour,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    file = tmp_path / "mine.toml"
    file.write_text(tour, encoding="utf-8")
    assert len(stops_of(file)) == 2
    assert own_stops() == stops_of()
    file.write_text(tour.replace("b=1&h=0", "b=1&g=2.done&u=1e-7"), encoding="utf-8")
    assert stops_of(file)[0]["address"].endswith("&b=1&u=1e-7")
    (defaults,) = re.findall(r"DEFAULTS = \{(.*?)\}", STATE.read_text(encoding="utf-8"))
    assert set(re.findall(r"(\w+):", defaults)) <= {*KEYS.split(", "), *LEFT_OUT}
    commands = re.findall(r"^vitral bundle (.*)$", text, re.MULTILINE)
    bundle = get_command(app).commands["bundle"]  # pyright: ignore[reportAttributeAccessIssue]
    given = [bundle.make_context("bundle", shlex.split(words, comments=True)).params for words in commands]
    outs = [None, "lecture.html", "other.html", "whole.html", "two.html", None]
    assert [one["out"] and str(one["out"]) for one in given] == outs
    assert {str(one["runs"][0]) for one in given} == {"runs/mine"}
    assert [given[1]["checkpoint"], given[2]["corpus"], given[3]["ablations"]] == ["last", "my.txt", True]
    assert "vitral.bundle(" in text
    assert callable(vitral.bundle)


WRONG = ["wait='a miracle'", "then='{end}'", "address='yy=2'", "address='h=one'", "colour='red'", "then=''"]


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_tour_is_refused_in_one_line_with_its_place(line: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f"[[stops]]\ntitle='T'\nhighlight='heads'\nsentence='S'\n{line}", encoding="utf-8")
    with pytest.raises(UsageError, match=rf"mine.toml: stops.0.*{line.partition('=')[0]}.*$"):
        stops_of(file)
