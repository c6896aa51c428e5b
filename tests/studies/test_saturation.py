"""The probe `saturation`: attention in fresh and trained models, and what is said of it."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vitral.core.errors import UsageError
from vitral.core.streams import torch_stream
from vitral.core.taps import Editor
from vitral.data import Dataset, Split, prepare
from vitral.figures.sections import Table
from vitral.model import ModelConfig, Transformer, next_token_loss
from vitral.runs import load_run
from vitral.studies import study_named
from vitral.studies.design import resolve
from vitral.studies.probes import saturation, saturation_found
from vitral.studies.probes.protocol import Exhibit, Plain, Plot, Trained
from vitral.training import RunConfig
from vitral.training.train import train

SCALE = study_named("scale")

MODEL = {"context_length": 7, "d_model": 12, "num_layers": 2, "num_heads": 3, "positions": "alibi"}


def tokens(num: int, vocab: int) -> torch.Tensor:
    return torch.randint(vocab, (num, 8), generator=torch_stream(3, "tokens"))


class TestModels:
    @pytest.mark.parametrize("scale", ["none", "learned-per-head", "adaptive"])
    def test_numbers_are_those_of_a_plain_computation(self, scale: str) -> None:
        config = ModelConfig.parse(MODEL | {"attention": {"scale": scale}})
        model = Transformer(config, 13, seed=3).double()
        ids = tokens(5, 13)
        inputs, targets = ids[:, :-1], ids[:, 1:]
        found = saturation.state_of(model, inputs, targets)
        traced = model.trace(inputs)
        lower = torch.ones(7, 7, dtype=torch.bool).tril()
        for layer, numbers in enumerate(found["layers"]):
            raw, weights = (traced[f"blocks.{layer}.attn.{step}"] for step in ("scores", "weights"))
            for head in range(3):
                pairs = raw[:, head, lower].numpy()
                assert numbers["score_variance"][head] == pytest.approx(np.var(pairs))
                rows = [weights[w, head, i, : i + 1].numpy() for w in range(5) for i in range(1, 7)]
                share = np.mean([-(row * np.log(row)).sum() / math.log(len(row)) for row in rows])
                assert numbers["entropy_share"][head] == pytest.approx(share)
                norms = [np.linalg.norm(np.diag(row) - np.outer(row, row)) for row in rows]
                assert numbers["jacobian"][head] == pytest.approx(np.mean(norms))
        with torch.no_grad():
            loss = next_token_loss(model(inputs), targets, model.mask).item()
        assert found["loss"] == pytest.approx(loss)
        if scale == "adaptive":
            spread = [variance for numbers in found["layers"] for variance in numbers["row_variance"]]
            assert spread == pytest.approx([1] * 6)
        assert [len(numbers["factors"]) for numbers in found["layers"]] == [3 * (scale == "learned-per-head")] * 2

    def test_query_gradient_is_that_of_a_nudge(self) -> None:
        config = ModelConfig.parse(MODEL | {"num_layers": 1, "num_heads": 1, "d_model": 3, "initialisation": "pytorch"})
        model = Transformer(config, 13, seed=3).double()
        ids = tokens(1, 13)
        inputs, targets = ids[:, :-1], ids[:, 1:]
        found = saturation.state_of(model, inputs, targets)["layers"][0]["query_gradient"][0]
        assert found == pytest.approx(self._nudged(model, inputs, targets), rel=1e-5)

    @staticmethod
    def _nudged(model: Transformer, inputs: torch.Tensor, targets: torch.Tensor) -> float:
        """Mean over positions of the norm of (L(q + e) - L(q - e)) / 2e, L summed over targets."""

        class Traced(Editor):
            def wants_any(self, names: object) -> bool:
                return True

        def loss(position: int, component: int, by: float) -> float:
            def nudge(q: torch.Tensor) -> torch.Tensor:
                q = q.clone()
                q[0, 0, position, component] += by
                return q

            tap = Traced({"blocks.0.attn.q": nudge})
            with torch.no_grad():
                return next_token_loss(model(inputs, tap=tap), targets, model.mask).item() * targets.numel()

        e = 1e-5
        slopes = [[(loss(p, c, e) - loss(p, c, -e)) / (2 * e) for c in range(3)] for p in range(inputs.shape[1])]
        return float(np.mean(np.linalg.norm(slopes, axis=1)))

    def test_batches_change_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        config = ModelConfig.parse(MODEL | {"num_kv_heads": 1})
        model = Transformer(config, 13, seed=3).double()
        ids = tokens(5, 13)
        whole = saturation.state_of(model, ids[:, :-1], ids[:, 1:])
        monkeypatch.setattr(saturation, "BATCH_NUMBERS", 2 * 3 * 49)
        pieces = saturation.state_of(model, ids[:, :-1], ids[:, 1:])
        assert pieces["loss"] == pytest.approx(whole["loss"])
        for one, other in zip(pieces["layers"], whole["layers"], strict=True):
            assert {name: pytest.approx(values) for name, values in one.items()} == other

    def test_no_gradient_is_left_in_the_model(self) -> None:
        model = Transformer(ModelConfig.parse(MODEL), 13, seed=3)
        ids = tokens(2, 13)
        saturation.state_of(model, ids[:, :-1], ids[:, 1:])
        assert all(parameter.grad is None for parameter in model.parameters())

    def test_a_model_without_attention_is_refused(self) -> None:
        model = Transformer(ModelConfig.parse(MODEL | {"attention": "none"}), 13)
        ids = tokens(2, 13)
        with pytest.raises(UsageError, match="no position attends"):
            saturation.state_of(model, ids[:, :-1], ids[:, 1:])

    def test_windows_are_whole_and_within_a_stretch(self) -> None:
        part = Split(np.arange(100, dtype=np.uint8), np.array([[0, 9], [9, 60], [60, 100]]))
        inputs, targets = saturation.whole_windows(part, 7, 5)
        assert inputs.shape == (5, 7)
        assert torch.equal(inputs + 1, targets)
        borders = torch.tensor([8, 59])
        assert not torch.isin(inputs, borders).any()
        with pytest.raises(UsageError, match="of the test part, a window of context_length = 53 needs 54"):
            saturation.whole_windows(part, 53, 5)

    def test_gradient_norms_by_hand(self) -> None:
        events = [{"step": at, "gradient_norm": norm} for at, norm in enumerate((3.0, 1.0, 8.0, math.inf, 2.0), 1)]
        assert saturation.gradient_norms(events, 1) == {"mean": 3.5, "median": 2.5, "largest": 8.0, "num": 4}
        assert saturation.gradient_norms([], 1)["mean"] is None

    def test_gradient_norms_are_the_same_however_often_a_run_was_interrupted(self) -> None:
        whole = [{"step": step, "gradient_norm": float(step)} for step in (5, 10, 13)]
        extra = [{"step": step, "gradient_norm": 100.0} for step in (1, 7)]
        assert saturation.gradient_norms(whole + extra, 5) == saturation.gradient_norms(whole, 5)
        assert saturation.gradient_norms(whole, 5)["num"] == 3

    def test_a_model_without_blocks_is_refused(self) -> None:
        model = Transformer(ModelConfig.parse(MODEL | {"num_layers": 0}), 13)
        ids = tokens(2, 13)
        with pytest.raises(UsageError, match="without blocks"):
            saturation.state_of(model, ids[:, :-1], ids[:, 1:])


@pytest.fixture(scope="module")
def dataset(tiny: RunConfig) -> Dataset:
    return prepare(tiny.corpus)


@pytest.fixture(scope="module")
def measured(
    tiny: RunConfig, dataset: Dataset, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, dict[int, Plain]]:
    """Two arms, really trained for a moment from one seed and measured."""
    found: dict[str, dict[int, Plain]] = {}
    for scale in ("sqrt", "learned-per-head"):
        plain = tiny.plain()
        plain["model"]["attention"] = {"scale": scale}
        folder = train(RunConfig.parse(plain | {"seed": 5}), tmp_path_factory.mktemp("runs") / scale, dataset=dataset)
        run = Trained(scale, 5, load_run(folder.path, "last"), dataset, "quick")
        found[scale] = {5: json.loads(json.dumps(saturation.measure(run), allow_nan=False))}
    return found


class TestRunProbe:
    def test_fresh_is_the_model_before_its_first_step(
        self, measured: Mapping[str, Mapping[int, Plain]], tiny: RunConfig, dataset: Dataset
    ) -> None:
        model = Transformer(tiny.model, dataset.tokenizer.vocab_size, seed=5).eval()
        pairs = saturation.whole_windows(dataset.splits["test"], 11, saturation.WINDOWS["quick"])
        assert measured["sqrt"][5]["fresh"] == saturation.state_of(model, *pairs)
        assert measured["sqrt"][5]["trained"]["loss"] < measured["sqrt"][5]["fresh"]["loss"]

    def test_learned_scales_begin_at_one(self, measured: Mapping[str, Mapping[int, Plain]]) -> None:
        one = measured["learned-per-head"][5]
        assert one["fresh"]["layers"][0]["factors"] == pytest.approx([1, 1])
        assert one["trained"]["layers"][0]["factors"] != pytest.approx([1, 1])
        assert one["gradient_norms"]["num"] == 6

    @pytest.mark.parametrize("training", [{"allow_leak": True}, {"objective": "masked"}])
    def test_a_run_that_does_not_tell_next_tokens_is_refused(self, training: Plain) -> None:
        config = {"training": {"allow_leak": False} | training}
        run = Trained("other", 5, SimpleNamespace(config=config), None, "quick")  # pyright: ignore[reportArgumentType]
        with pytest.raises(UsageError, match="other is not trained to tell the next token"):
            saturation.measure(run)


def multiplied(run: Plain, by: Mapping[str, float]) -> Plain:
    """A run's measures with quantities of the trained state multiplied."""
    copy = json.loads(json.dumps(run))
    for layer in copy["trained"]["layers"]:
        for name, factor in by.items():
            layer[name] = [value * factor for value in layer[name]]
    return copy


class TestShown:
    @pytest.fixture
    def arms(self, tmp_path: Path) -> list[SimpleNamespace]:
        chosen = [arm for arm in SCALE.arms if arm.name in ("sqrt", "none", "learned-per-head", "d64", "d64-none")]
        base = RunConfig.parse({"model": {"context_length": 11, "d_model": 128, "num_heads": 4}})
        study = SCALE.model_copy(update={"arms": tuple(chosen)})
        runs = [SimpleNamespace(seed=seed, seconds=2.0 + seed, stopped=None, path=tmp_path) for seed in (1, 2, 3)]
        return [
            SimpleNamespace(
                arm=one.arm,
                config={key: value for key, value in one.config.plain().items() if key != "seed"},
                num_parameters=one.num_parameters,
                flops_per_token=6 * one.num_parameters,
                runs=runs,
                losses={1: 1.5, 2: 1.6, 3: 1.7},
            )
            for one in resolve(study, base, 31)
        ]

    @pytest.fixture
    def by_run(self, measured: Mapping[str, Mapping[int, Plain]]) -> dict[str, dict[int, Plain]]:
        """Three seeds of five arms with two layers; without a scale entropy is a third less, give or take."""
        one = json.loads(json.dumps(measured["learned-per-head"][5]))
        for state in ("fresh", "trained"):
            one[state]["layers"] = one[state]["layers"][:1] * 2
        bare: Plain = json.loads(json.dumps(one))
        for state in ("fresh", "trained"):
            for layer in bare[state]["layers"]:
                layer["factors"] = []
        less = {seed: 1 + seed / 1000 for seed in (1, 2, 3)}
        found: dict[str, dict[int, Plain]] = {
            "sqrt": {seed: multiplied(bare, {"entropy_share": less[seed]}) for seed in less},
            "none": {seed: multiplied(bare, {"entropy_share": 0.66 + seed / 500}) for seed in less},
            "learned-per-head": {
                seed: multiplied(one, {"entropy_share": 1 + (seed - 2) / 100, "factors": 1.2 + seed / 1000})
                for seed in less
            },
            "d64": dict.fromkeys(less, bare),
            "d64-none": {1: multiplied(bare, {"entropy_share": 1.2})},
        }
        return found

    def test_findings_follow_the_numbers(self, arms: list, by_run: dict[str, dict[int, Plain]]) -> None:
        exhibit = saturation.show(SimpleNamespace(arms=arms), by_run)  # pyright: ignore[reportArgumentType]
        found = {finding.arm: finding for finding in exhibit.findings if "against" in finding.text}
        assert found["none"].holds is True
        assert ": sharper: rows keep" in found["none"].text
        assert found["learned-per-head"].holds is False
        assert "no difference in entropy seen at this budget" in found["learned-per-head"].text
        assert found["d64-none"].holds is None
        assert "1/√d_k, d_k 64" in found["d64-none"].text
        learned = exhibit.findings[-1]
        assert learned.arm == "learned-per-head"
        assert learned.holds is True
        assert learned.text.endswith("after Holm's correction): above where they began.")

    def test_learned_scales_are_judged_over_all_arms_from_enough_seeds(
        self, arms: list, by_run: dict[str, dict[int, Plain]]
    ) -> None:
        two = by_run | {"learned-per-head": {seed: by_run["learned-per-head"][seed] for seed in (1, 2)}}
        (few,) = saturation_found.learned_findings(arms, two)
        assert few.holds is None
        assert few.text.endswith("from 2 seeds: too few for a verdict.")
        # Ends 1.02, 1.05 and 1.04 times the start: p = 0.055 alone; 1.3, 1.4, 1.5: p = 0.020 alone, 0.041 of two.
        one = by_run["learned-per-head"][1]
        start = saturation_found.layers_mean("trained", "factors")(one) or 1.0

        def ended(*means: float) -> dict[int, Plain]:
            return {seed: multiplied(one, {"factors": mean / start}) for seed, mean in enumerate(means, 1)}

        both = saturation_found.learned_findings(
            arms, by_run | {"none": ended(1.02, 1.05, 1.04), "learned-per-head": ended(1.3, 1.4, 1.5)}
        )
        assert {finding.arm: finding.holds for finding in both} == {"none": False, "learned-per-head": True}
        three = saturation_found.learned_findings(
            arms,
            by_run
            | {"none": ended(1.3, 1.4, 1.5), "learned-per-head": ended(1.3, 1.4, 1.5), "d64": ended(1.3, 1.4, 1.5)},
        )
        assert [finding.holds for finding in three] == [False] * 3
        assert all("not seen to differ from where they began" in finding.text for finding in three)

    def test_holm_is_over_the_arms_of_a_quantity(self, arms: list, by_run: dict[str, dict[int, Plain]]) -> None:
        pairs = {pair.arm.arm.name: pair for pair in saturation_found.compared_pairs(arms, by_run)}
        assert {name: pair.usual.arm.name for name, pair in pairs.items()} == {
            "none": "sqrt",
            "learned-per-head": "sqrt",
            "d64-none": "d64",
        }
        difference = pairs["none"].differences["entropy share"]
        assert difference is not None
        assert difference.p_value is not None
        assert pairs["none"].adjusted["entropy share"] == pytest.approx(2 * difference.p_value)
        assert pairs["d64-none"].adjusted["entropy share"] is None

    def test_figures_and_tables(self, arms: list, by_run: dict[str, dict[int, Plain]]) -> None:
        sections = saturation.show(SimpleNamespace(arms=arms), by_run).sections  # pyright: ignore[reportArgumentType]
        names = [section.name for section in sections if isinstance(section, Plot)]
        assert names == ["trained-entropy", "gradient-norms", "learned-scales"]
        cost = next(
            section for section in sections if isinstance(section, Table) and "What d_k cost" in section.caption
        )
        assert [row[:3] for row in cost.rows] == [("32", "4", "128"), ("64", "2", "128")]
        assert cost.rows[0][3] == cost.rows[1][3]
        assert cost.rows[0][5:] == ("4.0", "1.600")

    def test_nothing_finished(self, arms: list) -> None:
        exhibit = saturation.show(SimpleNamespace(arms=arms), {})  # pyright: ignore[reportArgumentType]
        assert exhibit == Exhibit()

    def test_one_width_of_a_head_has_no_table_of_what_widths_cost(
        self, arms: list, by_run: dict[str, dict[int, Plain]]
    ) -> None:
        some = [arm for arm in arms if not arm.arm.name.startswith("d64")]
        sections = saturation.show(SimpleNamespace(arms=some), by_run).sections  # pyright: ignore[reportArgumentType]
        assert not any("What d_k costs" in getattr(section, "text", "") for section in sections)
        assert not any("What d_k cost" in section.caption for section in sections if isinstance(section, Table))

    def test_gradient_norms_have_their_unit(self, arms: list, by_run: dict[str, dict[int, Plain]]) -> None:
        sections = saturation.show(SimpleNamespace(arms=arms), by_run).sections  # pyright: ignore[reportArgumentType]
        plot = next(section for section in sections if isinstance(section, Plot) and section.name == "gradient-norms")
        assert "nats per unit of parameter" in plot.figure.axes[0].get_xlabel()

    def test_saturated_share_growing_with_d_k(self, arms: list, by_run: dict[str, dict[int, Plain]]) -> None:
        def with_share(share: float, spread: float = 0.001) -> dict[int, Plain]:
            runs = {seed: json.loads(json.dumps(by_run["none"][seed])) for seed in (1, 2, 3)}
            for seed, run in runs.items():
                for layer in run["trained"]["layers"]:
                    layer["saturated"] = [share + seed * spread] * 2
            return runs

        grown = by_run | {"none": with_share(0.1), "d64-none": with_share(0.3)}
        (finding,) = saturation_found.growth_findings(arms, grown)
        assert finding.holds is True
        assert "the share of saturated rows grows from d_k 32 to 64: 10.20% at d_k 32, 30.20% at" in finding.text
        unsure = by_run | {"none": with_share(0.1), "d64-none": with_share(0.1, spread=0.04)}
        (finding,) = saturation_found.growth_findings(arms, unsure)
        assert finding.holds is False
        assert "no difference in the share of saturated rows seen from d_k 32 to 64 at this budget" in finding.text
        assert "grows" not in finding.text
        shrunk = by_run | {"none": with_share(0.3), "d64-none": with_share(0.1)}
        (finding,) = saturation_found.growth_findings(arms, shrunk)
        assert finding.holds is False
        assert "the share of saturated rows shrinks from d_k 32 to 64" in finding.text
        two = {name: {seed: runs[seed] for seed in list(runs)[:2]} for name, runs in grown.items()}
        (finding,) = saturation_found.growth_findings(arms, two)
        assert finding.holds is None
        assert "grows" not in finding.text
