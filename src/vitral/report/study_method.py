"""How a study was run, and samples of what its arms write."""

import json
from collections.abc import Mapping
from typing import Any

import tomli_w

from vitral.core.language import N_, _, number
from vitral.core.text import NONE
from vitral.data import without_folders
from vitral.decoding import Sampling, generate
from vitral.report.sections import Columns, Details, Heading, Paragraph, Preformatted, Section, Table
from vitral.report.study_tables import runs_table
from vitral.runs import RunFolder
from vitral.runs.folder import CONFIG
from vitral.studies.resolution import is_causal_lm
from vitral.studies.results import ArmResult, StudyResult, load_last

PAIRED = N_(
    "Every arm was trained once from each seed. Arms of one seed saw the same batches in the same order, and began "
    "from the same initial numbers wherever their shapes agree, so arms are compared seed by seed."
)
PAIRED_TEXTS = N_(
    "Every arm was trained once from each seed. Arms of one seed saw the same batches in the same order where their "
    "texts and tokens are the same, and began from the same initial numbers wherever their shapes agree, so arms are "
    "compared seed by seed."
)
METHOD = N_(
    "Losses are of the test split at the last step; no result was selected. Contrasts of losses are one family, "
    "judged on the log scale: each arm has its own variance, each contrast its own degrees of freedom, and one "
    "simulated level gives both the p values and the intervals, so that an interval excludes zero exactly where p <"
    " 0.05. Arms are equivalent where the whole interval lies within the margin of {margin}% of the loss. An arm "
    "fails from a seed where its loss is not finite, or not below the bigram baseline although it sees more than "
    "one token; failures are counted and tested by Fisher's exact test, with Bonferroni's correction for all contrasts "
    "of losses that the study has. Each probe is a further family, "
    "exploratory: paired t tests with Bonferroni's correction. Intervals of single means are 95% Student t "
    "intervals."
)
TUNED = N_(
    "The arms in contrasts of losses were tuned: each value was tried in one run, from a seed that is not among the"
    " results, and the one of least validation loss is the arm's. Everything else is as in the base, unless an arm "
    "says so."
)
UNTUNED = N_("No arm was tuned: all arms use the hyperparameters of the base; an arm that changes one says so.")
UNTUNED_HERE = N_(
    "Nothing was tuned at this budget ({budget}), whatever the design says of tuning: all arms use the hyperparameters "
    "of the base; an arm that changes one says so."
)
CHARACTERS, TEMPERATURE, SAMPLE_SEED, MOST_SAMPLES = 300, 0.8, 1, 16
"""Of the samples; of more than MOST_SAMPLES arms only the compared ones have one."""


def arm_samples(result: StudyResult) -> dict[str, str]:
    """By arm, the text its first finished run writes after its last step, at temperature 0.8, 300 characters.

    Arms that finished from no seed and models that cannot continue a text have none; of more than MOST_SAMPLES arms
    only the compared ones have one.
    """
    chosen = result.arms if len(result.arms) <= MOST_SAMPLES else [arm for arm in result.arms if arm.arm.compared]
    texts = {arm.arm.name: _sample(arm) for arm in chosen}
    return {name: text for name, text in texts.items() if text is not None}


def _sample(arm: ArmResult) -> str | None:
    finished = [run for run in arm.runs if run.seed in arm.losses]
    if not finished or not is_causal_lm(arm.config):
        return None
    run, sampling = load_last(finished[0], arm), Sampling(temperature=TEMPERATURE)
    # Every non-empty token decodes to at least one character, so CHARACTERS tokens suffice.
    sample = generate(run.model, run.tokenizer, [""], max_tokens=CHARACTERS, sampling=sampling, seed=SAMPLE_SEED)[0]
    return sample.text[:CHARACTERS]


def samples_section(result: StudyResult) -> list[Section]:
    """What each arm writes, side by side; nothing where no arm can."""
    texts = arm_samples(result)
    if not texts:
        return []
    titles = {arm.arm.name: arm.arm.title for arm in result.arms}
    how = _(
        "{characters} characters from each arm's first finished seed after its last step, from an empty prompt at "
        "temperature {temperature:g}, sampling seed {seed}; the first sample, not cherry-picked.",
        characters=CHARACTERS,
        temperature=TEMPERATURE,
        seed=SAMPLE_SEED,
    )
    columns = Columns(tuple(Preformatted(text, titles[name]) for name, text in texts.items()))
    return [Heading(_("Samples")), Paragraph(how), columns]


def how_it_was_run(result: StudyResult, command: str) -> list[Section]:
    """Method, seeds, text, configurations and machine."""
    seeds = ", ".join(map(str, result.seeds))
    given = {"seeds": seeds, "text": _text(result)}
    ran = _("Seeds: {seeds}. Text: {text}.", **given)
    if result.budget:
        ran = _("Seeds: {seeds}. Budget: {budget}. Text: {text}.", **given, budget=result.budget)
    changes = tuple((arm.arm.title, _changes(arm)) for arm in result.arms)
    corpus = without_folders({key: value for key, value in result.corpus.items() if key != "ngrams"})
    sections: list[Section] = [Heading(_("How it was run")), Paragraph(_method(result))]
    sections += [Preformatted(command, _("Command"))] if command else []
    return [
        *sections,
        Paragraph(ran),
        *_other_texts(result),
        Table(_("What each arm changes in the configuration."), (_("arm"), _("changes")), changes, prose=(1,)),
        Details(_("Every run"), (runs_table(result),)),
        Details(
            _("Configuration of the base"), (Preformatted(tomli_w.dumps(dict(result.arms[0].config)), "config.toml"),)
        ),
        Details(_("Text"), (Preformatted(_json(corpus), "corpus.json"),)),
        Details(_("Machine and versions"), (Preformatted(_json(result.environment), "environment.json"),)),
    ]


def _method(result: StudyResult) -> str:
    paired = PAIRED_TEXTS if result.study.varies_text else PAIRED
    method = _(METHOD, margin=number(100 * result.study.margin, ".3g"))
    return " ".join([_(paired), _tuned(result), method])


def _tuned(result: StudyResult) -> str:
    """Whether arms were tuned; plainly said where only a larger budget tunes, since the design tells of it."""
    if result.tuning:
        return _(TUNED)
    budget = result.study.budgets.get(result.budget) if result.budget else None
    if budget is not None and not budget.tuned:
        return _(UNTUNED_HERE, budget=result.budget)
    return _(UNTUNED)


def _other_texts(result: StudyResult) -> list[Section]:
    """The keys that arms with another text or other tokens record."""
    rows = []
    for arm in result.arms:
        if arm.config["corpus"] == result.base["corpus"]:
            continue
        folders = [RunFolder.open(run.path) for run in arm.runs if (run.path / CONFIG).is_file()]
        if not folders:  # it begins from an arm that has no result
            continue
        text = without_folders(folders[0].document("corpus"))
        trained_on = json.dumps(text["trained_on"], ensure_ascii=False) if "trained_on" in text else NONE
        sizes = number(text["split"]["tokens"]["train"], ","), number(text["vocab_size"], ",")
        rows.append((arm.arm.title, text["tokenizer"], *sizes, trained_on, text["sha256"]))
    columns = (_("arm"), _("tokenizer"), _("training tokens"), _("vocabulary"), _("trained on"))
    caption = _("Arms that have another text than the base, or other tokens.")
    told = Table(caption, (*columns, _("SHA-256 of the text")), tuple(rows), prose=(1, 4, 5))
    return [Details(_("Texts of the arms"), (told,))] if rows else []


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(dict(document), indent=2, ensure_ascii=False)


def _text(result: StudyResult) -> str:
    """Which text, as exactly as its record says."""
    source = result.corpus.get("source", result.base["corpus"]["source"])
    return f"{source}, SHA-256 {result.corpus.get('sha256', NONE)}"


def _changes(arm: ArmResult) -> str:
    """An arm's changes as assignments: `model.attention = "none"`."""
    parts = [f"{path} = {json.dumps(value)}" for path, value in _leaves(arm.arm.changes)]
    if arm.arm.match == "parameters":
        model = arm.config["model"]
        key = "d_model" if model["feed_forward"] == "none" else "d_ff"
        text = _("model.{key} = {width} (chosen for as many parameters as the base)", key=key, width=model[key])
        parts.append(text)
    elif arm.arm.match == "flops":
        steps = arm.config["training"]["steps"]
        parts.append(_("training.steps = {steps} (chosen for as many FLOPs as the base)", steps=steps))
    return "; ".join(parts) or _("nothing: the base")


def _leaves(table: dict, path: str = "") -> list[tuple[str, object]]:
    leaves: list[tuple[str, object]] = []
    for key, value in table.items():
        leaves += _leaves(value, f"{path}{key}.") if isinstance(value, dict) else [(f"{path}{key}", value)]
    return leaves
