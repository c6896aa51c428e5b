"""A study's results as data for programs, in English: `results.json`, and the rows of its CSV files."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vitral.data import without_folders
from vitral.studies.claims import Check, Claim, Judged
from vitral.studies.losses import baseline_arm
from vitral.studies.results import ArmResult, RunResult, StudyResult

SCHEMA = 1
LOSSES = "losses"
"""Family of the claims about losses; each probe's family has the probe's name."""


def claim_row(claim: Claim) -> dict[str, Any]:
    """A comparison as one row: estimates, interval, p value, word.

    An arm that fails has counts instead, of its seeds and its rival's; its p value, Fisher's, has a key of its own.
    """
    share = _share(claim)
    failures = claim.failures
    return {
        "subject": claim.comparison.subject,
        "against": claim.comparison.against,
        "quantity": claim.comparison.quantity.label,
        "seeds": claim.seeds if failures is None else failures.seeds,
        "difference": _finite(claim.difference),
        "low": claim.low,
        "high": claim.high,
        "p": claim.p if failures is None else None,
        "family": claim.family,
        "verdict": claim.verdict if failures is not None or not claim.why else None,
        "why": claim.why or None,
        "arm": claim.comparison.arm or None,
        "rival": claim.comparison.rival or None,
        "percent": share(claim.difference),
        "percent_low": share(claim.low),
        "percent_high": share(claim.high),
        "margin": claim.margin,
        "detectable": claim.detectable,
        "failed": None if failures is None else failures.failed,
        "rival_failed": None if failures is None else failures.others_failed,
        "rival_seeds": None if failures is None else failures.others,
        "fisher_p": None if failures is None else claim.p,
    }


def _share(claim: Claim):
    reference = claim.reference

    def percent(value: float | None) -> float | None:
        known = value is not None and math.isfinite(value) and math.isfinite(reference) and reference
        return 100 * value / reference if known and value is not None else None

    return percent


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def results(
    result: StudyResult, families: Mapping[str, Sequence[Judged]], headline: Sequence[Judged]
) -> dict[str, Any]:
    """The whole study as plain data: design, arms with their runs, tuning, claims, baselines.

    Args:
        result: the measured study, with English titles.
        families: what was judged: under "losses" and under the name of each probe.
        headline: the claims for a hurried reader.
    """
    study = result.study
    return {
        "schema": SCHEMA,
        "name": study.name,
        "title": study.title,
        "question": study.question,
        "headline": " ".join(one.text for one in headline),
        "design": study.plain(),
        "budget": result.budget,
        "unit": study.unit,
        "margin": study.margin,
        "seeds": list(result.seeds),
        "first_seeds": list(result.first_seeds),
        "baselines": {
            "orders": {str(order): loss for order, loss in sorted(result.baselines.orders.items())},
            "test_bigram_entropy": result.baselines.test_bigram_entropy,
        },
        "arms": [_arm(result, arm) for arm in result.arms],
        "tuning": [tuned.plain() for tuned in result.tuning],
        "longer": {name: [_run(result.arm(name), run) for run in runs] for name, runs in result.longer.items()},
        "claims": [
            {"of": name} | claim_row(one)
            for name, judged in families.items()
            for one in judged
            if isinstance(one, Claim)
        ],
        "checks": [
            {"of": name} | _check(one) for name, judged in families.items() for one in judged if isinstance(one, Check)
        ],
        "text": without_folders(result.corpus),
        "environment": dict(result.environment),
    }


def _arm(result: StudyResult, arm: ArmResult) -> dict[str, Any]:
    is_base = arm is result.arms[0]
    return {
        "name": arm.arm.name,
        "title": arm.arm.title,
        "against": None if is_base else baseline_arm(result, arm).arm.name,
        "is_compared": arm.arm.compared and not is_base,
        "is_contrast": arm.arm.compared and arm.arm.contrast and not is_base,
        "parameters": arm.num_parameters,
        "flops_per_token": arm.flops_per_token,
        "flops": arm.flops,
        "tokens": arm.num_tokens,
        "configuration": dict(arm.config),
        "runs": [_run(arm, run) for run in arm.runs],
    }


def _run(arm: ArmResult, run: RunResult) -> dict[str, Any]:
    loss = _finite(run.test_loss)
    return {
        "seed": run.seed,
        "train_loss": _finite(run.train_loss),
        "validation_loss": _finite(run.validation_loss),
        "test_loss": loss,
        "compared_loss": None if loss is None else loss * arm.factor,
        "seconds": run.seconds,
        "stopped": run.stopped,
        "curve": [[step, _finite(one)] for step, one in run.curve],
        "training_curve": [[step, _finite(one)] for step, one in run.training_curve],
    }


def _check(check: Check) -> dict[str, Any]:
    low, high = check.interval or (None, None)
    return {
        "subject": check.subject,
        "quantity": check.what,
        "value": _finite(check.value),
        "low": low,
        "high": high,
        "expected_low": check.low,
        "expected_high": check.high,
        "unit": check.unit,
        "verdict": check.verdict,
        "arm": check.arm or None,
    }
