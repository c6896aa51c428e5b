"""Slips: each is named from its numbers, one that nothing explains is not, and two that look alike are both named."""

import contextlib
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from vitral.explanation import CheckReport, Verdict, check, parse_example, phrases
from vitral.explanation.checks.edits import RULES, edits
from vitral.explanation.checks.report import ReportText
from vitral.explanation.checks.slips import COMMONNESS, misprints
from vitral.explanation.expressions import compute, parse

DIGITS = 3


def matrix(*rows: tuple[float, ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


X = matrix((1.0, 0.5, -0.3, 0.8), (0.2, 1.1, 0.7, -0.4), (-0.6, 0.9, 0.4, 1.3))
W_Q = matrix((0.5, -0.2, 0.3, 0.9), (1.1, 0.4, -0.5, 0.1), (0.2, 0.8, 0.6, -0.7), (-0.3, 0.7, 0.2, 0.4))
W_K = matrix((0.3, 0.6, -0.4, 0.2), (-0.5, 0.9, 0.7, 0.8), (0.1, -0.2, 0.5, 0.3), (0.8, 0.4, -0.1, -0.6))
W_V = matrix((1.2, 0.3, 0.4, -0.5), (0.1, -0.7, 0.9, 0.6), (0.5, 0.2, -0.3, 1.4), (-0.8, 1.0, 0.6, 0.7))
W_O = matrix((0.7, -0.1, 0.2, 0.5), (0.4, 0.6, -0.9, 0.3), (-0.2, 0.8, 1.1, 0.1), (0.9, 0.3, -0.4, 0.6))
GIVEN = {"x": X, "w_q": W_Q, "w_k": W_K, "w_v": W_V, "w_o": W_O}
CAUSAL = torch.ones(3, 3, dtype=torch.bool).tril()


def heads(values: Tensor) -> Tensor:
    """[2, time, 2] of [time, 4], or [2, 4, 2] of a matrix."""
    return values.reshape(len(values), 2, 2).transpose(0, 1)


def worked(**slip: Any) -> dict[str, Tensor]:
    """Causal attention with two heads, by formulas of its own; `slip` replaces one of them."""

    def replaced(name: str, usual: Any) -> Any:
        return slip.get(name, usual)

    made: dict[str, Tensor] = {}
    made["q"], made["k"], made["v"] = (
        heads(X @ replaced(f"w_{n}", w)) for n, w in zip("qkv", (W_Q, W_K, W_V), strict=True)
    )
    keys, values = (made[str(replaced(name, name))] for name in "kv")
    made["scores"] = made["q"] @ keys.mT
    made["scaled"] = made["scores"] * float(str(replaced("factor", 2**-0.5)))
    allowed, fill = replaced("allowed", CAUSAL), float(str(replaced("fill", -torch.inf)))
    made["masked"] = torch.where(allowed, made["scaled"], fill)
    made["weights"] = replaced("softmax", lambda masked: masked.softmax(-1))(made["masked"])
    made["z"] = made["weights"] @ values
    together = replaced("merge", lambda z: z.transpose(0, 1).flatten(1))(made["z"])
    made["output"] = together @ replaced("w_o", W_O)
    return made


def told(values: Tensor) -> str:
    return _nested(values.tolist())


def _nested(values: object) -> str:
    if isinstance(values, list):
        return f"[{', '.join(map(_nested, values))}]"
    return '"-inf"' if values == float("-inf") else f"{values:.{DIGITS}f}"


def sheet(claims: Mapping[str, Tensor], top: str = 'mask = "causal"\nscale = "sqrt"\nheads = 2') -> CheckReport:
    given = {name: value if name in ("x", "w_o") else heads(value) for name, value in GIVEN.items()}
    lines = [top, f"decimals = {DIGITS}", "[given]", *(f"{name} = {told(value)}" for name, value in given.items())]
    lines += ["[claimed]", *(f"{name} = {told(value)}" for name, value in claims.items())]
    return check(parse_example("\n".join(lines)))


SLIPS: dict[str, tuple[str, dict[str, Any]]] = {
    "scale-missing": ("scaled", {"factor": 1.0}),
    "scale-other": ("scaled", {"factor": 1 / 4}),
    "mask-missing": ("masked", {"allowed": torch.ones(3, 3, dtype=torch.bool)}),
    "mask-other": ("masked", {"allowed": CAUSAL.mT}),
    "zero-for-infinity": ("masked", {"fill": 0.0}),
    "wrong-axis": ("weights", {"softmax": lambda masked: masked.softmax(-2)}),
    "not-divided": ("weights", {"softmax": torch.exp}),
    "base-other": ("weights", {"softmax": lambda m: 2**m / (2**m).sum(-1, keepdim=True)}),
    "operand-other": ("z", {"v": "k"}),
    "transposed": ("output", {"w_o": W_O.T}),
    "projection-missing": ("output", {"w_o": torch.eye(4, dtype=torch.float64)}),
    "heads-order": ("output", {"merge": lambda z: z.flip(0).transpose(0, 1).flatten(1)}),
    "heads-single": ("output", {"merge": lambda z: z[:1].repeat(2, 1, 1).transpose(0, 1).flatten(1)}),
    "heads-averaged": ("output", {"merge": lambda z: z.mean(0).repeat(1, 2)}),
}


@pytest.mark.parametrize("kind", SLIPS)
@pytest.mark.parametrize("only_output", [False, True], ids=["all steps", "only the output"])
def test_a_slip_is_named(kind: str, *, only_output: bool) -> None:
    step, slip = SLIPS[kind]
    claims = worked(**slip)
    report = sheet({"output": claims["output"]} if only_output else claims)
    first = report.first_wrong
    assert first is not None
    assert first.slip is not None
    assert {"out": "output"}.get(first.name, first.name) == ("output" if only_output else step)
    assert kind in {first.slip.kind, first.slip.other.kind if first.slip.other else ""}
    if first.slip.other is None:
        assert {"out": "output"}.get(first.slip.step, first.slip.step) == step
    if not only_output:  # everything after the slip follows
        assert {
            found.name for one in report.quantities for found in one.findings if found.verdict is Verdict.wrong
        } == {first.name}


def test_without_a_slip_there_is_no_guess() -> None:
    assert sheet(worked()).first_wrong is None


@pytest.mark.parametrize("seed", range(8))
def test_numbers_that_nothing_explains_are_not_named(seed: int) -> None:
    claims = worked()
    noise = torch.Generator().manual_seed(seed)
    claims["weights"] = torch.rand(2, 3, 3, dtype=torch.float64, generator=noise).tril()
    first = sheet({"weights": claims["weights"]}).first_wrong
    assert first is not None
    assert first.slip is None


# Published sheets with their faults, in numbers of our own.

BEGIN = 'mask = "bidirectional"\nscale = "{scale}"\ndecimals = 2\n[given]\n{given}\n[claimed]\n{claimed}\n'


def named(scale: str, given: str, claimed: str) -> list[tuple[str, dict]]:
    """The slips of the first wrong cell: one, or two candidates."""
    first = check(parse_example(BEGIN.format(scale=scale, given=given, claimed=claimed))).first_wrong
    assert first is not None
    slips = [first.slip, first.slip.other if first.slip else None]
    return [(slip.kind, dict(slip.values)) for slip in slips if slip is not None]


def test_scores_divided_by_their_sum() -> None:
    """2 / (2 + 5 + 1) = 0.25."""
    [(kind, _)] = named("none", "scores = [[2, 5, 1], [3, 3, 4]]", "weights = [[0.25, 0.62, 0.12], [0.3, 0.3, 0.4]]")
    assert kind == "not-exponential"


def test_queries_times_queries_of_the_tokens() -> None:
    """X Xᵀ in place of Q Kᵀ."""
    given = "x = [[1, 2], [3, 1]]\nw_q = [[2, 1], [1, 3]]\nw_k = [[1, 2], [1, 1]]\nw_v = [[1, 0], [0, 1]]"
    names = named("none", given, "scores = [[5, 5], [5, 10]]")
    assert ("operand-other", {"expected": "q", "used": "x"}) in names


def test_a_value_copied_wrongly() -> None:
    """v₂ = (1, 5) is read as (1, 2), the number above it: 0.3·2 + 0.7·2 = 2."""
    given = "weights = [[0.3, 0.7], [0.6, 0.4], [0.5, 0.5]]\nv = [[4.1, 2.3], [1.2, 5.7]]"
    claimed = "output = [[2.07, 2.3], [2.94, 2.3], [2.65, 2.3]]"
    assert ("copied-wrong", {"table": "v", "index": (0, 1, 1), "used": 2.3}) in named("none", given, claimed)


def test_the_word_that_is_only_second() -> None:
    text = 'vocabulary = ["a", "b", "c"]\n[given]\nprobabilities = [0.5, 0.3, 0.2]\n[claimed]\ngreedy = "b"\n'
    first = check(parse_example(text)).first_wrong
    assert first is not None
    assert first.slip is not None
    assert first.slip.kind == "second-best"


# Words.


def test_two_candidates_are_both_told() -> None:
    """With two tokens, no mask and one that shows each position one more are the same numbers."""
    text = 'mask = "causal"\nscale = "none"\ndecimals = 2\n[given]\nscores = [[1, 2], [3, 1]]\n[claimed]\n'
    report = check(parse_example(text + "masked = [[1, 2], [3, 1]]"))
    first = report.first_wrong
    assert first is not None
    assert first.slip is not None
    assert first.slip.other is not None
    for language in ("en", "pt"):
        say = phrases(language)
        both = ReportText(report, say).guess(first)
        for slip in (first.slip, first.slip.other):
            how = f"_{slip.values['how']}" if "how" in slip.values else ""
            assert say(f"slips.{slip.kind}{how}") in both
    data = report.plain()["findings"][0]
    assert (data["slip"], data["slip_or"], data["slip_sure"]) == (first.slip.kind, first.slip.other.kind, False)


def test_a_norm_without_its_mean_has_words_in_both_languages() -> None:
    text = """
        mask = "bidirectional"
        scale = 1.09861228866811
        block = "post"
        epsilon = 0.0
        decimals = 4
        [given]
        resid_pre = [[1, 0, 1, 0.5], [4, 2, -4, -3]]
        w_q = [[1], [0], [0], [1]]
        w_k = [[1], [0], [0], [1]]
        w_v = [[1], [1], [1], [0]]
        w_o = [[1, -1, 1, -1]]
        attn_norm_gain = [5, 5, 5, 5]
        w_up = [[1, 0], [0, 1], [0, 0], [0, 0]]
        b_up = [-1, 1]
        w_down = [[-1, 1, -1, 1], [1, 1, 1, 1]]
        mlp_norm_gain = [5, 5, 5, 5]
        mlp_norm_bias = [0, 0, 0, 1]
        [claimed]
        attn_sum=[[3.0, -2.0, 3.0, -1.5], [6.0, 0.0, -2.0, -5.0]]
        resid_mid = [[4.498, -2.9987, 4.498, -2.249], [8.996, 0.0, -2.9987, -7.4966]]
    """
    report = check(parse_example(text))
    first = report.first_wrong
    assert first is not None
    assert first.slip is not None
    for language in ("en", "pt"):
        say = phrases(language)
        assert say(f"slips.{first.slip.kind}_{first.slip.values['how']}") in ReportText(report, say).guess(first)


# Edits.


def test_edits_of_a_free_expression() -> None:
    values = {name: torch.rand(3, 3, dtype=torch.float64) for name in ("q", "k", "v")}
    tree = parse("relu(softmax(q @ k.T / sqrt(2)) @ v)")
    made = list(edits("y", tree, dict.fromkeys(values, (3, 3))))
    kinds = {edit.kind for edit in made}
    assert {"operand-other", "transposed", "constant-other", "activation-missing", "not-exponential"} <= kinds
    assert {"wrong-axis", "not-divided", "function-missing", "operation-inverse"} <= kinds
    assert kinds <= set(COMMONNESS)
    usual = compute(tree, values)
    changed = []
    for edit in made:
        with contextlib.suppress(RuntimeError):  # shapes that do not fit
            changed.append(compute(edit.tree, values))
    assert sum(one.shape == usual.shape and not torch.equal(one, usual) for one in changed) > 0.6 * len(made)


def test_every_rule_has_a_kind_and_a_phrase() -> None:
    say = phrases("en")
    for line in RULES.strip().splitlines():
        kind, *places = line.partition(": ")[0].split()
        how = "".join(f"_{each[4:]}" for each in places if each.startswith("how="))
        assert kind in COMMONNESS
        assert say(f"slips.{kind}{how}", matrix="", base="", factor="", used="", expected="")


@pytest.mark.parametrize(
    ("printed", "meant", "kind"),
    [
        (0.67, 0.76, "digits-swapped"),
        (-1.5, 1.5, "sign-lost"),
        (0.35, 3.5, "point-misplaced"),
        (1.24, 1.34, "digit-wrong"),
        (12.0, 2.0, "digit-wrong"),
    ],
)
def test_misprints(printed: float, meant: float, kind: str) -> None:
    assert any(found == kind and abs(number - meant) < 1e-9 for found, number in misprints(printed, 2))
