"""In Portuguese, screens, pages and errors have no English word but the field's terms (TERMS).

The commands run in small. Taken out before the words are looked at: texts of the run (`samples`), code, commands,
options, keys, paths and names. English words are ENGLISH, and every word of the English sentences in the catalogues
that is in no Portuguese one: so a sentence that nobody marked is found as well, by the words it shares with others.
"""

import html
import re
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

import pytest
from sentences import CATALOGUES, catalogue
from symbols import symbolic_lengths

from tests.app.conftest import SETTINGS
from vitral.app.terminal import COMMANDS, run
from vitral.core.language import set_language

TERMS = """
batch batches beam search checkpoint corpus dropout embedding embeddings feed-forward greedy head key keys layer norm
lens logit logits logit-lens nats post-norm pre-norm prompt query queries residual softmax top token tokens value values
hardware software kernel kernels bit bits byte bytes thread threads fine-tuning tensorboard score scores
"""
"""The field's terms, which Portuguese keeps."""
ENGLISH = """
the of and to in is it that this these those with from by on at are was were be been has have had not nor which who
whose each its their them they then than after before between below above without within every only more most less
least other another one two three four five six seven eight nine ten first last next same such all any both few many
much own how what when where while why because since until if else or but so very too also again still already never
always often here there there's now yes its you your we our us i he she his her can could may might must shall should
will would does did done doing being about against into onto over under through during for against among along across
upon up down out off near far new old long short high low large small good bad right wrong left
above-mentioned below-mentioned step steps run runs loss losses test training train trained trains validation text
texts width height weight weights seed seeds arm arms baseline baselines sample samples written wrote writes read reads
mean means difference interval intervals study studies page pages report reports folder folders file files figure
figures table tables row rows column columns score scores scaled masked input inputs output outputs learned learns
rate time times minutes minute second seconds hour hours day days number numbers size sizes name names line lines word
words character characters vocabulary alphabet bigram trigram unigram n-gram n-grams split splits whole part parts
position positions heads layers block blocks model models parameters found finished stopped stops begins begin ends
end made make makes takes take given gives give shown shows show found finds find nothing copied
"""
SHARED = "a as do no me com for era dose mover real final total local normal"
"""Words of both languages."""
CODE = (
    r"<(script|style|pre|code|math|svg)\b.*?</\1>",
    r"\[\w+ \d+(, \w+ \d+)*\]",  # the shape of a tensor
    r"(?m)(^|: )\s*(\w+(\[[^\]\n]*\])? )?= .*$",  # a formula, and its arithmetic
    r"`[^`\n]*`",
    r"\bvitral( +(?!·)\S+)+",  # a command up to the end of its line
    r"https?://\S+",
    r"(?<!\w)--?[a-z][\w-]*(=\S+)?",
    r"\bstep-\d+|✓ +(best|last)",  # files of a run
    r"\S*[/\\=_]\S*",
    r"\b\w+(\.\w+)+\b",
    r"'[^'\n]*'",
    r'"[^"\n]*"',
    r"\bconfig: (\w+: )*",
    r"\bopções: [^(;]*",  # names that are known
    r"\b(divisão|tokenizador) \w+:",
    r"\bblock, (positions, choice|cross-attention)|cross-attention, difference\b",  # kinds of exercises
    r"(?m)^\s*(masked|out|output|scaled|weights)\s*$",  # the name of a table
)
QUANTITIES = re.compile(r"\b(masked|output|scaled|weights)\b|\bout\^|\^(?:down|up)\b|divisão blocks")
"""Names of quantities in the files of worked examples and in formulas, and a value of the configuration."""
WORD = re.compile(r"[^\W\d_]+(?:[-'][^\W\d_]+)*")


def vocabulary(texts: Iterator[str]) -> set[str]:
    """The words of sentences, without their places."""
    return {word for text in texts for word in spoken(re.sub(r"\{[^{}]*\}", " ", text))}


def spoken(text: str) -> set[str]:
    """The words of a text that are not code."""
    for pattern in CODE:
        text = re.sub(pattern, " ", text, flags=re.DOTALL)
    return {word.casefold() for word in WORD.findall(text)}


@pytest.fixture(scope="module")
def english() -> set[str]:
    """Words that no Portuguese text has."""
    messages = [message for file in (CATALOGUES / "pt").glob("*.po") for message in catalogue("pt", file.stem)]

    def strings(each: object) -> Iterator[str]:
        yield from [each] if isinstance(each, str) else each if isinstance(each, tuple | list) else ()

    ours = vocabulary(text for message in messages for text in strings(message.id))
    theirs = vocabulary(text for message in messages for text in strings(message.string))
    known = {word for word in ours - theirs if len(word) > 2} | {word for word in ENGLISH.split() if len(word) > 1}
    return known - set(TERMS.split()) - set(SHARED.split())


SAMPLES = ("training.sample_every=2", "training.sample_tokens=1")
"""A sample is one character, so that the texts of the model are no words."""
SMALL = [*SETTINGS, *(word for setting in SAMPLES for word in ("--set", setting))]
BROKEN = """
title = "As minhas contas"
tokens = ["gato", "preto"]
mask = "bidirectional"
scale = "none"
decimals = 2

[given]
x = [[1, 0], [0, 1]]
w_q = "identity"
w_k = "identity"
w_v = "identity"

[claimed]
scores = [[1, 0], [0, 2]]
"""


class Said:
    """Runs commands in Portuguese and keeps their output."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Nothing is said yet."""
        self._capsys = capsys

    def __call__(self, *command: str, code: int = 0) -> str:
        """The output of a command, of which an error is a part."""
        self._capsys.readouterr()
        found = run(list(command))
        printed = self._capsys.readouterr()
        assert found == code, printed.err
        return printed.out + printed.err


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    """Commands run in Portuguese, in a folder with the beginning of the novel."""
    novel = (resources.files("vitral.data") / "texts" / "dom-casmurro.txt").read_text(encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VITRAL_LANG", "pt")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr("vitral.app.demonstration.CHARACTERS", 1)
    # A byte order mark, Windows' line ends, rare characters and an invisible one: there is something to note.
    Path("meu.txt").write_bytes(("\ufeff" + novel[:40_000].replace("\n", "\r\n") + "\u200b ñ\r\n").encode())
    set_language(None)
    yield Said(capsys)
    monkeypatch.undo()
    set_language(None)


def readable(page: str) -> str:
    """The text of a page, with what stands for its figures, without texts of the run and code."""
    spared = re.sub(r"<(script|style|pre|code|math|svg)\b.*?</\1>", " ", page, flags=re.DOTALL)
    kept = re.findall(r'\b(?:alt|title|aria-label)="([^"]*)"', spared)
    return html.unescape(
        "\n".join([*kept, re.sub(r"<[^>]*>", "\n", re.sub(r"<!--.*?-->", "", spared, flags=re.DOTALL))])
    )


def wrong(text: str, english: set[str]) -> dict[str, str]:
    """English words, each with the first line it is in."""
    found = dict[str, str]()
    for line in text.splitlines():
        found |= {word: line.strip() for word in spoken(line) & english if word not in found}
    return found


def faults(english: set[str], **texts: str) -> dict[str, dict[str, str]]:
    """The English words of each text, pages read as people read them."""
    told = {name: readable(text) if text.startswith("<!DOCTYPE") else text for name, text in texts.items()}
    return {name: found for name, text in told.items() if (found := wrong(text, english))}


def content(path: str) -> str:
    """The content of a file."""
    return Path(path).read_text(encoding="utf-8")


def test_the_demonstration(said: Said, english: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITRAL_LANG", "en")
    with symbolic_lengths():
        screen = said("demo", "--lang", "pt", "--out", "d", *SMALL)
    assert faults(english, screen=screen, page=content("d/report.html")) == {}


def test_a_text(said: Said, english: set[str]) -> None:
    screen = said("corpus", "meu.txt", "--out", "p") + said("count", "shakespeare")
    assert faults(english, screen=screen, page=content("p/corpus.html")) == {}


def test_a_run_its_page_explained_and_inspected(said: Said, english: set[str]) -> None:
    screens = [said("train", "meu.txt", "--out", "r", *SMALL), said("evaluate", "r"), said("doctor", "r")]
    screens += [said("explain", "r", "--text", "olhos"), said("inspect", "r", "--text", "olhos")]
    said("explain", "r", "--text", "olhos", "--block", "--ending", "--format", "html", "--out", "e.html")
    said("inspect", "r", "--text", "olhos", "--out", "i.html")
    named = {name: QUANTITIES.sub(" ", content(name)) for name in ("r/report/run.html", "e.html", "i.html")}
    assert faults(english, screen=QUANTITIES.sub(" ", "\n".join(screens)), **named) == {}


def test_a_study_and_its_page(said: Said, english: set[str]) -> None:
    arguments = ("no-attention", "--base", "demo", "--corpus", "meu.txt", "--seeds", "1,2", "--out", "s")
    screen = said("study", *arguments, *SMALL)
    assert faults(english, screen=screen, page=content("s/report/study.html")) == {}


def test_worked_examples(said: Said, english: set[str]) -> None:
    Path("contas.toml").write_text(BROKEN, encoding="utf-8")
    own, printed = said("check", "contas.toml", code=1), said("check", "gato-preto-dorme", code=1)
    named = {"own": own, "printed": printed, "explained": said("explain", "o-gato-preto")}
    assert faults(english, **{name: QUANTITIES.sub(" ", text) for name, text in named.items()}) == {}


ERRORS: Sequence[tuple[str, ...]] = (
    ("train", "nada.txt"),
    ("generate", "meu.txt"),
    ("train", "meu.txt", "--set", "model.num_heads=5"),
    ("train", "meu.txt", "--set", "training.stepz=5"),
    ("train", "meu.txt", "--minutes", "-1"),
    ("corpus", "meu.txt", "--tokenizer", "palavra"),
    ("demo", "--out", "."),
    ("study", "nenhum"),
    ("explain", "nada"),
)


@pytest.mark.parametrize("command", ERRORS, ids=" ".join)
def test_an_error(said: Said, english: set[str], command: tuple[str, ...]) -> None:
    assert wrong(said(*command, code=2), english) == {}


VALUES = (
    r"<\S+>|\[padrão: (\S+|To be)\]|\b(text|json|csv|markdown|latex|all|best|last|auto|presets|texts|studies|examples|"
    r"words|names|runs|loss|time|name|list|blocks|tail)\b"
)
"""Values of options, which are code."""


@pytest.mark.parametrize("command", ["", *(command.name for command in COMMANDS)])
def test_a_help_text(said: Said, english: set[str], command: str) -> None:
    told = said(*command.split(), "--help")
    assert "--lang" in told
    assert not [heading for heading in ("Arguments", "Options", "Commands") if f"{heading}:" in told]
    if not command:
        told = re.sub(r"^  [a-z]+( [a-z]+)?(?=  )", "", told, flags=re.MULTILINE)
    assert wrong(re.sub(VALUES, " ", re.sub(r"\n {10,}", " ", told)), english) == {}
