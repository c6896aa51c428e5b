"""The demonstration: everything in small on the bundled play, and one page that shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.api.configuring import configure
from vitral.api.corpora import Survey, survey_dataset, survey_sections
from vitral.api.counting import Count, count_model
from vitral.api.reporting import loss_sections, parameter_section
from vitral.api.run import Run
from vitral.core.config import assignment
from vitral.data import Dataset, load_corpus, prepare
from vitral.explain import Choice, View, Walkthrough, to_sections
from vitral.figures.html import page
from vitral.figures.maps import attention_maps
from vitral.figures.sections import Details, Figure, Heading, Paragraph, Section
from vitral.figures.style import save
from vitral.reports.study import study_sections
from vitral.runs import RunFolder, refuse_existing
from vitral.runs.files import replace_durably, storage
from vitral.studies import Study, StudyResult, loss_claims, run_study, study_named
from vitral.training import Callback, RunConfig

PRESET = "demo"
SENTENCE = "The light"
LAYER, HEAD = 0, 0


@dataclass(frozen=True)
class Demonstration:
    """What the demonstration will do, before it trains anything.

    Attributes:
        out: its folder.
        config: the model and how it is trained.
        dataset: the bundled play.
        survey: what is known of it.
        count: what the model costs.
        study: the model and the same without attention, over three seeds.
    """

    out: Path
    config: RunConfig
    dataset: Dataset
    survey: Survey
    count: Count
    study: Study

    def train(self, callback: Callback) -> StudyResult:
        """Train all arms."""
        return run_study(self.study, self.config, self.out / "study", callback=callback, dataset=self.dataset)

    def trained(self) -> Run:
        """The full model of the first seed."""
        return Run(self.out / "study" / "arms" / self.study.arms[0].name / f"seed-{self.study.seeds[0]}")


def plan_demonstration(out: Path, settings: Sequence[str] = ()) -> Demonstration:
    """Read the play and survey it; nothing is trained yet.

    Raises:
        UsageError: `out` exists, or a setting cannot be.
    """
    refuse_existing(out)
    config = configure(PRESET, overrides=[assignment(setting) for setting in settings])
    corpus = load_corpus(config.corpus)
    dataset = prepare(config.corpus, corpus=corpus)
    surveyed = survey_dataset(
        dataset, corpus.text, context_length=config.model.context_length, batch_size=config.training.batch_size
    )
    count = count_model(PRESET, corpus=None, vocabulary=dataset.tokenizer.vocab_size, settings=settings)
    whole = study_named("no-attention")
    return Demonstration(out, config, dataset, surveyed, count, whole.model_copy(update={"arms": whole.arms[:2]}))


def write_page(planned: Demonstration, result: StudyResult, walkthrough: Walkthrough) -> Path:
    """Write `report.html` into the demonstration's folder; gives its path.

    Raises:
        StorageError: the disk did not take it.
    """
    figures = planned.out / "figures"
    with storage(figures):
        figures.mkdir(parents=True, exist_ok=True)
    run = planned.trained()
    sections: list[Section] = [
        Heading("The text"),
        *survey_sections(planned.survey, figures),
        Heading("The model"),
        Paragraph(
            f"{planned.count.cost.parameters:,} parameters: {run.model.config.num_layers} blocks of attention with "
            f"{run.model.config.num_heads} heads and feed-forward around a residual stream of width "
            f"{run.model.config.d_model}; it sees {run.model.config.context_length} characters at once."
        ),
        Details("The parameter table", (parameter_section(planned.count.rows),)),
        Heading("Training"),
        *loss_sections(RunFolder.open(run.path), result.baselines),
        Heading("One attention computation in numbers"),
        *_attention(run, figures),
        *to_sections(walkthrough),
        Heading("The same model without attention"),
        *(_deeper(section) for section in study_sections(result, loss_claims(result))),
    ]
    target = planned.out / "report.html"
    lead = "A small language model, trained from nothing on the bundled play, taken apart."
    replace_durably(
        target, page("Vitral: a demonstration", sections, lead=lead, footer="Made by vitral demo.").encode()
    )
    return target


def walk(run: Run) -> Walkthrough:
    """The attention computation that the demonstration shows."""
    return run.explain(SENTENCE, View(layers=(LAYER,), choice=Choice(heads=(HEAD,))))


def _attention(run: Run, folder: Path) -> list[Section]:
    """Where each position of a sentence looks, in every head of the last block."""
    last = run.model.config.num_layers - 1
    weights = run.trace(SENTENCE, [f"blocks.{last}.attn.weights"])[f"blocks.{last}.attn.weights"][0]
    labels = [run.tokenizer.label(int(token)) for token in run.encode(SENTENCE)[0]]
    drawn = attention_maps(weights.numpy(), labels, title=f"Attention weights of block {last}, every head")
    saved = save(drawn, folder, "attention")
    caption = (
        f"Rows ask, columns are asked: how much of each earlier character goes into a position of {SENTENCE!r}. "
        "Each row adds up to one; nothing lies right of the diagonal, for no position sees the future."
    )
    alt = f"Attention weights of {weights.shape[0]} heads over {len(labels)} characters, lower triangular."
    return [Figure(saved.svg.read_text(encoding="utf-8"), caption, alt, saved.svg.name)]


def _deeper(section: Section) -> Section:
    """A heading of a report that stands inside another, one level down."""
    return Heading(section.text, min(section.level + 1, 4)) if isinstance(section, Heading) else section
