"""The page over a server, in Chromium: the run's numbers under the pointer, a server that dies and comes back."""

import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from browser import needs_chromium
from foreign import run_of
from pages import SECRET, chromium, free_port, serving
from tokenizers import Tokenizer as Engine
from tokenizers import models, normalizers, pre_tokenizers
from variants import TOKENIZER, made

import vitral
from vitral.app import terminal as cli
from vitral.core.errors import UsageError
from vitral.data import file_tokenizer

TEXT = "abc ha b"
pytestmark = [pytest.mark.merge, needs_chromium]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("served") / "tiny"
    run_of(made("pre"), folder)
    return folder


@pytest.fixture(scope="module")
def address(run: Path) -> Iterator[str]:
    """Of a server that lives as long as the tests of this file."""
    with serving(run) as told:
        yield told


LETTERS = sorted(set(TEXT))


@pytest.fixture(scope="module")
def several(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, Path]]:
    """The address of a server of three runs, and two folders: a copy, and a run whose tokenizer no page carries."""
    folder = tmp_path_factory.mktemp("several")
    shutil.copytree(run, folder / "mine")
    engine = Engine(models.WordLevel({letter: at for at, letter in enumerate(LETTERS)}))
    engine.normalizer, engine.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Split("", "isolated")
    model = made("post", seed=9)
    tokenizer = file_tokenizer(engine.to_str(), model.vocab_size, 0)
    run_of(model, folder / "words", tokenizer)
    with serving(run, folder / "mine", folder / "words") as told:
        yield told, folder / "mine", folder / "words"


@pytest.fixture
def windows() -> Iterator[Callable[[], object]]:
    """Opens windows of a browser that remembers nothing of other tests."""
    with chromium(offline=False) as first:
        first.context.set_default_timeout(120_000)

        def opened() -> object:
            page: Any = first.context.new_page()
            page.requests = []
            page.on("request", lambda request: page.requests.append(request.url))
            return page

        yield opened


def write(page: Any, text: str) -> None:
    """Type a sentence, and wait for its numbers."""
    page.locator("textarea, input[type=text]").first.fill(text)
    ids = TOKENIZER.encode(text).tolist()
    page.wait_for_function("(ids) => String(vitralPage.shown.value?.ids) === String(ids)", arg=ids)


def test_the_page_shows_the_run_s_numbers_and_hides_its_token(run: Path, address: str, windows) -> None:
    page, other = windows(), windows()
    page.goto(address)
    write(page, TEXT)
    assert SECRET not in page.url
    found = page.evaluate(
        """async ([secret, text]) => {
          const answer = await fetch("/trace", {method: "POST", headers: {"x-vitral-token": secret},
            body: JSON.stringify({text, names: ["logits"]})});
          const {shape, data} = vitralPage.tensorsOf(await answer.arrayBuffer()).logits;
          return [shape, Array.from(data)];
        }""",
        [SECRET, TEXT],
    )
    wanted = vitral.load(run).trace(TEXT, ["logits"])["logits"]
    assert found == [list(wanted.shape), pytest.approx(wanted.flatten().tolist(), rel=1e-4, abs=1e-5)]
    other.goto(address)
    other.locator("textarea, input[type=text]").first.wait_for()
    for each in (page, other):
        assert all(url.startswith((address.partition("#")[0], "data:")) for url in each.requests)
        assert not any(SECRET in url.partition("#")[0] for url in each.requests)


@pytest.mark.full
def test_a_page_outlives_its_server_and_no_other_tab_opens(run: Path, windows) -> None:
    page, other, waiting, port = windows(), windows(), windows(), free_port()
    said, anew = page.get_by_text("The server does not answer"), page.get_by_text("This server was started anew")
    with serving(run, port=port) as address:
        page.goto(address)
        write(page, TEXT[:4])
        page.wait_for_url(re.compile("[#&]text=abc"))
        page.reload()
        page.wait_for_function("() => vitralPage.shown.value?.ids.length === 4")
        assert SECRET not in page.url
        assert page.evaluate("[localStorage.length, document.cookie, JSON.stringify(history.state)]") == [0, "", "null"]
        other.goto(page.url)
        other.get_by_text("Open the address that vitral open printed").wait_for()
        waiting.route("**/anatomy", lambda route: route.abort())
        waiting.goto(address)
        waiting.locator("textarea, input[type=text]").first.wait_for()
    field = page.locator("textarea, input[type=text]").first
    field.fill(TEXT)
    said.wait_for()
    for length in range(1, len(TEXT)):  # more questions than wait for a server
        waiting.locator("textarea, input[type=text]").first.fill(TEXT[:length])
    waiting.get_by_text("The server does not answer").wait_for()
    waiting.unroute("**/anatomy")
    with serving(run, port=port):
        said.wait_for(state="detached")
        page.locator(f"h1:has-text({TEXT[-3:]!r})").wait_for()
        waiting.locator("#opened .equation").wait_for()  # the arithmetic that the dying server was asked for
    field.fill(TEXT[:3])
    said.wait_for()
    with serving(run, port=port, token="another"):
        anew.wait_for()
        page.goto(address.replace(SECRET, "another"))  # in the same tab only its fragment changes
        anew.wait_for(state="detached")
        page.wait_for_function("() => vitralPage.shown.value?.ids.length === 3")
        assert "another" not in page.url


def test_a_tokenizer_that_no_page_carries_is_the_server_s(several, windows, tmp_path: Path) -> None:
    address, _, words = several
    with pytest.raises(UsageError, match="vitral open"):
        vitral.bundle(words, tmp_path / "page.html")
    page = windows()
    page.goto(address)
    write(page, "abc")
    beside = page.get_by_label("beside it")
    beside.select_option("mine")
    page.locator("section.readers").wait_for()
    beside.select_option("words")
    page.get_by_text("It has another tokenizer").wait_for()
    page.locator("section.readers").wait_for(state="detached")
    page.get_by_role("button", name="words", exact=True).click()
    page.locator("p.name:has-text('words')").wait_for()
    field = page.locator("textarea, input[type=text]").first
    for text, seen in (("ab hac", "ab hac"), ("AB HAC", "ab hac"), ("ba", "ba")):
        field.fill(text)
        ids = [LETTERS.index(each) for each in seen]
        page.wait_for_function("(ids) => String(vitralPage.ids.value) === String(ids)", arg=ids)
        page.wait_for_function("(ids) => String(vitralPage.shown.value?.ids ?? []) === String(ids)", arg=ids)


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server of two runs of one folder's name, with attention and without."""
    runs = [tmp_path_factory.mktemp("two") / name / "seed-1" for name in ("full", "none")]
    for folder, variant in zip(runs, ("pre", "no attention"), strict=True):
        run_of(made(variant), folder)
    with serving(*runs) as told:
        yield told


def test_of_two_runs_a_page_is_one_at_a_time_and_as_if_opened_anew(two: str, windows) -> None:
    page, anew, faults = windows(), windows(), list[str]()
    for each in (page, anew):
        each.on("console", lambda message: message.type == "error" and faults.append(message.text))
        each.on("pageerror", lambda error: faults.append(str(error)))
    page.goto(two)
    page.locator("section.choice").wait_for()
    assert page.locator(".runs button").all_inner_texts() == ["full/seed-1", "none/seed-1"]
    for place, text in ((1, TEXT), (0, TEXT[:5]), (1, TEXT[:3]), (0, TEXT)):
        button = page.locator(".runs button").nth(place)
        button.click()
        name = button.inner_text()
        page.keyboard.press("x")  # a head is switched off, where there is one
        write(page, text)
        page.wait_for_function("(name) => vitralPage.shown.value?.from.about.name === name", arg=name)
        anew.goto("about:blank")
        anew.goto(f"{two}&{page.evaluate('vitralPage.written()')}")
        for each in (page, anew):
            each.locator("#opened .equation").wait_for()
            each.locator("section.readers").get_by_text("by attention, token by token").wait_for()
        found, wanted = (each.locator("main").inner_text() for each in (page, anew))
        assert found == wanted
        assert name in found
        assert (page.locator("#figure-heads").count() == 1) is (place == 0)
    assert [each for each in faults if "ERR_" not in each] == []


def test_the_server_s_sweep_is_python_s(run: Path, address: str, windows) -> None:
    page, other = windows(), "abch\nbaa"
    page.goto(f"{address}&text={quote(TEXT)}&x={quote(other)}&z=head")
    page.wait_for_function("() => vitralPage.swept.value?.effects.every((each) => !Number.isNaN(each))")
    wanted = [each["effect"] for each in vitral.load(run).sweep(TEXT, other, by="head").records()]
    assert page.evaluate("() => Array.from(vitralPage.swept.value.effects)") == pytest.approx(
        wanted, rel=1e-3, abs=1e-3
    )


OPENED = """() => ({
  python: document.querySelector("#figure-numbers .receipt:not(.command)").textContent,
  value: Number(document.querySelector("#opened .equation").dataset.value),
})"""


@pytest.mark.parametrize("cell", ["logits:0.2.5", "blocks.0.attn.z:0.1.2.0"])
def test_the_printed_lines_give_the_number_that_is_shown(
    cell: str, run: Path, address: str, windows, capsys: pytest.CaptureFixture[str]
) -> None:
    name, _, index = cell.partition(":")
    page = windows()
    page.goto(f"{address}&text={quote(TEXT[:3])}&o={cell}")
    page.locator(f"#figure-numbers .receipt:has-text('\"{name}\"')").first.wait_for()
    page.locator("#opened .equation .cell").first.wait_for()
    found = page.evaluate(OPENED)
    told = page.locator("#opened .receipt.command").text_content()
    value = vitral.load(run).trace(TEXT[:3], [name])[name][tuple(map(int, index.split(".")))]
    assert float(eval(found["python"], {"run": vitral.load(run)})) == value
    assert found["value"] == pytest.approx(float(value), rel=1e-6)
    command = shlex.split(told)
    assert command[0] == "vitral"
    assert cli.run(command[1:]) == 0
    assert f"{abs(float(value)):.3f}" in capsys.readouterr().out


def test_numbers_that_are_not_finite_leave_no_error(address: str, windows) -> None:
    page = windows()
    faults: list[str] = []
    page.on("console", lambda message: message.type == "error" and faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    edits = quote('[{"at": "embed", "do": "scale", "factor": 1e300}]')
    page.goto(f"{address}&text={quote(TEXT)}&e={edits}")
    page.locator(".sentence-line").wait_for()
    page.wait_for_function("() => vitralPage.shown.value?.edits.length === 1")
    assert [each for each in faults if "ERR_" not in each] == []
