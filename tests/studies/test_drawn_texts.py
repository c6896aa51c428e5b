"""A study whose seeds draw the text: each run has its own, its own n-grams, and the test text of all others."""

from statistics import fmean

import numpy as np
import pytest

from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.data import prepare
from vitral.evaluation import ngram_baselines
from vitral.report.study import write_report
from vitral.runs import RunFolder
from vitral.studies import Study, run_study
from vitral.studies.losses import bigram_baseline, loss_claims
from vitral.studies.resolution import resolve
from vitral.studies.results import run_name
from vitral.training import RunConfig

DRAWN = Study.parse(
    {
        "name": "drawn",
        "title": "Drawn text",
        "question": "Does the draw matter?",
        "varies_text": True,
        "draws_text": True,
        "arms": [
            {"name": "all", "title": "all"},
            {"name": "one", "title": "one work", "changes": {"corpus": {"share": 0.05, "num_works": 1}}},
        ],
    }
)


@pytest.fixture(scope="module")
def base(tiny: RunConfig, tmp_path_factory) -> RunConfig:
    path = tmp_path_factory.mktemp("book") / "book.txt"
    generator = np.random.default_rng(4)
    works = ("".join(generator.choice([*f"abc{number} \n"], size=3_000).tolist()) for number in range(8))
    path.write_text("".join(f"CHAPTER {n}\n{work}\n" for n, work in enumerate(works)), encoding="utf-8", newline="\n")
    corpus = {"source": str(path), "tokenizer": "byte", "split": "works", "works": ["CHAPTER *"]}
    return RunConfig.parse({**tiny.plain(), "corpus": corpus})


@pytest.fixture(scope="module")
def result(base: RunConfig, tmp_path_factory):
    return run_study(DRAWN, base, tmp_path_factory.mktemp("drawn"), seeds=[0, 1, 2])


def test_every_run_has_the_text_of_its_seed_and_the_n_grams_of_that_text(base, result) -> None:
    texts = set()
    for arm in ("all", "one"):
        for seed in (0, 1, 2):
            folder = RunFolder(result.folder / run_name(arm, seed))
            config = RunConfig.parse(folder.written)
            assert config.corpus.draw == (seed if arm == "one" else None)
            data = prepare(config.corpus)
            document = folder.document("corpus")
            assert document["fingerprint"] == data.fingerprint
            texts.add((arm, data.fingerprint))
            test = prepare(base.corpus).splits["test"]
            assert np.array_equal(data.splits["test"].tokens, test.tokens)
            counted = ngram_baselines(data.splits["train"], test, 256)
            assert folder.document("ngrams")["orders"] == counted.plain()["orders"]
    assert len({fingerprint for arm, fingerprint in texts if arm == "all"}) == 1
    assert len({fingerprint for arm, fingerprint in texts if arm == "one"}) > 1


def test_tokens_that_depend_on_the_draw_are_refused(base) -> None:
    pairs = RunConfig.parse(merge(base.plain(), {"corpus": {"tokenizer": {"name": "bpe", "vocab_size": 300}}}))
    with pytest.raises(UsageError, match=r"draws_text gives each seed its own training text"):
        resolve(DRAWN, pairs, 300)


@pytest.fixture(scope="module")
def long_works(base: RunConfig, tmp_path_factory) -> RunConfig:
    """The base on works of unequal length and letters, of which each seed draws one."""
    path = tmp_path_factory.mktemp("works") / "works.txt"
    generator = np.random.default_rng(6)
    works = ("".join(generator.choice([*"abcdefghi"[: 3 + n], " "], size=16_000 + 3_000 * n)) for n in range(5))
    path.write_text("".join(f"CHAPTER {n}\n{work}\n" for n, work in enumerate(works)), encoding="utf-8", newline="\n")
    return RunConfig.parse(merge(base.plain(), {"corpus": {"source": str(path), "split": "one-work"}}))


@pytest.fixture(scope="module")
def by_work(long_works: RunConfig, tmp_path_factory):
    """The study on one work for each seed, with a test part of its own."""
    study = DRAWN.model_copy(
        update={"arms": (DRAWN.arms[0], DRAWN.arms[1].model_copy(update={"changes": {"corpus": {"share": 0.5}}}))}
    )
    return run_study(study, long_works, tmp_path_factory.mktemp("by-work"), seeds=[0, 1, 2])


@pytest.mark.usefixtures("only_svg")
def test_seeds_with_their_own_test_texts_make_a_page_and_are_judged_by_them(long_works, by_work) -> None:
    assert write_report(by_work).html.is_file()
    assert "blocks" not in loss_claims(by_work).rank.text
    measured = []
    for seed in (0, 1, 2):
        data = prepare(RunConfig.parse(merge(long_works.plain(), {"corpus": {"draw": seed}})).corpus)
        counted = ngram_baselines(data.splits["train"], data.splits["test"], 256).orders[2]
        assert bigram_baseline(by_work, seed) == pytest.approx(counted, abs=1e-4)
        measured.append(counted)
    assert len(set(measured)) == 3
    assert by_work.curve_baselines.orders[2] == pytest.approx(fmean(measured), abs=1e-4)
