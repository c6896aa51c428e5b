"""The probes of the study `mask`: what flows, works told apart, each against what can be worked out."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.data import CorpusConfig, prepare
from vitral.model import ModelConfig, Transformer
from vitral.runs import load_run
from vitral.studies import study_named
from vitral.studies.probes import uses, uses_shown
from vitral.studies.probes.flow import Asked, answers, continuing, filling, leak, pooled, spread_windows
from vitral.studies.probes.linear import PENALTIES, Sample, fit, frequencies, probe, wilson
from vitral.studies.probes.protocol import Plot, Trained
from vitral.studies.probes.works import labelled, stretches_of, works_of
from vitral.training import RunConfig, train

MASK = study_named("mask")

VOCAB, TIME = 7, 13


def model_with(mask: Any, seed: int = 1) -> Transformer:
    """A fresh small model whose numbers are large enough to tell tokens apart."""
    config = {"context_length": TIME, "d_model": 12, "num_heads": 3, "num_layers": 2, "attention": {"mask": mask}}
    return Transformer(ModelConfig.parse({**config, "initialisation": "pytorch"}), VOCAB, seed=seed).eval()


def some_windows(rows: int = 5, time: int = TIME) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(1).integers(1, VOCAB, size=(rows, time)))


def asked(mask: Any, blank: int | None = None) -> Asked:
    return Asked(model_with(mask), blank, (0,))


class TestLeak:
    @pytest.mark.parametrize("mask", ["causal", {"name": "window", "size": 3}])
    def test_nothing_moves_where_the_future_is_hidden(self, mask: Any) -> None:
        found = leak(asked(mask), some_windows(31), 5)
        assert found["moved"] < 1e-6
        assert not found["visible"]

    def test_what_both_ways_says_moves_with_the_next_token(self) -> None:
        found = leak(asked("bidirectional"), some_windows(31), 5)
        assert found["moved"] > 1e-3
        assert found["visible"]

    def test_a_prefix_leaks_inside_itself_and_not_behind(self) -> None:
        prefix = asked({"name": "prefix", "length": 6})
        inside, last, behind = (leak(prefix, some_windows(31), place) for place in (2, 5, 9))
        assert (inside["visible"], last["visible"], behind["visible"]) == (True, False, False)
        assert inside["moved"] > 1e-3 > 1e-6 > max(last["moved"], behind["moved"])

    def test_a_single_window_has_no_other_token_to_take(self) -> None:
        with pytest.raises(UsageError, match="there are 1 windows"):
            leak(asked("bidirectional"), some_windows(1), 4)

    def test_windows_whose_token_stays_the_same_do_not_count(self) -> None:
        same = torch.ones(3, TIME, dtype=torch.int64)
        assert leak(asked("bidirectional"), same, 4)["moved"] == 0.0


class TestFilling:
    @pytest.mark.parametrize("mask", ["causal", {"name": "prefix", "length": 6}])
    def test_the_chain_rule_is_bayes_over_whole_windows(self, mask: Any) -> None:
        """Each candidate put into the window, the whole window scored from the gap on, and normalised."""
        given, windows, gap = asked(mask), some_windows(), 7
        joint = torch.full((len(windows), VOCAB), -math.inf, dtype=torch.float64)
        for token in range(1, VOCAB):
            candidate = windows.clone()
            candidate[:, gap] = token
            with torch.inference_mode():
                logs = given.model(candidate[:, :-1]).double().log_softmax(-1)
            each = logs.gather(2, candidate[:, 1:, None])[:, :, 0]
            joint[:, token] = each[:, gap - 1 :].sum(dim=1)
        found = filling(given, windows, gap)
        assert found is not None
        assert torch.allclose(found.exp(), joint.softmax(dim=1), atol=1e-5)
        assert torch.allclose(found.exp().sum(dim=1), torch.ones(len(windows), dtype=torch.float64))

    def test_a_blank_is_answered_where_it_stands_whatever_stood_there(self) -> None:
        given, windows = asked("bidirectional", blank=0), some_windows()
        other = windows.clone()
        other[:, 7] = 1 + windows[:, 7] % (VOCAB - 1)
        one, two = filling(given, windows, 7), filling(given, other, 7)
        assert one is not None
        assert two is not None
        assert torch.equal(one, two)
        hidden = windows.clone()
        hidden[:, 7] = 0
        assert torch.allclose(one, given.logs(hidden, 7))

    def test_a_model_that_sees_its_answer_can_say_nothing(self) -> None:
        assert filling(asked("bidirectional"), some_windows(), 7) is None

    def test_no_window_is_told(self) -> None:
        with pytest.raises(UsageError, match="no window"):
            filling(asked("causal"), some_windows(0), 7)

    def test_continuing_reads_the_last_place_or_a_blank_after_it(self) -> None:
        contexts = some_windows()[:, :6]
        causal, masking = asked("causal"), asked("bidirectional", blank=0)
        with_blank = torch.cat([contexts, torch.zeros(5, 1, dtype=torch.int64)], dim=1)
        assert torch.equal(continuing(causal, contexts), causal.logs(contexts, 5))
        assert torch.equal(continuing(masking, contexts), masking.logs(with_blank, 6))
        assert (continuing(causal, contexts)[:, 0] == -torch.inf).all()  # a special is no answer

    def test_answers_by_hand(self) -> None:
        found = answers(torch.tensor([[0.25, 0.75], [0.5, 0.5]]).log(), torch.tensor([1, 1]))
        assert found["nats"] == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)
        assert found["accuracy"] == 0.5  # of equals the first is taken


def test_pooled_is_the_mean_over_positions() -> None:
    model, windows = model_with("causal"), some_windows(3)
    whole = model.trace(windows, ["final_norm"])["final_norm"]
    assert pooled(model, windows) == pytest.approx(whole.double().mean(dim=1).numpy())


class TestLinearProbe:
    def rows(self, count: int, seed: int, apart: float) -> Sample:
        """Three classes whose means stand `apart` on axes of their own."""
        drawn, classes = np.random.default_rng(seed).normal(size=(count, 5)), np.arange(count) % 3
        drawn[np.arange(count), classes] += apart
        return Sample(drawn, classes)

    def test_it_tells_apart_what_is_apart_and_nothing_else(self) -> None:
        far, near = (
            [self.rows(count, seed, apart) for seed, count in enumerate((300, 90, 300))] for apart in (8.0, 0.0)
        )
        assert probe(*far).accuracy > 0.99
        chance = probe(*near)
        assert chance.low < 1 / 3 < chance.high
        assert chance.majority == pytest.approx(1 / 3)
        assert chance.penalty in PENALTIES

    def test_its_weights_have_no_slope_left(self) -> None:
        """At the optimum the penalty's pull equals the mean of features times errors."""
        sample, penalty = self.rows(60, 3, 1.0), 0.1
        weights = fit(sample, 3, penalty)
        scores = sample.features @ weights[:-1] + weights[-1]
        errors = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True) - np.eye(3)[sample.classes]
        assert sample.features.T @ errors / 60 + penalty * weights[:-1] == pytest.approx(np.zeros((5, 3)), abs=1e-4)
        assert errors.sum(axis=0) / 60 == pytest.approx(np.zeros(3), abs=1e-4)

    def test_wilson_holds_the_truth_as_often_as_it_says(self) -> None:
        rights = np.random.default_rng(5).binomial(50, 0.3, size=4000)
        held = np.mean([low <= 0.3 <= high for low, high in (wilson(int(right), 50) for right in rights)])
        assert held == pytest.approx(0.95, abs=0.015)

    def test_frequencies_by_hand(self) -> None:
        assert frequencies(np.array([[0, 2, 2, 1]]), 4).tolist() == [[0.25, 0.25, 0.5, 0.0]]


TITLES = ["THE KING", "A STORM", "TWO FOOLS", "THE END", "LOST"]


def collection() -> str:
    """Five works of their own letters behind a table of contents; the last title does not come again."""
    letters = ["abc ", "efg ", "ijk ", "mno "]
    body = "".join(f"{title}\n\n{letter * 50_000}\n" for title, letter in zip(TITLES, letters, strict=False))
    return "A book\n\n   Contents\n\n" + "".join(f"   {title}\n\n" for title in TITLES) + body


class TestWorks:
    def test_titles_and_ends(self) -> None:
        text = collection()
        works = works_of(text)
        # Where the fourth ends nobody can tell, since the fifth title does not come again.
        assert [work.title for work in works] == TITLES[:3]
        assert all(text[work.begin :].startswith(work.title) for work in works)
        assert works[0].end == works[1].begin

    def test_a_text_without_contents_has_none(self) -> None:
        assert works_of("THE KING\n\nabc\n") == []

    def test_stretches_cover_the_text(self) -> None:
        pieces = stretches_of("x" * 1003)
        assert (pieces[0].begin, pieces[-1].end) == (0, 1003)
        assert {piece.end - piece.begin for piece in pieces} <= {125, 126}

    @pytest.mark.parametrize("last", ["uvw ", None])
    def test_passages_are_of_their_work_and_part(self, last: str | None, tmp_path: Path) -> None:
        text = collection() + (f"LOST\n\n{last * 50_000}" if last else "")
        path = tmp_path / "works.txt"
        path.write_text(text, encoding="utf-8", newline="\n")
        dataset = prepare(CorpusConfig.parse({"source": str(path), "split": "blocks"}))
        titles, are_works, parts = labelled(dataset, 16, {"train": 20, "test": 5})
        assert are_works is (last is not None)
        for part, found in parts.items():
            counts = np.bincount(found.works, minlength=len(titles))
            assert set(counts.tolist()) == {len(found.works) // len(titles)}
            stored = dataset.tokenizer.decode(np.asarray(dataset.splits[part].tokens))
            assert all(dataset.tokenizer.decode(row.numpy()) in stored for row in found.tokens)
        if are_works:
            letter = {"THE KING": "b", "A STORM": "f", "TWO FOOLS": "j", "THE END": "n", "LOST": "v"}
            for row, work in zip(parts["train"].tokens, parts["train"].works, strict=True):
                assert letter[titles[work]] in dataset.tokenizer.decode(row.numpy())


def made(seeds: int, **changes: dict[str, float]) -> dict[str, dict[int, dict[str, Any]]]:
    """Measures of three arms: nats and accuracies that differ by arm as told, with some spread over seeds."""

    def one(seed: int, shift: float, visible: bool, moved: float) -> dict[str, Any]:
        noise = 0.01 * math.sin(7 * seed + 50 * shift)

        def answer(nats: float) -> dict[str, Any]:
            return {"accuracy": 0.5 - shift / 4 + noise, "nats": nats + shift + noise, "num": 96}

        spot = {"position": 16, "visible": visible, **answer(2.0), "moved": moved, "follows": 0.0}
        result = {"accuracy": 0.4 + noise, "low": 0.35, "high": 0.45, "majority": 0.25, "num": 96, "penalty": 0.01}
        return {
            "context": 64,
            "gap": 32,
            "right": 8,
            "targets": 10 if visible else 64,
            "leak": {"early": spot, "late": {**spot, "position": 48}},
            "filling": {"both": answer(1.0), "left": answer(2.0)},
            "continuing": answer(2.0),
            "classifying": {
                "titles": ["one", "two", "three", "four"],
                "works": True,
                "passages": {"train": 100, "validation": 50, "test": 96},
                "activations": result,
                "frequencies": {**result, "accuracy": 0.5},
            },
        }

    arms = {"causal": (0.0, False, 0.0), "bidirectional": (-0.5, True, 0.3), "prefix": (0.0, False, 0.0)}
    arms |= {name: (each["shift"], bool(each["visible"]), each["moved"]) for name, each in changes.items()}
    return {name: {seed: one(seed, *numbers) for seed in range(1, 1 + seeds)} for name, numbers in arms.items()}


def result_of(measured: dict[str, Any]) -> Any:
    titles = {arm.name: arm for arm in MASK.arms}
    return SimpleNamespace(arms=[SimpleNamespace(arm=titles[name]) for name in measured])


class TestUses:
    def test_findings_follow_the_numbers(self) -> None:
        measured = made(4)
        exhibit = uses_shown.show(result_of(measured), measured)
        texts = [finding.text for finding in exhibit.findings]
        better = [finding for finding in exhibit.findings if finding.text.startswith("Filling a gap from both")]
        assert [(finding.arm, finding.holds) for finding in better] == [("bidirectional", True), ("prefix", False)]
        assert "better" in better[0].text
        assert "no difference seen" in better[1].text
        assert any("4 works apart" in text for text in texts)
        less = [text for text in texts if "counts of tokens alone give 0.50: activations give less" in text]
        assert len(less) == 3
        assert all("after Holm's correction" in text for text in less)
        assert all(finding.holds for finding in exhibit.findings if "the mask" in finding.text)

    def test_a_causal_mask_that_leaks_is_told(self) -> None:
        measured = made(3, causal={"shift": 0.0, "visible": 0.0, "moved": 0.2})
        leaks = [f for f in uses_shown.show(result_of(measured), measured).findings if f.arm == "causal"]
        assert leaks[0].holds is False
        assert "hides the next token, changing it moves what is said there by 0.20" in leaks[0].text

    def test_stretches_are_not_called_works(self) -> None:
        measured = made(3)
        for by_seed in measured.values():
            for run in by_seed.values():
                run["classifying"]["works"] = False
        exhibit = uses_shown.show(result_of(measured), measured)
        assert any("tells 4 stretches apart" in finding.text for finding in exhibit.findings)
        plot = next(section for section in exhibit.sections if isinstance(section, Plot))
        words = " ".join([*(finding.text for finding in exhibit.findings), plot.caption, str(exhibit.sections)])
        assert not re.search(r"\bworks\b", words)

    def test_two_seeds_compare_nothing(self) -> None:
        measured = made(2)
        findings = uses_shown.show(result_of(measured), measured).findings
        apart = [finding.text for finding in findings if "a linear probe tells" in finding.text]
        assert all("counts of tokens alone give 0.50 (too few seeds to compare)" in text for text in apart)
        assert [finding.holds for finding in findings if "right side is worth" in finding.text] == [None] * 3

    def test_as_much_as_counts_give_is_no_difference(self) -> None:
        measured = made(3)
        for by_seed in measured.values():
            for seed, run in by_seed.items():
                run["classifying"]["frequencies"]["accuracy"] = 0.4 + (0.1 if seed % 2 else -0.2)
        texts = [finding.text for finding in uses_shown.show(result_of(measured), measured).findings]
        assert sum("counts of tokens alone give 0.40: no difference seen" in text for text in texts) == 3

    @pytest.mark.parametrize(
        ("model", "text", "why"),
        [
            ({"context_length": 4}, None, "a context of 4 tokens"),
            ({"attention": {"mask": {"name": "prefix", "length": 11}}}, None, "leaves no room for a gap"),
            ({"context_length": 11}, 10, "has 0 whole windows of 11 tokens"),
            ({"context_length": 11}, 21, "has 1 whole windows of 11 tokens"),
        ],
    )
    def test_a_run_that_cannot_be_asked_is_refused_with_the_reason(
        self, model: dict[str, Any], text: int | None, why: str, tiny: RunConfig
    ) -> None:
        from dataclasses import replace

        from vitral.core.config import merge
        from vitral.data import Split
        from vitral.runs import LoadedRun, RunFolder

        config = RunConfig.parse(merge(tiny.plain(), {"model": model}))
        dataset = prepare(config.corpus)
        if text is not None:
            part = Split(np.ones(text, dtype=np.uint16), np.array([[0, text]]))
            dataset = replace(dataset, splits={**dataset.splits, "test": part})
        fresh = Transformer(config.model, dataset.tokenizer.vocab_size, seed=1).eval()
        run = LoadedRun(RunFolder(Path("no-folder-is-read")), fresh, dataset.tokenizer, config.plain(), 0)
        with pytest.raises(UsageError, match=why):
            uses.measure(Trained("base", 1, run, dataset, "quick"))

    def test_the_longer_training_says_how_long_it_is(self) -> None:
        longer = next(arm for arm in MASK.arms if arm.name == "bidirectional-long")
        assert longer.changes["training"]["steps"] == 1600
        assert "1,600 steps" in longer.title
        assert MASK.budgets["standard"].changes == {"model": {"positions": "rotary"}}
        assert MASK.budgets["full"].changes["training"] == {"steps": 1000, "evaluate_every": 500}

    def test_one_seed_gives_no_verdict(self) -> None:
        measured = made(1)
        texts = [finding.text for finding in uses_shown.show(result_of(measured), measured).findings]
        assert any("from one seed: no verdict" in text for text in texts)
        assert not any("better" in text for text in texts)

    def test_no_run_shows_nothing(self) -> None:
        assert uses_shown.show(result_of({}), {}).findings == ()

    @pytest.mark.parametrize("name", [arm.name for arm in MASK.arms])
    def test_every_arm_is_measured_and_the_measure_is_plain(
        self, name: str, tiny: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from vitral.core.config import merge

        monkeypatch.setattr(uses, "PER_WORK", {"quick": {"train": 12, "validation": 6, "test": 6}})
        monkeypatch.setattr(uses, "CONTEXTS", {"quick": 30})
        monkeypatch.setattr(uses, "GAPS", {"quick": 8})
        changes: dict[str, Any] = merge(
            next(arm.changes for arm in MASK.arms if arm.name == name), {"training": {"steps": tiny.training.steps}}
        )
        if name == "prefix":
            changes = {"model": {"attention": {"mask": {"name": "prefix", "length": 5}}}}
        config = RunConfig.parse(merge(tiny.plain(), changes))
        dataset = prepare(config.corpus)
        folder = train(config, tmp_path / "run", dataset=dataset)
        trained = Trained(name, 1, load_run(folder.path, "last"), dataset, "quick")
        found = uses.measure(trained)
        assert json.loads(json.dumps(found, allow_nan=False)) == found == uses.measure(trained)
        assert (found["filling"]["both"] is None) is (name == "leak")
        # Of 11 tokens: all but the prefix's first four; 15% to the nearest whole number.
        assert found["targets"] == (7 if name == "prefix" else 2 if name.startswith("bidirectional") else 11)
        assert found["leak"]["late"]["visible"] is (name not in ("causal", "prefix"))
        assert (found["leak"]["late"]["moved"] > 1e-6) is (name not in ("causal", "prefix"))
        assert found["classifying"] is None  # the last tenth of a text is no stretch that was trained on


def test_windows_stay_in_their_stretch(made_part: Callable[[], Any]) -> None:
    found = spread_windows(made_part(), 4, 3)
    assert found.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [11, 12, 13, 14]]


@pytest.fixture
def made_part() -> Callable[[], Any]:
    from vitral.data import Split

    return lambda: Split(np.arange(16, dtype=np.uint8), np.array([[0, 10], [10, 11], [11, 16]]))
