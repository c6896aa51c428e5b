"""The picture before the steps: only what the sheet has, the row of the chosen position, in every form."""

import itertools
import json
import re

import pytest
from variants import TEXT, TOKENIZER, VARIANTS, made

from vitral.core.errors import UsageError
from vitral.explanation import Choice, RunView, Walkthrough, parse_example, to_plain, to_text, walk_example, walk_run
from vitral.explanation.examples.by_name import find_example, gallery
from vitral.explanation.examples.schema import AXES
from vitral.explanation.phrasebook import LANGUAGES, phrases
from vitral.explanation.picture import MOST_HEADS, MOST_POSITIONS, Picture, fewer
from vitral.explanation.picture_text import compact, picture_lines
from vitral.report.picture import diagram
from vitral.report.walkthrough import to_markdown, to_page
from vitral.report.walkthrough_latex import to_latex
from vitral.runs.presets import preset_model

SAY = phrases("en")
WITHOUT = ("parameters-on-one-page", "shakespeare-parameters", "beam-beats-greedy")
"""Examples without positions, and without probabilities of words."""


def of(walk: Walkthrough) -> Picture:
    assert walk.picture is not None
    return walk.picture


def drawn_numbers(picture: Picture) -> dict[str, list[tuple[float, ...]]]:
    """The rows of every strip, for each head."""
    return {strip.name: [row for grid in strip.grids for row in grid] for strip in picture.strips}


@pytest.mark.parametrize("name", gallery())
def test_the_picture_of_an_example_has_the_rows_of_its_sheet(name: str) -> None:
    example = find_example(name)
    walk = walk_example(example)
    computed = {each.name for each in example.sheet.quantities if each.name != "beam_probability"}
    if name in WITHOUT or walk.picture is None:
        assert walk.picture is None
        assert not any("time" in AXES.get(each, ()) for each in computed)
        return
    picture, values = of(walk), example.sheet.values
    words = {strip.name for strip in picture.strips if strip.words}
    missing = computed - {strip.name for strip in picture.strips}
    assert not any(each in AXES for each in missing)  # only steps that an author made up
    for strip in picture.strips:
        if strip.name in words:
            continue
        value = values[strip.name]
        for place, grid in enumerate(strip.grids):
            whole = value[place * len(value) // len(strip.grids)] if value.dim() == 3 else value
            rows = whole.reshape(-1, whole.shape[-1])
            row = min(picture.position, len(rows) - 1)
            shown = rows if strip.is_whole else rows[row : row + 1]
            assert [list(line) for line in grid] == shown.tolist()


LSTMS = ("lstm", "lstm alone")


@pytest.mark.parametrize("variant", LSTMS)
@pytest.mark.parametrize("view", [RunView(), RunView(block=True, ending=True), RunView(backward=True)])
def test_the_steps_of_an_lstm_are_refused_in_one_line(variant: str, view: RunView) -> None:
    with pytest.raises(UsageError, match="explain: the steps inside an LSTM are not known") as refused:
        walk_run(made(variant), TOKENIZER, TEXT, view)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("view", [RunView(), RunView(None, Choice(), block=True, ending=True)])
@pytest.mark.parametrize(
    "variant", [name for name in VARIANTS if name not in ("neither", "no layer", "dropout", *LSTMS)]
)
def test_every_kind_of_model_has_a_picture(variant: str, view: RunView) -> None:
    model = made(variant)
    if variant == "no attention" and not view.block:
        return
    picture = of(walk_run(model, TOKENIZER, TEXT, view))
    names = [strip.name for strip in picture.strips]
    assert ("z" in names) == (variant != "no attention")
    assert ("probabilities" in names) == view.ending
    assert picture.position == (len(TEXT) - 1 if view.ending else len(TEXT) // 2)
    assert (picture.formula is not None) == (variant != "no attention")
    for language in LANGUAGES:
        say = phrases(language)
        assert diagram(picture, say).text == "\n".join(picture_lines(picture, say))


def test_attention_is_named_with_its_scale_and_its_mask() -> None:
    formulas = {
        "the-cat-sat": "Attention(Q, K, V) = softmax(Q Kᵀ / √d_k + M) V",
        "two-heads-mixed": "Attention(Q, K, V) = softmax(Q Kᵀ / d_k) V",
    }
    for name, formula in formulas.items():
        assert picture_lines(of(walk_example(find_example(name))), SAY)[0] == formula
    without_values = parse_example('mask = "causal"\nscale = "none"\n[given]\nscores = [[1, 0]]', preset_model)
    assert of(walk_example(without_values)).formula is None


def test_the_text_has_a_line_for_every_quantity_and_the_hidden_key_is_minus_infinity() -> None:
    lines = picture_lines(of(walk_example(find_example("the-cat-sat"))), SAY)
    assert [line.split()[1] for line in lines if line.startswith("↓")] == [
        *("x[2]", "q[2]", "k", "v", "scores[2]", "scaled[2]", "masked[2]", "weights[2]", "z[2]", "out[2]")
    ]
    assert next(line for line in lines if "masked[2]" in line).endswith("0  1  −∞")
    assert next(line for line in lines if "tokens" in line).endswith("the  [cat]  sat")


def test_heads_stand_side_by_side_and_too_many_are_counted() -> None:
    picture = of(walk_run(made("grouped"), TOKENIZER, TEXT, RunView(choice=Choice(query=3))))
    assert (len(picture.heads), picture.more_heads) == (MOST_HEADS, 6 - MOST_HEADS)
    section = diagram(picture, SAY)
    assert [len(row) for row in section.rows] == [1, 1, MOST_HEADS, 1]
    assert "2 more heads" in section.text
    shared = next(strip for strip in picture.strips if strip.name == "k")
    assert shared.grids[0] == shared.grids[2]
    assert shared.grids[0] != shared.grids[3]


@pytest.mark.parametrize("count", [1, 2, 7, 8, 50])
@pytest.mark.parametrize("kept", [0, 1, 25, 49])
def test_of_many_positions_the_chosen_one_its_neighbours_and_the_ends_are_drawn(count: int, kept: int) -> None:
    if kept >= count:
        return
    places = fewer(count, {kept}, MOST_POSITIONS)
    shown = [place for place in places if place is not None]
    assert shown == sorted(set(shown))
    assert {0, kept, count - 1} <= set(shown)
    for before, after in itertools.pairwise(places):
        if before is not None and after is not None:
            assert after == before + 1
    assert len(shown) <= MOST_POSITIONS + 2


def test_every_form_begins_with_the_picture() -> None:
    walk = walk_example(find_example("two-heads-mixed"))
    for write in (to_text, to_markdown, to_page, to_latex):
        written = write(walk).replace("\\", "")
        assert written.index("The path of position 2 (canta)") < written.index("1. Given")
    page = to_page(walk)
    drawings = re.findall(r"<svg role=\"img\" aria-labelledby=\"([^\"]+)\"", page)
    assert len(drawings) == 5
    for names in drawings:
        title, description = names.split()
        assert f'<title id="{title}">' in page
        assert f'<desc id="{description}">' in page
    assert json.loads(json.dumps(to_plain(walk)["picture"])) == picture_lines(of(walk), SAY)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.0, "0"), (-0.004, "0.00"), (1 / 3, "0.33"), (-19.28, "−19.3"), (2.0, "2"), (123.4, "123"), (1e9, "1e+09")],
)
def test_numbers_fit_their_cells(value: float, shown: str) -> None:
    assert compact(value, SAY) == shown
    assert compact(float("-inf"), SAY) == "−∞"
