"""An imported run is a run: generate, explain, inspect, measure, fine-tune, compare; what needs a text says so."""

import json
from pathlib import Path

import pytest
from foreign import of_form, run_of, write_source
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers

import vitral
from vitral.app.terminal import run as cli
from vitral.core.errors import UsageError
from vitral.data import char_tokenizer, file_tokenizer
from vitral.evaluation.measures import TextMeasures
from vitral.interop import import_model
from vitral.interop.targets.gguf import vocabulary
from vitral.interop.targets.transformers import special_ids
from vitral.model import ModelConfig, Transformer
from vitral.report.run import write_run_report
from vitral.report.survey import measures_sections
from vitral.runs import enter, load_run, summarize_run
from vitral.training import continue_run

TEXT = "the cat sat on the mat. " * 400


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("imported")
    write_source(folder / "source", "gpt2", of_form("gpt2"))
    return import_model(folder / "source", folder / "run").path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "cat.txt"
    path.write_text(TEXT)
    return path


def test_it_is_sealed_and_knows_where_it_comes_from(imported: Path) -> None:
    complaints: list[str] = []
    sealed = enter(imported, complaints.append)
    assert not complaints
    assert sealed.imported is not None
    assert sealed.imported["form"] == "gpt2"
    assert set(sealed.imported["files"]) == {"config.json", "model.safetensors", "tokenizer.json"}
    summary = summarize_run(imported)
    assert (summary.state, summary.step, summary.text) == ("finished", 0, "source")
    assert sealed.special_ids == {}


def test_every_instrument_works_on_it(imported: Path) -> None:
    run = vitral.load(imported)
    assert run.generate("the", max_tokens=5, temperature=0).startswith("the")
    assert run.explain("the cat").chapters
    assert run.inspect("the cat")["run"] == str(imported)
    assert "blocks.1.attn.weights" in run.trace("the cat")
    assert write_run_report(run.path).is_file()
    assert "gpt2" in run._repr_html_()
    assert vitral.doctor(imported).healthy


def test_it_is_measured_on_any_text(imported: Path, text: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli(["evaluate", str(imported), "--text", str(text), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["num_bytes"] == len(TEXT) - 1  # every byte but the first is predicted
    assert found["bits_per_byte"] == pytest.approx(found["loss"] / 0.6931471805599453)


def test_what_needs_its_text_says_so_in_one_line(imported: Path) -> None:
    run = vitral.load(imported)
    for question in (run.evaluate, run.dataset, run.ngram_baselines):
        with pytest.raises(UsageError, match="--init-from"):
            question()
    with pytest.raises(UsageError, match="--init-from"):
        vitral.resume(imported)
    with pytest.raises(UsageError, match="--init-from"):
        vitral.continue_(imported, imported.parent / "more", steps=3)
    for minutes in (None, 1):
        with pytest.raises(UsageError, match="--init-from"):
            continue_run(imported, imported.parent / "more", minutes=minutes)
    assert not (imported.parent / "more").exists()


def test_a_character_model_travels_back_as_one_and_refuses_replaces_or_learns_new_characters(tmp_path: Path) -> None:
    tokenizer = char_tokenizer(" .acehmnost")
    model = Transformer(ModelConfig(context_length=16, d_model=16, d_ff=32), tokenizer.vocab_size)
    write_source(tmp_path / "source", "gpt2", model, tokenizer)
    run = vitral.import_(tmp_path / "source", tmp_path / "run")
    assert run.tokenizer == tokenizer
    (tmp_path / "more.txt").write_text("the bird sat on the mat. " * 30)
    with pytest.raises(UsageError, match="U\\+0062"):
        run.evaluate(text=tmp_path / "more.txt")
    assert run.evaluate(text=tmp_path / "more.txt", replace=".").records()[0]["num_targets"] == 25 * 30 - 1
    (tmp_path / "more.txt").write_text("the bird sat on the mat. " * 300)
    grown = vitral.train(
        tmp_path / "more.txt", tmp_path / "grown", init_from=run, training={"steps": 2}, progress=False
    )
    assert grown.tokenizer.vocab_size == tokenizer.vocab_size + 4


def test_the_ids_that_begin_and_end_a_text_reach_every_descendant(text: Path, tmp_path: Path) -> None:
    ids = {"bos_token_id": 5, "eos_token_id": [6, 7]}
    write_source(tmp_path / "source", "gpt2", of_form("gpt2"), **ids)
    run = vitral.import_(tmp_path / "source", tmp_path / "run")
    few = {"steps": 2, "batch_size": 2}
    child = vitral.train(text, tmp_path / "child", init_from=run, training=few, progress=False)
    longer = vitral.continue_(child, tmp_path / "longer", steps=2, progress=False)
    for number, one in enumerate((run, child, longer)):
        vitral.export(one, tmp_path / f"out-{number}", to="gpt2", proof=False)
        for file in ("config.json", "generation_config.json"):
            said = json.loads((tmp_path / f"out-{number}" / file).read_text())
            assert {key: said[key] for key in (*ids, "pad_token_id")} == ids | {"pad_token_id": None}
        loaded = load_run(one.path)
        found = vocabulary(loaded.tokenizer, special_ids(loaded))
        assert (found.begin, found.end) == (5, 6)
        assert "`source`" in (tmp_path / f"out-{number}" / "README.md").read_text()


def test_bits_per_byte_are_of_the_text_and_not_of_its_unknown_tokens(tmp_path: Path) -> None:
    engine = Engine(
        models.BPE({letter: index for index, letter in enumerate(["<unk>", *"acst"])}, [], unk_token="<unk>")
    )
    engine.normalizer, engine.decoder = normalizers.Lowercase(), decoders.Fuse()
    tokenizer = file_tokenizer(engine.to_str(), 5, 0)
    model = Transformer(ModelConfig(context_length=7, d_model=16, d_ff=32), 5)
    run = vitral.load(run_of(model, tmp_path / "run", tokenizer).folder.path)
    for text, is_changed in (("catsacts" * 9, False), ("Cats: 日本 é, at\n" * 9, True)):
        (tmp_path / "text.txt").write_text(text, encoding="utf-8")
        found = run.evaluate(text=tmp_path / "text.txt")
        assert isinstance(found, TextMeasures)
        assert (found.loss.num_characters, found.loss.num_bytes) == (len(text) - 1, len(text.encode()) - 1)
        assert found.plain()["is_changed"] is found.is_changed is is_changed
        assert len(measures_sections(found)) == 1 + is_changed
