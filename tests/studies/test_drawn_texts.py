"""A study whose seeds draw the text: each run has its own, its own n-grams, and the test text of all others."""

import numpy as np
import pytest

from vitral.core.config import merge
from vitral.core.errors import UsageError
from vitral.data import prepare
from vitral.evaluation import ngram_baselines
from vitral.runs import RunFolder
from vitral.studies import Study, run_study
from vitral.studies.design import resolve
from vitral.studies.results import run_path
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
            folder = RunFolder(run_path(result.folder, arm, seed))
            config = RunConfig.parse(folder.config)
            assert config.corpus.draw == seed
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


def test_a_study_that_draws_goes_on_and_takes_more_seeds(base, result) -> None:
    again = run_study(DRAWN, base, result.folder, seeds=[0, 1, 2, 3])
    for arm in ("all", "one"):
        losses = again.arm(arm).losses
        assert {seed: losses[seed] for seed in (0, 1, 2)} == result.arm(arm).losses
        assert 3 in losses
    fixed = DRAWN.model_copy(update={"draws_text": False})
    with pytest.raises(UsageError, match="draws_text"):
        run_study(fixed, base, result.folder, seeds=[0, 1, 2, 3])


def test_tokens_that_depend_on_the_draw_are_refused(base) -> None:
    pairs = RunConfig.parse(merge(base.plain(), {"corpus": {"tokenizer": {"name": "bpe", "vocab_size": 300}}}))
    with pytest.raises(UsageError, match=r"draws_text gives each seed its own training text"):
        resolve(DRAWN, pairs, 300)
