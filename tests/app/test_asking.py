"""Runs that answer: gaps filled, a play and chats talked with."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import vitral as library
from tests.app.test_data import SHAPES, difference
from vitral.app.conversation import Conversation, speakers_of
from vitral.app.results import Samples
from vitral.core.errors import UsageError
from vitral.data.answers import ANSWER, END

MODEL = {"d_model": 12, "num_layers": 1, "num_heads": 3, "context_length": 64}
TRAINING = {"steps": 3, "evaluate_every": 3, "batch_size": 5}
TALK = [("hello", "hi"), ("who are you?", "a model"), ("good night", "good night")]


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> library.Run:
    training = {**TRAINING, "objective": "masked"}
    model = {**MODEL, "attention": {"mask": "bidirectional"}}
    return library.train("sample", tmp_path_factory.mktemp("masked") / "run", model=model, training=training)


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> library.Run:
    folder = tmp_path_factory.mktemp("chats")
    lines = list[str]()
    for number in range(60):
        user, answer = TALK[number % 3]
        messages = [{"role": "user", "content": f"{number} {user}"}, {"role": "assistant", "content": answer}]
        lines.append(json.dumps({"messages": messages}))
    (folder / "talk.jsonl").write_text("\n".join(lines))
    return library.train(folder / "talk.jsonl", folder / "run", model=MODEL, training=TRAINING)


def of_records(folder: Path, keys: tuple[str, str], **model: Any) -> library.Run:
    """A run of words and whether they are long, by two keys."""
    words = [letter * (1 + number % 4) for number, letter in enumerate("abcdefgh" * 8)]
    rows = [
        {keys[0]: f"{place}{word}", keys[1]: "long" if len(word) > 2 else "short"} for place, word in enumerate(words)
    ]
    (folder / "words.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return library.train(folder / "words.jsonl", folder / "run", model={**MODEL, **model}, training=TRAINING)


@pytest.fixture(scope="module", params=["decoder", "encoder-decoder", "labels"])
def answering(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> library.Run:
    folder, keys = tmp_path_factory.mktemp(request.param), ("source", "target")
    if request.param == "labels":
        return of_records(folder, ("text", "label"), tie_head=False)
    return of_records(folder, keys, shape=request.param)


def test_sources_are_answered(vitral, answering: library.Run) -> None:
    folder, how = str(answering.path), {"max_tokens": 9, "source": ["3dd", "0a"]}
    Path("asked.txt").write_text("3dd\n0a\n")
    line = ("generate", folder, "--max-tokens", "9")
    one, two = found = json.loads(vitral(*line, "--source", "@asked.txt", "--format", "json").out)
    assert found == library.generate(answering, **how).plain()
    assert (
        vitral(*line, "--source", "3dd").out
        == f"{one['text']}\n"
        == f"{answering.generate(source='3dd', max_tokens=9)}\n"
    )
    assert vitral(*line, "--source", "3dd", "--source", "0a").out == f"3dd → {one['text']}\n0a → {two['text']}\n"
    assert END not in one["text"] + two["text"]
    if not answering.model.config.num_labels:
        beam = library.generate(answering, **how, num_beams=1)
        assert [each.text for each in beam] == [one["text"], two["text"]]  # one beam is greedy
    for wrong in (
        (),
        ("--source", "3dd", "--prompt", "a"),
        ("--source", END),
        ("--source", "é"),
        ("--source", "@gone"),
    ):
        told = vitral("generate", folder, *wrong)
        if wrong or answering.model.config.shape != "decoder":
            assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)
    assert json.loads(vitral("evaluate", folder, "--format", "json").out)["parts"]["test"]["exact_match"]["total"]
    assert vitral("generate", str(answering.path), "--source", "3dd", "--stats").code == 0


def test_activations_of_answers_are_those_of_each_with_its_source(answering: library.Run) -> None:
    source, ids = ["3dd", "0a", "11ddd"], answering.tokenizer.encode
    if answering.model.encoder is None:
        with pytest.raises(UsageError, match="source: "):
            answering.cache("lo", source="3dd")
        return
    kept = answering.cache(["lo", "s", "lo"], "*.cross.weights", source=source)
    for row, (text, beside) in enumerate(zip(["lo", "s", "lo"], source, strict=True)):
        alone = answering.trace(text, source=beside)
        read, asked = (torch.from_numpy(ids(one))[None] for one in (ANSWER + text, beside))
        wanted = answering.model.trace(read, source=asked)
        for name, value in kept.items():
            there = value[row, :, : len(text) + 1, : len(beside)]
            torch.testing.assert_close(there, wanted[name][0])
            torch.testing.assert_close(there, alone[name][0])
    edits = [{"at": "encoder.blocks.0.attn.out", "do": "zero", "positions": [2]}]
    assert answering.loss("long", source="3dd", edits=edits) != answering.loss("long", source="3dd")
    beyond = [edits[0] | {"positions": [3]}]
    refused: list[Any] = [{}, {"source": ""}, {"source": source[:2]}, {"source": "3dd", "edits": beyond}]
    for wrong in refused:
        with pytest.raises(UsageError):
            answering.loss("long", **wrong)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Lines on standard input."""
    return lambda *lines: monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_a_text_with_gaps_is_filled_in_every_form(vitral, masked: library.Run) -> None:
    line = ("fill", str(masked.path), "--text", "The [MASK]ight of [MASK]", "--top", "3")
    found = json.loads(vitral(*line, "--format", "json").out)
    assert found == json.loads(json.dumps(masked.fill("The [MASK]ight of [MASK]", top=3).plain()))
    assert difference(SHAPES["fill"], found) == ""
    assert [len(gap) for gap in found["gaps"]] == [3, 3]
    assert found["scored"] == len("The light of a") == len(found["text"])
    assert vitral(*line).out.startswith(found["text"])
    assert len(vitral(*line, "--format", "csv").out.splitlines()) == 1 + 6


def test_a_masked_run_is_inspected(vitral, masked: library.Run) -> None:
    found = masked.inspect("WREN", windows=3)
    assert found["objective"] == "masked"
    assert [target["label"] for target in found["lens"]["targets"]] == list("WREN")
    assert vitral("inspect", str(masked.path), "--text", "WREN").code == 0


def test_a_run_of_the_other_kind_is_refused_in_one_line(vitral, masked: library.Run, trained: Path) -> None:
    for line in (("fill", str(trained), "--text", "a [MASK]"), ("chat", str(masked.path)), ("fill", str(masked.path))):
        told = vitral(*line)
        assert (told.code, told.out, told.err.count("\n")) == (2, "", 1)


def test_lines_of_a_pipe_are_turns_of_a_play(vitral, trained: Path, typed: Callable[..., None]) -> None:
    run = library.load(trained)
    assert speakers_of(run) == ("MIRABETH.\n", "CORVANE.\n")
    line = ("chat", str(trained), "--max-tokens", "9", "--seed", "4")
    typed("Who?", "", "I?")
    told = vitral(*line, "--user", "PELL.")
    talk = library.chat(run, user="PELL.", max_tokens=9, seed=4)
    assert told.out == f"{talk.say('Who?')}\n{talk.say('I?')}\n"
    typed("Who?")
    (answer,) = vitral(*line, "--user", "PELL.", "--format", "json").out.splitlines()
    assert json.loads(answer) == talk.messages[1] == {"role": "assistant", "content": talk.messages[1]["content"]}


def test_a_play_is_asked_with_its_own_turns(monkeypatch: pytest.MonkeyPatch, trained: Path) -> None:
    asked = dict[str, Any]()

    def generate(run: Any, prompt: str, *, on_text: Callable[[str], Any], **options: Any) -> Samples:
        asked.update(options, prompt=prompt)
        for piece in (prompt, "I ", "will."):
            on_text(piece)
        return Samples(str(run.path), run.step, ())

    monkeypatch.setattr(library, "generate", generate)
    talk = Conversation(library.load(trained), ("A.\n", "B.\n"), [], temperature=0)
    assert talk.say("x") == "I will."
    assert (asked["prompt"], asked["stop"]) == ("A.\nx\n\nB.\n", ["\n\n"])
    talk.say("y")
    assert (asked["prompt"], talk.dropped) == ("A.\ny\n\nB.\n", 2)  # the context of 11 has no room for both
    assert not talk.is_cut
    talk.say("y" * 9)
    assert talk.is_cut
    talk.messages = [{"role": role, "content": ""} for role in ("user", "assistant")]
    monkeypatch.setattr(Conversation, "_prompt", lambda self, messages: "y" * (5 + 2 * len(messages)))
    talk.say("y")
    assert (asked["prompt"], talk.dropped) == ("y" * 11, 0)  # as long as the context
    with pytest.raises(UsageError, match="position 1"):
        talk.say("aé")
    assert len(talk.messages) == 4


def test_a_chat_ends_an_answer_where_it_was_trained_to(chats: library.Run) -> None:
    talk = library.chat(chats, system="0", max_tokens=40, top_k=3)
    answer = talk.say("0 hello")
    assert END not in answer
    assert [one["role"] for one in talk.messages] == ["system", "user", "assistant"]
    assert chats.chat(talk.messages[:2], max_tokens=40, top_k=3) == answer
    with pytest.raises(UsageError, match="marks the answers"):
        talk.say(END)
    for _turn in range(4):
        talk.say("0 hello")
    assert talk.dropped


def test_an_interrupted_answer_stays_as_far_as_it_was_said(trained: Path) -> None:
    talk, heard = library.chat(trained), list[str]()

    def leave(piece: str) -> None:
        heard.append(piece)
        if len(heard) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        talk.say("Who?", leave)
    assert talk.messages[-1] == {"role": "assistant", "content": "".join(heard)}


def test_a_person_goes_on_after_a_mistake(
    vitral, trained: Path, typed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    typed("é", "Who?")
    assert vitral("chat", str(trained)).code == 2
    typed("é", "Who?")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    told = vitral("chat", str(trained), "--max-tokens", "5")
    assert (told.code, told.out.count("CORVANE. ")) == (0, 2)
    assert "U+00E9" in told.err


def test_what_a_run_of_records_does_not_use_is_refused(vitral, answering: library.Run, chats: library.Run) -> None:
    refused = [(answering, ("--source", "")), (chats, ()), (chats, ("--source", "0 hello", "--prompt", "0 hello"))]
    if answering.model.config.num_labels:
        refused += [(answering, ("--source", "0a", *more)) for more in (("--samples", "2"), ("--beams", "1"))]
    for run, options in refused:
        told = vitral("generate", str(run.path), *options)
        assert (told.code, told.err.count("\n")) == (2, 1)
    assert vitral("generate", str(answering.path), "--source", "3é", "--replace", "0").code == 0


def test_records_are_trained_evaluated_and_reported(vitral, chats: library.Run) -> None:
    found = json.loads(vitral("evaluate", str(chats.path), "--format", "json").out)
    assert (found["copying"], found["parts"]["test"]["exact_match"]["total"]) == (None, 6)
    assert vitral("evaluate", str(chats.path), "--format", "csv").out.splitlines()[0].endswith(",exact_match")
    assert "→" in chats._repr_html_()


def test_a_prompt_of_a_run_of_chats_is_a_message_to_answer(vitral, chats: library.Run) -> None:
    (one,) = library.generate(chats, "0 hello")
    assert one == library.generate(chats, source="0 hello")[0]
    assert len(one.tokens) <= 64 + 1 - len(chats.encode("<|user|>0 hello<|answer|>")[0])
    assert vitral("generate", str(chats.path), "--prompt", "0 hello").out.strip() == one.text.strip()
    written = chats.generate("<|user|>0 hello<|answer|>", max_tokens=3, temperature=0.0)
    assert written.startswith("<|user|>0 hello<|answer|>" + one.text[:1])
