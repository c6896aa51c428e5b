"""The study of tokens: its design, its measures and its view."""

from dataclasses import replace

import pytest
from text_studies import made, shown, vocabulary

from tests.studies.conftest import tables
from vitral.data import CorpusConfig
from vitral.studies import StudyResult, study_named
from vitral.studies.judging import judge
from vitral.studies.probes import probe_named

TOKENS = study_named("tokens")
LONGER_IS_BETTER = {
    "char": 1.70,
    "bpe-512": 1.65,
    "bpe-1024": 1.60,
    "bpe-4096": 1.53,
    "same-window": 1.61,
    "same-text": 1.66,
    "same-parameters": 1.68,
    "byte": 1.70,
}


def units(result: StudyResult) -> dict:
    lengths = {102: 1.0, 109: 1.0, 256: 1.0, 512: 1.7, 1024: 2.1, 4096: 2.9}

    def length(arm) -> float:
        return lengths[vocabulary(CorpusConfig.parse(arm.config["corpus"]))]

    return {
        arm.arm.name: {
            seed: {
                "vocab_size": vocabulary(CorpusConfig.parse(arm.config["corpus"])),
                "characters_per_token": length(arm),
                "context_characters": 64 * length(arm),
                "token_share": 0.1,
                "tokens": 1_000,
                "characters": 1_000 * length(arm),
                "passes": 0.4,
                "median_seen": 70.0,
            }
            for seed in arm.losses
        }
        for arm in result.arms
    }


def test_longer_tokens_are_better_where_they_are(tmp_path):
    result = made(tmp_path, TOKENS, "standard", LONGER_IS_BETTER)
    view = shown(probe_named("text-units"), result, units(result))
    assert view.figure is not None
    assert [row[1] for row in tables(view)[0].cells] == ["109", "512", "1,024", "4,096", "1,024", "1,024", "109", "256"]
    *contrasts, slope = judge(view.comparisons)
    assert {claim.comparison.arm for claim in contrasts} == {"bpe-4096"}
    assert {claim.verdict for claim in contrasts} == {"better"}
    assert len(contrasts) == 4
    assert slope.verdict == "better"
    assert slope.difference == pytest.approx(-0.04, abs=0.006)


def test_losses_per_token_of_different_tokens_are_not_compared(tmp_path):
    result = made(tmp_path, TOKENS, "standard", LONGER_IS_BETTER)
    nats = replace(result, study=result.study.model_copy(update={"unit": "nats per token"}))
    view = shown(probe_named("text-units"), nats, units(nats))
    assert "nats" in tables(view)[0].labels[-1]
    assert view.figure is None
    assert view.comparisons == ()
