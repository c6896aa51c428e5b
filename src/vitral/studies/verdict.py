"""What the numbers of a study allow one to say, by rules that were fixed before there were numbers.

Each rule looks at the result and gives findings, every one a sentence with the numbers it rests on. No sentence is
written about a particular outcome in advance: other numbers give other sentences, or none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from vitral.evaluation import rank_among_baselines
from vitral.studies.comparison import Comparison, compare, rival_of
from vitral.studies.probes.protocol import is_causal_lm
from vitral.studies.results import ArmResult, StudyResult
from vitral.studies.wording import capital, nats, p_clause, signed, word_of

AT_THE_LINE = 0.05
"""Nats within which a loss counts as being at a line."""
BELOW_THE_FLOOR = 0.005
"""Nats below the floor that rounding and a last short window could explain."""
SMALL = 0.05
"""A difference below this many nats is small."""
ENOUGH_SEEDS = 3
LEVEL = 0.05
BIGRAM, TRIGRAM = 2, 3
RULES = ("standing", "floor", "difference", "stopped", "seeds")


@dataclass(frozen=True)
class Finding:
    """One sentence of the verdict.

    Attributes:
        rule: which rule gave it: "standing", "floor", "difference", "stopped", "seeds", or the name of a probe.
        arm: the arm it is about; empty for the study.
        text: what was found, with its numbers.
        holds: whether what theory says was seen (rule "floor"), or a difference was shown (rule "difference");
            None where the numbers do not allow to say.
        size: of a difference, in the study's unit.
    """

    rule: str
    arm: str
    text: str
    holds: bool | None = None
    size: float = 0.0


def verdict(result: StudyResult) -> tuple[Finding, ...]:
    """All that can be said, the most important first."""
    comparisons = compare(result)
    arms = list(zip(result.arms, comparisons, strict=True))
    findings = [_standing(result, *arms[0])]
    findings += _floors(result, [(arm, comparison) for arm, comparison in arms if _has_the_floor(result, arm)])
    findings += [
        _difference(result, arm, comparisons, index)
        for index, arm in enumerate(result.arms)
        if index and arm.arm.compared
    ]
    findings += [_stopped(arm) for arm in result.arms if any(run.stopped for run in arm.runs)]
    return (*findings, *_seeds(result))


def headline(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """What a hurried reader should see.

    The standing of the base; the first finding about the floor, or else the surest and then the largest difference that
    was shown; and the first that a probe could decide.
    """
    standings = [finding for finding in findings if finding.rule == "standing"]
    floors = [finding for finding in findings if finding.rule == "floor"]
    shown = [finding for finding in findings if finding.rule == "difference" and finding.holds]
    probed = [finding for finding in findings if finding.rule not in RULES and finding.holds is not None]
    largest = sorted(shown, key=lambda finding: -abs(finding.size))
    return (*standings[:1], *(floors or largest)[:1], *probed[:1])


def _standing(result: StudyResult, base: ArmResult, comparison: Comparison) -> Finding:
    title = capital(base.arm.title)
    if comparison.mean is None:
        return Finding("standing", base.arm.name, f"{title} finished from no seed, so nothing can be compared.")
    loss = comparison.mean.mean
    where = (
        f", {rank_among_baselines(loss / base.factor, result.lines)}"
        if is_causal_lm(base.config)
        else ", of another task"
    )
    return Finding("standing", base.arm.name, f"{title} ends at {nats(loss)} {result.study.unit}{where}.")


def _has_the_floor(result: StudyResult, arm: ArmResult) -> bool:
    """Whether the bigram entropy of the base's tokens is a floor under this arm's loss."""
    same_text = arm.config["corpus"] == result.arms[0].config["corpus"]
    return arm.sees_one_token and same_text and is_causal_lm(arm.config)


def _floors(result: StudyResult, arms: Sequence[tuple[ArmResult, Comparison]]) -> list[Finding]:
    """Where arms whose positions see one token stand against what one token can tell; the reason once.

    No function of the current token can have a mean loss on the test part below that part's own conditional entropy
    of the next token given the current one (Gibbs' inequality).
    """
    floor = nats(result.lines.test_bigram_entropy * result.arms[0].factor)
    findings = [_floor(result, arm, comparison.mean.mean) for arm, comparison in arms if comparison.mean is not None]
    for index, finding in enumerate(findings):
        if finding.holds:
            why = (
                f"{finding.text} A position there sees only its own token, so which token follows which is all that "
                f"can be learned; no size and no number of steps leads below {floor}, the test text's own bigram "
                "entropy."
            )
            findings[index] = replace(finding, text=why)
            break
    return findings


def _floor(result: StudyResult, arm: ArmResult, loss: float) -> Finding:
    floor, lowest = result.lines.test_bigram_entropy * result.arms[0].factor, min(arm.losses.values())
    line, ends = result.line(BIGRAM), f"{capital(arm.arm.title)}: {nats(loss)} {result.study.unit}"
    if lowest < floor - BELOW_THE_FLOOR:
        text = (
            f"{ends}, its lowest seed {nats(lowest)}: below {nats(floor)}, the test text's own bigram entropy, which "
            "nothing that sees only one token can pass. That contradicts theory, so something here lets a position see "
            "more than its own token, or the losses are of other targets; trust nothing of this study until that is "
            "found."
        )
        return Finding("floor", arm.arm.name, text, holds=False)
    if abs(loss - line) <= AT_THE_LINE:
        where = f"at the bigram line ({nats(line)}; {signed(loss - line)})"
    elif loss > line:
        where = f"{nats(loss - line)} above the bigram line ({nats(line)}), down to which more steps could bring it"
    else:
        where = f"{nats(line - loss)} below the counted bigram line ({nats(line)}), having smoothed rare pairs better"
    return Finding("floor", arm.arm.name, f"{ends}, {where}.", holds=True)


def _difference(result: StudyResult, arm: ArmResult, comparisons: tuple[Comparison, ...], index: int) -> Finding:
    """What the paired seeds say about an arm against its rival."""
    rival, title, comparison = rival_of(result, arm), capital(arm.arm.title), comparisons[index]

    def found(text: str, holds: bool | None = None, size: float = 0.0) -> Finding:
        return Finding("difference", arm.arm.name, f"{title}: {text}", holds, size)

    paired = comparison.paired
    if paired is None:
        return found(f"no seed was finished by both this arm and {rival.arm.title}, so there is no comparison.")
    between = paired.difference
    size = f"{signed(between.mean)} {word_of(result.study.unit)} against {rival.arm.title}"
    if between.low is None or between.high is None or comparison.adjusted_p is None:
        return found(f"{size}, from one seed: there is no interval, so no verdict.")
    ends = f"95% interval {signed(between.low)} to {signed(between.high)}{_of_seeds(between.num, result)}"
    if between.num < ENOUGH_SEEDS:
        return found(f"{size} ({ends}), from {between.num} seeds: too few for a verdict, {ENOUGH_SEEDS} are needed.")
    behind = unlearned(result, (rival, arm))
    if behind:
        return found(
            f"{size} ({ends}): no verdict, since {behind} has not passed the trigram line "
            f"({nats(result.line(TRIGRAM))}); train for longer."
        )
    p = p_clause(comparison.adjusted_p)
    tests = len([other for other in comparisons if other.adjusted_p is not None])
    corrected = f"{p} after Holm's correction over {tests} comparisons" if tests > 1 else p
    if comparison.adjusted_p >= LEVEL:
        return found(
            f"no difference seen at this budget: {size} ({ends}), {corrected}. The runs agree with any difference in "
            "that interval.",
            holds=False,
        )
    way = "worse" if between.mean > 0 else "better"
    return found(f"{way}, {size} ({ends}; {signed(paired.percent, 1)}%), {corrected}.", holds=True, size=between.mean)


def _of_seeds(finished: int, result: StudyResult) -> str:
    """A word about seeds that one of the two did not finish."""
    return "" if finished == len(result.seeds) else f" over the {finished} of {len(result.seeds)} seeds both finished"


def unlearned(result: StudyResult, arms: Sequence[ArmResult]) -> str:
    """The first of these arms whose mean is above the trigram line though it sees more than one token; or nothing.

    A model that sees one token cannot pass that line however long it trains, so its distance from it is no sign of
    too few steps.
    """
    line = result.line(TRIGRAM)
    for arm in arms:
        losses = list(arm.losses.values())
        if losses and not arm.sees_one_token and sum(losses) / len(losses) > line:
            return arm.arm.title
    return ""


def _stopped(arm: ArmResult) -> Finding:
    stopped = [run for run in arm.runs if run.stopped]
    seeds = ", ".join(str(run.seed) for run in stopped)
    text = f"{capital(arm.arm.title)} did not finish from seed {seeds}: {stopped[0].stopped}."
    return Finding("stopped", arm.arm.name, text)


def _seeds(result: StudyResult) -> list[Finding]:
    """What weakens the statistics."""
    findings = []
    if len(result.seeds) < ENOUGH_SEEDS:
        text = f"With {len(result.seeds)} of at least {ENOUGH_SEEDS} seeds, what differs between arms may be chance."
        findings.append(Finding("seeds", "", text))
    added = [str(seed) for seed in result.seeds if seed not in result.first_seeds]
    if added:
        text = (
            f"Added to a study that already had results: seed {', '.join(added)}; intervals and p values take no "
            "account of that choice, and are somewhat too sure if it was made because of them."
        )
        findings.append(Finding("seeds", "", text))
    return findings
