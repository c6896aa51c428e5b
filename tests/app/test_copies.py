"""Our objects survive pickle and deep copies, and behave the same afterwards."""

import copy
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import vitral
from tests.helpers.variants import made
from vitral import attention, data, decoding, evaluation, explanation, inspection, runs, studies
from vitral.app import Generation, plan_study
from vitral.core.errors import StorageError, TrainingStopped, UsageError
from vitral.data import UnseenCharacter
from vitral.report.walkthrough import to_page
from vitral.report.walkthrough_latex import to_latex

Copy = Callable[[Any], Any]


def _pickled(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


@pytest.fixture(params=[_pickled, copy.deepcopy], ids=["pickle", "deepcopy"])
def copied(request: pytest.FixtureRequest) -> Copy:
    return request.param


@pytest.fixture(scope="module")
def run(tiny_run: Path) -> vitral.Run:
    return vitral.load(tiny_run)


def test_a_run_generates_the_same_text(run: vitral.Run, copied: Copy) -> None:
    again = copied(run)
    assert again.generate("The", max_tokens=30, seed=4) == run.generate("The", max_tokens=30, seed=4)
    assert again.evaluate("test") == run.evaluate("test")
    assert (again.path, again.step, again.config) == (run.path, run.step, run.config)
    assert again.metrics() == run.metrics()
    assert again.folder.path == run.folder.path
    checkpoint = copied(run.folder.load("last", warn=pytest.fail))
    assert isinstance(checkpoint, runs.Checkpoint)
    assert torch.equal(copied(runs.load_run(run.path)).model(run.encode("The")), run.model(run.encode("The")))


@pytest.mark.parametrize("variant", ["pre", "neither", "bidirectional", "long prefix"])
def test_a_model_gives_the_same_logits(variant: str, copied: Copy) -> None:
    model, tokens = made(variant), torch.tensor([[1, 2, 3, 4, 5]])
    again = copied(model)
    assert torch.equal(again(tokens), model(tokens))
    assert again.config == model.config
    assert [value.requires_grad for value in again.parameters()] == [p.requires_grad for p in model.parameters()]


@pytest.mark.parametrize(
    "error",
    [
        StorageError("/x: cannot be written"),
        TrainingStopped("the loss is not finite"),
        UnseenCharacter("é", 7, "the alphabet"),
        UsageError("two\nlines " * 500),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_keeps_type_message_and_exit_code(error: UsageError, copied: Copy) -> None:
    again = copied(error)
    assert type(again) is type(error)
    assert (str(again), again.args, again.exit_code) == (str(error), error.args, error.exit_code)
    assert vars(again) == vars(error)


def test_a_dataset_holds_its_tokens(run: vitral.Run, copied: Copy) -> None:
    """A pickled dataset is as large as its tokens: it does not point to a file that may be gone."""
    dataset = run.dataset()
    again = copied(dataset)
    assert again.describe() == dataset.describe()
    size = sum(split.tokens.nbytes + split.segments.nbytes for split in dataset.splits.values())
    assert size < len(pickle.dumps(dataset)) < 1.2 * size + 20_000
    for name, split in dataset.splits.items():
        assert np.array_equal(again.splits[name].tokens, split.tokens)
        assert np.array_equal(again.splits[name].segments, split.segments)
    batches = data.Batches(dataset.splits["train"], context_length=5, batch_size=2, seed=3)
    for one, other in zip(batches.batch(4), copied(batches).batch(4), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(
    "tokenizer", [data.char_tokenizer("\nabc"), data.byte_tokenizer(), data.bpe_tokenizer(((116, 104), (256, 101)))]
)
def test_a_tokenizer_gives_the_same_ids(tokenizer: data.Tokenizer, copied: Copy) -> None:
    for _ in ("new", "with what it keeps after its first use"):
        again = copied(tokenizer)
        assert again == tokenizer
        assert again.encode("abc").tolist() == tokenizer.encode("abc").tolist()
        assert again.label(2) == tokenizer.label(2)


def test_a_long_text_reads_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, copied: Copy) -> None:
    monkeypatch.setattr("vitral.data.texts.LONG", 10)
    path = tmp_path / "long.txt"
    path.write_bytes(b"one\r\ntwo and three\n" * 9)
    text = data.load_corpus(data.CorpusConfig(source=str(path), tokenizer=data.ByteConfig())).text
    assert not isinstance(text, str)
    assert copied(text)[2:90] == text[2:90]
    assert len(pickle.dumps(copied(text))) < 1000


def test_walkthroughs_print_the_same(run: vitral.Run, copied: Copy) -> None:
    example = vitral.exercise()
    for walk in (run.explain("To"), explanation.walk_example(example, explanation.Choice(query=1), "pt")):
        for writer in (explanation.to_text, to_page, to_latex):
            assert writer(copied(walk)) == writer(walk)
    checked = explanation.check(example)
    assert explanation.corrected(copied(checked)) == explanation.corrected(checked)


def test_taps_and_masks_do_the_same(run: vitral.Run, copied: Copy) -> None:
    tokens, editor = run.encode("The"), inspection.replace_activations(["embed"])
    assert torch.equal(run.model(tokens, tap=copied(editor)), run.model(tokens, tap=editor))
    mask = (attention.Causal() & attention.Window(size=2)) | attention.Explicit(torch.eye(5, dtype=torch.bool))
    assert torch.equal(copied(mask).allowed(5, 5), mask.allowed(5, 5))


def test_plain_objects_are_equal(run: vitral.Run, copied: Copy) -> None:
    for one in (
        Generation(seed=3, stop=("x",)),
        decoding.Sampling(top_k=3),
        run.model.config,
        vitral.configure("fast"),
        vitral.count("fast", vocabulary=50),
        vitral.survey("sample"),
        run.measure(copying=False),
        vitral.generate(run, "The", max_tokens=3),
        vitral.inspect(run, "The"),
        vitral.list_studies(),
        vitral.doctor(run),
        studies.study_named("no-attention"),
        plan_study("no-attention", "fast", budget="quick"),
        evaluation.Masking(0.5, 0),
        explanation.Exercise(),
    ):
        again = copied(one)
        assert type(again) is type(one)
        assert again == one
