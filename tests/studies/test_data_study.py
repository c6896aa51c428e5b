"""The studies of amount, variety and tokens: their designs, what their probes measure, and what they conclude."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from vitral.core.config import merge
from vitral.core.streams import numpy_stream
from vitral.data import CorpusConfig, prepare
from vitral.evaluation import NgramBaselines, evaluate_split
from vitral.figures.sections import Paragraph, Table
from vitral.model import cost
from vitral.runs import load_run
from vitral.studies import ArmResult, RunResult, StudyResult, study_named
from vitral.studies.design import Study, resolve
from vitral.studies.probes.amounts import AMOUNTS
from vitral.studies.probes.protocol import Plot, Trained
from vitral.studies.probes.scaling_fit import SCALING_FIT
from vitral.studies.probes.text_units import TEXT_UNITS, characters_per_token
from vitral.training import RunConfig, train

DATA = study_named("data")
TOKENS = study_named("tokens")
ONE_PLAY, HISTORIES = (
    next(list(map(list, arm.changes["corpus"]["passages"])) for arm in DATA.arms if arm.name == name)
    for name in ("one-play", "one-genre")
)

SEEDS = (1, 2, 3)


def vocabulary(corpus: CorpusConfig) -> int:
    return getattr(corpus.tokenizer, "vocab_size", {"char": 109, "byte": 256}.get(corpus.tokenizer.name, 0))


def resolved(study: Study, budget, **changes):
    base = merge({"model": {"context_length": 64}, "training": {"steps": 240}}, study.budgets[budget].changes)
    return resolve(study.at(budget), RunConfig.parse(merge(base, changes)), vocabulary)


def made(tmp_path: Path, study: Study, budget, losses, seeds=SEEDS, spread=0.002) -> StudyResult:
    """A result in which arms have these mean losses, in nats per token, and seeds a common and an own scatter."""
    arms = []
    for number, arm in enumerate(resolved(study, budget)):
        own = numpy_stream(5, "made", number).standard_normal(len(seeds))
        common = numpy_stream(5, "common").standard_normal(len(seeds))
        values = [losses[arm.arm.name] + spread * (z + 3 * y) for z, y in zip(own, common, strict=True)]
        runs = tuple(RunResult(s, tmp_path, ((1, v),), None, None, v, 1.0) for s, v in zip(seeds, values, strict=True))
        arms.append(ArmResult(arm.arm, arm.config.plain(), arm.num_parameters, arm.flops_per_token, runs))
    lines = NgramBaselines({1: 3.2, 2: 2.5, 3: 1.9}, 2.5)
    return StudyResult(
        study.at(budget), arms[0].config, seeds, seeds, tuple(arms), lines, lines, {}, {}, tmp_path, budget
    )


AMOUNT = {"all": 1, "half": 2, "quarter": 4, "eighth": 8, "sixteenth": 16, "thirty-second": 32}


def contents(result: StudyResult, gap) -> dict:
    """What the probe would have measured: amounts as designed, a gap between the losses as a test chooses."""
    measured = {}
    for arm in result.arms:
        parts = AMOUNT.get(arm.arm.name, 1 if arm.arm.name == "english-portuguese" else 32)
        tokens = 4_746_729 // parts
        measured[arm.arm.name] = {
            seed: {
                "tokens": tokens,
                "characters": tokens,
                "bytes": tokens,
                "words_seen": 0.99 - 0.01 * math.log2(parts),
                "passes": 491_520 / tokens,
                "train_loss": loss - gap(parts),
            }
            for seed, loss in arm.losses.items()
        }
    return measured


LESS_IS_WORSE = {
    **{name: 1.60 + 0.02 * parts**0.5 for name, parts in AMOUNT.items()},
    "one-genre": 1.75,
    "one-play": 1.82,
    "english-portuguese": 1.67,
}


def told(exhibit, part: str):
    return next(finding for finding in exhibit.findings if part in finding.text)


def test_amounts_for_variety_are_equal_and_one_contains_the_other():
    arms = {arm.arm.name: arm.config.corpus for arm in resolved(DATA, "standard")}
    assert arms["one-play"].passages == tuple(map(tuple, ONE_PLAY))
    assert arms["one-genre"].passages == tuple(map(tuple, HISTORIES))
    assert set(ONE_PLAY[0]) & set(HISTORIES[1])
    assert arms["english-portuguese"].also == ("machado",)
    assert arms["english-portuguese"].share == arms["half"].share == 0.5
    assert {corpus.tokenizer.name for corpus in arms.values()} == {"byte"}
    assert [arm.arm.against for arm in resolved(DATA, "quick") if arm.arm.against] == ["thirty-second"] * 2


def test_all_tokens_get_the_same_compute():
    arms = resolved(TOKENS, "standard")
    assert [arm.arm.name for arm in arms] == ["char", "byte", "bpe-512", "bpe-1024", "bpe-2048", "bpe-4096"]
    for arm in arms:
        assert arm.flops == pytest.approx(arms[0].flops, rel=0.02)
    assert arms[-1].config.training.steps < arms[0].config.training.steps


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Trained:
    folder = tmp_path_factory.mktemp("amounts")
    words = numpy_stream(9, "words").choice(["não", "the", "cat", "sang", "to", "me\n"], size=9_000).tolist()
    # The last tenth is the test part: a word that stands only there is a word never met.
    (folder / "t.txt").write_text(" ".join([*words, *["zebra", "cat"] * 200]), encoding="utf-8")
    config = RunConfig.parse(
        {
            "corpus": {"source": str(folder / "t.txt"), "tokenizer": "byte", "split": "tail", "share": 0.4},
            "model": {"context_length": 7, "d_model": 8, "num_heads": 2, "num_layers": 1, "dropout": 0.3},
            "training": {"steps": 5, "batch_size": 3, "accumulation": 2, "evaluate_every": 5, "device": "cpu"},
        }
    )
    train(config, folder / "run")
    return Trained("all", 1, load_run(folder / "run", "last"), prepare(config.corpus), "quick")


def test_what_is_measured_of_the_amount(run):
    measured = AMOUNTS.measure(run)
    train_part, tokenizer = run.dataset.splits["train"], run.dataset.tokenizer
    text, test = (tokenizer.decode(run.dataset.splits[part].tokens) for part in ("train", "test"))
    assert measured["tokens"] == measured["bytes"] == len(text.encode()) == len(train_part.tokens)
    assert measured["characters"] == len(text) < measured["bytes"]
    assert measured["passes"] == pytest.approx(5 * 3 * 2 * 7 / len(train_part.tokens))
    common = prepare(run.dataset.config.model_copy(update={"share": 1 / 32})).splits["train"]
    known = tokenizer.decode(common.tokens)
    assert known in text
    assert len(known) < len(text)
    assert measured["train_loss"] == evaluate_split(run.run.model, common, tokenizer).loss
    words = test.split()
    # A word cut at the part's border is not among the training words either.
    assert measured["words_seen"] == pytest.approx(1 - words.count("zebra") / len(words), abs=2 / len(words))
    assert AMOUNTS.measure(run) == measured


def test_what_is_measured_of_tokens(run):
    measured = TEXT_UNITS.measure(run)
    test = run.dataset.splits["test"]
    text = run.dataset.tokenizer.decode(test.tokens)
    assert measured["characters_per_token"] == pytest.approx(len(text) / len(text.encode()))
    assert measured["context_characters"] == pytest.approx(7 * measured["characters_per_token"])
    # Token table and head of 256 rows, 8 wide.
    assert measured["token_share"] * sum(p.numel() for p in run.run.model.parameters()) == pytest.approx(2 * 256 * 8)
    assert measured["tokens"] == 5 * 3 * 2 * 7
    assert measured["vocab_size"] == 256
    assert measured["median_seen"] == 0  # most bytes never occur


def test_where_a_run_stands_on_the_scaling_laws(run):
    measured = SCALING_FIT.measure(run)
    model = run.run.model
    # All but the token table, the table of positions (7 places) and the head.
    assert measured["size"] == sum(p.numel() for p in model.parameters()) - (256 + 7 + 256) * 8
    assert measured["amount"] == 5 * 3 * 2 * 7
    costs = cost(model.config, 256)
    assert measured["compute"] == 210 * 3 * costs.forward_flops


def test_characters_per_token_of_pairs_by_hand(tmp_path):
    (tmp_path / "t.txt").write_text("abab" * 3_000, encoding="utf-8")
    data = prepare(CorpusConfig.parse({"source": str(tmp_path / "t.txt"), "tokenizer": "byte", "split": "tail"}))
    assert characters_per_token(data.splits["test"], data.tokenizer) == 1.0
    (tmp_path / "t.txt").write_text("éa" * 3_000, encoding="utf-8")
    data = prepare(CorpusConfig.parse({"source": str(tmp_path / "t.txt"), "tokenizer": "byte", "split": "tail"}))
    assert characters_per_token(data.splits["test"], data.tokenizer) == pytest.approx(2 / 3)
    pairs = prepare(CorpusConfig.parse({"source": str(tmp_path / "t.txt"), "tokenizer": "bpe", "split": "tail"}))
    assert characters_per_token(pairs.splits["test"], pairs.tokenizer) > 1.5


def test_less_text_and_less_variety_are_worse_where_they_are(tmp_path):
    result = made(tmp_path, DATA, "standard", LESS_IS_WORSE, spread=0.0004)
    exhibit = AMOUNTS.show(result, contents(result, lambda parts: 0.01 * parts))
    names = [section.name for section in exhibit.sections if isinstance(section, Plot)]
    assert names == ["data-amount", "data-variety"]
    (table,) = [section for section in exhibit.sections if isinstance(section, Table)]
    assert [row[0] for row in table.rows] == [arm.arm.title for arm in result.arms]
    assert told(exhibit, "From little text the model learns more").holds is True
    assert "1/32 of the text" in told(exhibit, "Less text is worse").text
    assert told(exhibit, "As much from one play").holds is True
    assert told(exhibit, "worse.").holds is True
    portuguese = [f.text for f in exhibit.findings if f.arm == "english-portuguese"]
    assert ["against all of the text" in text for text in portuguese] == [True, False]
    assert "against 1/2 of the text" in portuguese[1]
    assert told(exhibit, "α = ").holds is True


def test_where_nothing_differs_nothing_is_claimed(tmp_path):
    result = made(tmp_path, DATA, "quick", dict.fromkeys(LESS_IS_WORSE, 1.7), spread=0.01)
    exhibit = AMOUNTS.show(result, contents(result, lambda parts: 0.0))
    assert told(exhibit, "No amount is seen to be too little").holds is False
    assert told(exhibit, "As much from one play").holds is False
    assert "no difference seen at this budget" in told(exhibit, "As much from one play").text
    assert told(exhibit, "learned by heart is not seen").holds is None
    assert told(exhibit, "L(D) = ").holds is None


def test_the_sentences_turn_round_with_the_numbers(tmp_path):
    turned = {name: 3.4 - loss for name, loss in LESS_IS_WORSE.items()}
    result = made(tmp_path, DATA, "quick", turned)
    exhibit = AMOUNTS.show(result, contents(result, lambda parts: -0.01 * parts))
    assert told(exhibit, "From little text the model learns less").holds is False
    assert told(exhibit, "No amount is seen to be too little").holds is False
    assert told(exhibit, "As much from one play").text.endswith("better.")


def test_one_seed_gives_no_verdict(tmp_path):
    result = made(tmp_path, DATA, "quick", LESS_IS_WORSE, seeds=(1,))
    exhibit = AMOUNTS.show(result, contents(result, lambda parts: 0.01 * parts))
    # The law of the amount takes its scatter from the amounts themselves.
    assert all(finding.holds is None for finding in exhibit.findings if not finding.text.startswith("L(D)"))
    assert len(exhibit.findings) == 6


def names_of(exhibit, part: str) -> list[str]:
    return [finding.arm for finding in exhibit.findings if part in finding.text]


def test_the_half_is_there_from_standard_on():
    assert "half" not in {arm.arm.name for arm in resolved(DATA, "quick")}
    assert "half" in {arm.arm.name for arm in resolved(DATA, "standard")}


def test_an_arm_with_another_model_is_no_amount(tmp_path):
    """A larger model on an eighth of the text, far better than all others: neither an amount nor a variety."""
    losses = LESS_IS_WORSE | {"eighth": 1.0}
    result = made(tmp_path, DATA, "quick", losses, spread=0.0004)
    measured = contents(result, lambda parts: 0.01 * parts)
    alike = AMOUNTS.show(result, measured)
    assert "L(D) = E + (D_c/D)^α is not determined" in told(alike, "L(D)").text

    def wider(arm):
        if arm.arm.name != "eighth":
            return arm
        return replace(arm, config=dict(arm.config) | {"model": arm.config["model"] | {"d_model": 512}})

    exhibit = AMOUNTS.show(replace(result, arms=tuple(wider(arm) for arm in result.arms)), measured)
    plots = {section.name: section for section in exhibit.sections if isinstance(section, Plot)}
    assert "1/8" not in plots["data-amount"].alt
    assert "1/8" not in plots["data-variety"].alt
    assert not any("1/8" in finding.text for finding in exhibit.findings)
    (table,) = [section for section in exhibit.sections if isinstance(section, Table)]
    assert "1/8 of the text" in [row[0] for row in table.rows]


def test_both_losses_are_in_the_studys_unit(tmp_path):
    result = made(tmp_path, DATA, "quick", LESS_IS_WORSE)
    measured = contents(result, lambda parts: 0.0)
    bits = replace(
        result,
        study=result.study.model_copy(update={"unit": "bits per character"}),
        arms=tuple(replace(arm, factor=1.5) for arm in result.arms),
    )
    exhibit = AMOUNTS.show(bits, measured)
    (table,) = [section for section in exhibit.sections if isinstance(section, Table)]
    assert "bits per character" in table.caption
    assert {row[6].split()[0] for row in table.rows} == {"+0.000"}


def test_a_pair_is_tested_once(tmp_path):
    """Another text beside all of the own one: its rival, the base, is also the arm with the same own text."""
    result = made(tmp_path, DATA, "quick", LESS_IS_WORSE)

    def whole(arm):
        if arm.arm.name != "english-portuguese":
            return arm
        return replace(arm, config=dict(arm.config) | {"corpus": arm.config["corpus"] | {"share": None}})

    both = replace(result, arms=tuple(whole(arm) for arm in result.arms))
    exhibit = AMOUNTS.show(both, contents(both, lambda parts: 0.0))
    assert names_of(exhibit, "against all of the text") == ["english-portuguese"]


def test_runs_that_were_not_measured_are_left_out(tmp_path):
    result = made(tmp_path, DATA, "quick", LESS_IS_WORSE)
    measured = contents(result, lambda parts: 0.01 * parts)
    del measured["one-play"], measured["eighth"][2]
    exhibit = AMOUNTS.show(result, measured)
    (table,) = [section for section in exhibit.sections if isinstance(section, Table)]
    assert len(table.rows) == len(result.arms) - 1
    assert not names_of(exhibit, "from one play")
    assert AMOUNTS.show(result, {}).sections == ()


def test_text_that_is_known_to_one_arm_alone_is_named(tmp_path):
    result = made(tmp_path, DATA, "quick", LESS_IS_WORSE)

    def less(arm):
        if arm.arm.name != "thirty-second":
            return arm
        return replace(arm, config=dict(arm.config) | {"corpus": arm.config["corpus"] | {"share": 1 / 64}})

    def how(shown):
        exhibit = AMOUNTS.show(shown, contents(shown, lambda parts: 0.01 * parts))
        return next(section.text for section in exhibit.sections if isinstance(section, Paragraph)), exhibit

    assert "for as much from ten history plays, as much from one play it is their own" in how(result)[0]
    text, exhibit = how(replace(result, arms=tuple(less(arm) for arm in result.arms)))
    assert "for 1/32 of the text, as much from ten history plays" in text
    # What the least text is known by is no longer the text of the others: the gap is that of the next amount.
    assert told(exhibit, "From little text the model learns more").arm == "eighth"


LONGER_IS_BETTER = {"char": 1.70, "byte": 1.71, "bpe-512": 1.65, "bpe-1024": 1.60, "bpe-2048": 1.56, "bpe-4096": 1.53}


def units(result: StudyResult) -> dict:
    lengths = {"char": 1.0, "byte": 0.98, "bpe-512": 1.7, "bpe-1024": 2.1, "bpe-2048": 2.5, "bpe-4096": 2.9}
    return {
        arm.arm.name: {
            seed: {
                "vocab_size": vocabulary(CorpusConfig.parse(arm.config["corpus"])),
                "characters_per_token": lengths[arm.arm.name],
                "context_characters": 64 * lengths[arm.arm.name],
                "token_share": 0.1,
                "tokens": arm.num_tokens,
                "characters": arm.num_tokens * lengths[arm.arm.name],
                "passes": 0.4,
                "median_seen": 70.0,
            }
            for seed in arm.losses
        }
        for arm in result.arms
    }


def test_longer_tokens_are_better_where_they_are(tmp_path):
    result = made(tmp_path, TOKENS, "standard", LONGER_IS_BETTER)
    exhibit = TEXT_UNITS.show(result, units(result))
    assert [section.name for section in exhibit.sections if isinstance(section, Plot)] == ["tokens-vocabulary"]
    (table,) = [section for section in exhibit.sections if isinstance(section, Table)]
    assert [row[1] for row in table.rows] == ["109", "256", "512", "1,024", "2,048", "4,096"]
    assert told(exhibit, "They also end lowest").holds is True
    assert told(exhibit, "Compute is equal within 2%").holds is True
    assert told(exhibit, "more merges help").holds is True


def test_and_are_not_where_they_are_not(tmp_path):
    turned = {name: 3.4 - loss for name, loss in LONGER_IS_BETTER.items()}
    result = made(tmp_path, TOKENS, "quick", turned)
    exhibit = TEXT_UNITS.show(result, units(result))
    lowest = told(exhibit, "They do not end lowest: they lie above characters")
    assert lowest.holds is False
    assert "Holm's correction over 3" in lowest.text
    assert told(exhibit, "they harm").holds is False
    result = made(tmp_path, TOKENS, "quick", dict.fromkeys(LONGER_IS_BETTER, 1.7), spread=0.01)
    exhibit = TEXT_UNITS.show(result, units(result))
    assert told(exhibit, "no difference seen at this budget").holds is None
    assert told(exhibit, "That they end lowest is not shown: no difference seen from").holds is None


def test_two_seeds_do_not_say_who_ends_lowest(tmp_path):
    result = made(tmp_path, TOKENS, "quick", LONGER_IS_BETTER, seeds=(1, 2))
    assert told(TEXT_UNITS.show(result, units(result)), "Whether they end lowest cannot be told").holds is None


def test_losses_per_token_of_different_tokens_are_not_compared(tmp_path):
    result = made(tmp_path, TOKENS, "quick", LONGER_IS_BETTER)
    nats = replace(result, study=result.study.model_copy(update={"unit": "nats per token"}))
    exhibit = TEXT_UNITS.show(nats, units(nats))
    (table,) = [section for section in exhibit.sections if isinstance(section, Table)]
    assert table.columns[-1] == "nats per token"
    assert not any(isinstance(section, Plot) for section in exhibit.sections)
    assert not any("bits" in finding.text or "lowest" in finding.text for finding in exhibit.findings)


def test_the_real_amounts_agree(shakespeare_amounts):
    """The shares in the catalogue were chosen for the complete Shakespeare; this holds them to it."""
    thirty_second, genre, play, everything, both = shakespeare_amounts
    assert np.array([genre, play]) == pytest.approx(thirty_second, rel=0.005)
    assert both == pytest.approx(everything, rel=0.01)


@pytest.fixture
def shakespeare_amounts():
    import os

    if not os.path.isfile(os.path.join(os.environ.get("VITRAL_CORPORA", ""), "shakespeare-complete.txt")):
        pytest.skip("needs the complete Shakespeare in VITRAL_CORPORA")
    from vitral.core.errors import UsageError

    names = ("thirty-second", "one-genre", "one-play", "all", "english-portuguese")
    arms = {arm.arm.name: arm.config.corpus for arm in resolved(DATA, "quick", corpus={"source": "shakespeare"})}
    try:
        return [len(prepare(arms[name]).splits["train"].tokens) for name in names]
    except UsageError as error:
        pytest.skip(f"needs both texts: {error}")
