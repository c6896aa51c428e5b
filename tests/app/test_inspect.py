"""`vitral inspect` from end to end: terminal, JSON and page say the same."""

import json
import re
from pathlib import Path

import pytest
import torch
from variants import TEXT, TOKENIZER, made

import vitral as library
from vitral.evaluation import Masking
from vitral.inspection.one_text import inspect_text
from vitral.report.inspection import head_table, inspection_page, norm_table, sublayer_table


def test_json_is_what_the_library_gives(vitral, trained: Path) -> None:
    told = vitral("inspect", str(trained), "--text", "WREN. The", "--windows", "7", "--top", "3", "--format", "json")
    assert told.code == 0, told
    found, loaded = json.loads(told.out), library.load(trained)
    assert found == loaded.inspect("WREN. The", windows=7, top=3).plain()
    assert {len(position["top"]) for position in found["lens"]["points"][-1]["positions"]} == {3}
    assert found["step"] == loaded.step
    assert found["ablation"]["rows"] == 7


def test_the_terminal_has_a_row_for_every_head_sublayer_position_and_point(vitral, trained: Path) -> None:
    shown = vitral("inspect", str(trained), "--text", "WREN. The").out
    found = library.load(trained).inspect("WREN. The").plain()
    heads, sublayers = head_table(found), sublayer_table(found)
    assert heads is not None
    assert sublayers is not None
    assert [row[0] for row in heads.cells] == ["0.0", "0.1", "0.2"]
    assert [row[0] for row in sublayers.cells] == ["0"]
    assert len(sublayers.columns) == 7
    for row in [*heads.cells, *sublayers.cells, *norm_table(found).cells]:
        assert re.search(r"\s+".join(map(re.escape, row)), shown), row
    for place, label in enumerate(["W", "R", "E", "N", ".", "␣", "T", "h", "e"]):
        assert f"\n{place} {label}" in shown


@pytest.mark.parametrize(("form", "begin"), [("html", "<!doctype html>"), ("json", '{"run":'), ("text", "'WREN'")])
def test_out_takes_its_form_from_the_name(vitral, trained: Path, tmp_path: Path, form: str, begin: str) -> None:
    line, name = ("inspect", str(trained), "--text", "WREN", "--windows", "2"), f"a.{form.replace('text', 'txt')}"
    assert vitral(*line, "--out", name).code == 0
    written = (tmp_path / name).read_text(encoding="utf-8")
    assert written.lower().startswith(begin.lower())
    assert vitral(*line, "--format", form).out == written


@pytest.mark.parametrize("variant", ["pre", "neither", "bidirectional"])
def test_every_variant_has_a_page_that_stands_alone(variant: str) -> None:
    masking = Masking(0.15, 0) if variant == "bidirectional" else None
    model = made(variant)
    found = {"run": "runs/one", "step": 5} | inspect_text(model, TOKENIZER, TEXT, masking=masking)
    page = inspection_page(found)
    assert not re.search(r'(?:src|href)="(?!#|data:)', page)
    maps = 0 if model.mask is None else model.config.num_layers
    assert len(re.findall(r"Attention weights of block \d+\.", page)) == maps
    assert page.count('role="gridcell"') == 8 * len(found["lens"]["points"])


def test_a_page_of_a_diverged_model_is_made() -> None:
    model = made("pre")
    with torch.no_grad():
        model.token_embedding.weight.fill_(torch.nan)
    assert inspection_page({"run": "one", "step": 0} | inspect_text(model, TOKENIZER, TEXT))


def test_edits_are_the_same_on_the_command_line_and_from_python(vitral, trained: Path, tmp_path: Path) -> None:
    edits = [{"at": "blocks.0.attn.z", "heads": [0], "positions": [2, 3], "do": "zero"}]
    (tmp_path / "edits.json").write_text(json.dumps(edits), encoding="utf-8")
    loaded, given = library.load(trained), ("inspect", str(trained), "--text", "WREN. The", "--edits")
    told = [vitral(*given, edits, "--format", "json") for edits in (json.dumps(edits), str(tmp_path / "edits.json"))]
    found = [json.loads(each.out) for each in told]
    assert found[0] == found[1] == loaded.inspect("WREN. The", edits=edits).plain()
    before, after = (loaded.trace("WREN. The", ["logits"], edits=each)["logits"][0] for each in ([], edits))
    places = zip(before.log_softmax(-1), after.log_softmax(-1), found[0]["edited"]["positions"], strict=True)
    for one, other, seen in places:
        assert float((one.exp() * (one - other)).sum()) == pytest.approx(seen["divergence"], abs=1e-5)
    shown = vitral(*given, json.dumps(edits)).out
    assert "What 1 edit changes" in shown
    assert "What 1 edit changes" in str(library.inspect(trained, "WREN. The", edits=edits))
    page = vitral(*given, json.dumps(edits), "--format", "html").out
    assert ">What the edits change</h2>" in page
    refused = vitral(*given, '[{"at": "blocks.0.attn.z", "heads": [9], "do": "zero"}]')
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.startswith("vitral: edits.0: heads: ")
