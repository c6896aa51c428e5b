"""The demonstration: train, study and explain a small model of a bundled text, and write one page about it."""

import itertools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.app.run import SAMPLE_TEMPERATURE, Run
from vitral.core.config import assignment
from vitral.core.errors import UsageError
from vitral.core.files import is_left_behind, replace_durably
from vitral.core.language import language
from vitral.core.manifest import MANIFEST
from vitral.data import Dataset, load_corpus, prepare
from vitral.evaluation import copied_spans, training_text
from vitral.explanation import Choice, RunView
from vitral.page import page_content, page_document
from vitral.report.demonstration import FIGURES, PAGE, DemonstrationResult, WrittenText, write_demonstration
from vitral.report.model import ModelCount
from vitral.report.survey import Survey, survey_dataset
from vitral.runs import load_run, refuse_existing
from vitral.runs.loading import warn_on_stderr
from vitral.runs.lock import only_writer
from vitral.studies import Study, StudyResult, against_counts, run_study, study_named
from vitral.studies.results import run_path
from vitral.training import Callback, RunConfig
from vitral.training.configuration import configure

SEEDS = (1, 2, 3)
PRESET = "demo"
STUDY = "study"
MODEL = "model.html"
"""The page that carries the model."""
LAYER, HEAD = 0, 0
ORDER = 4
"""Of the n-gram baseline that the model is compared with."""
CHARACTERS, SAMPLE_SEED = 600, 1


@dataclass(frozen=True)
class Subject:
    """The text of the demonstration in one language.

    Attributes:
        text: its name.
        sentence: is read by the trained model on the page.
        prompt: a beginning for the user to try.
        folder: under `runs`.
    """

    text: str
    sentence: str
    prompt: str
    folder: str


SUBJECTS = {
    "en": Subject("sample", "The light", "WREN.", "demo"),
    "pt": Subject("sample-pt", "Os olhos", "Capitu", "demo-pt"),
}
"""By language."""


@dataclass(frozen=True)
class Demonstration:
    """The demonstration before anything is trained.

    Attributes:
        out: its folder.
        subject: of the current language.
        config: the model and its training.
        dataset: the bundled text.
        survey: of the text.
        count: of the model.
        study: the model and the same without attention, over three seeds.
    """

    out: Path
    subject: Subject
    config: RunConfig
    dataset: Dataset
    survey: Survey
    count: ModelCount
    study: Study

    def train(self, callback: Callback) -> StudyResult:
        """Train all arms."""
        return run_study(self.study, self.config, self.out / STUDY, callback=callback, dataset=self.dataset)

    def trained(self) -> Run:
        """The full model of the first seed."""
        return Run(run_path(self.out / STUDY, self.study.arms[0].name, self.study.seeds[0]))

    def finish(self, study: StudyResult) -> DemonstrationResult:
        """The text and the attention of the trained model, and the findings of the study."""
        run, sentence = self.trained(), self.subject.sentence
        name = f"blocks.{run.model.config.num_layers - 1}.attn.weights"
        text = run.generate(max_tokens=CHARACTERS, temperature=SAMPLE_TEMPERATURE, seed=SAMPLE_SEED)
        return DemonstrationResult(
            survey=self.survey,
            count=self.count,
            run=run.path,
            sample=WrittenText(text, run.step, SAMPLE_TEMPERATURE, copied_spans(text, training_text(self.dataset))),
            sentence=sentence,
            labels=[run.tokenizer.label(int(token)) for token in run.encode(sentence)[0]],
            weights=run.trace(sentence, [name])[name][0].numpy(),
            walkthrough=run.explain(sentence, RunView(layers=(LAYER,), choice=Choice(heads=(HEAD,)))),
            study=study,
            verdict=against_counts(study, ORDER),
        )

    def carry(self, warn: Callable[[str], None] = warn_on_stderr) -> Path | None:
        """Write the page that carries the trained model and return its path; None if no page can.

        Args:
            warn: takes the reason where there is none, such as an own part that has no graph.

        Raises:
            StorageError: writing to disk failed.
        """
        path = self.out / MODEL
        try:
            content = page_content(load_run(self.trained().path), self.subject.folder, ablated=False)
        except UsageError as error:
            warn(str(error))
            return None
        replace_durably(path, page_document(content).encode("utf-8"))
        return path

    def write(self, result: DemonstrationResult) -> Path:
        """Write the page and return its path.

        Raises:
            StorageError: writing to disk failed.
        """
        return write_demonstration(result, self.out)


def plan_demonstration(out: Path | None = None, settings: Sequence[str] = ()) -> Demonstration:
    """Read and survey the bundled text of the current language; nothing is trained yet.

    Args:
        out: a new folder, or that of a demonstration with the same text and settings that was stopped: it is continued.
            If None, `runs/demo`, `runs/demo-2` and so on, in Portuguese `runs/demo-pt`: the first that is new or,
            without settings, not finished.
        settings: changes of the configuration, as `KEY=VALUE`.

    Raises:
        UsageError: `out` contains something else, a setting is invalid, or its model could not fill the page.
    """
    subject = SUBJECTS[language()]
    out = _usual_folder(subject.folder, continued=not settings) if out is None else out
    if not _has_begun(out):
        refuse_existing(out)
    config = configure(PRESET, corpus=subject.text, overrides=[assignment(setting) for setting in settings])
    corpus = load_corpus(config.corpus)
    dataset = prepare(config.corpus, corpus=corpus)
    _require_page(config, dataset, subject.sentence)
    batch_size, vocab_size = config.training.batch_size, dataset.tokenizer.vocab_size
    surveyed = survey_dataset(dataset, corpus.text, context_length=config.model.context_length, batch_size=batch_size)
    count = ModelCount.of(PRESET, config, vocab_size)
    whole = study_named("no-attention")
    study = whole.model_copy(update={"arms": whole.arms[:2], "seeds": SEEDS, "tune": {}})
    return Demonstration(out, subject, config, dataset, surveyed, count, study)


def _require_page(config: RunConfig, dataset: Dataset, sentence: str) -> None:
    """Refuse, before anything is trained, a model that writes no text or has no attention over the sentence."""
    model, num_tokens = config.model, len(dataset.tokenizer.encode(sentence))
    if config.training.objective != "next-token":
        raise UsageError("demo: training.objective must be next-token, since the page begins with a text it wrote")
    if model.attention == "none" or model.num_layers == 0:
        raise UsageError("demo: the model needs a block with attention, since the study takes it away")
    if model.context_length < num_tokens:
        raise UsageError(
            "demo: model.context_length must be {least} or more, to read {sentence!r}",
            least=num_tokens,
            sentence=sentence,
        )


def _has_begun(out: Path) -> bool:
    """Whether a folder contains a demonstration, finished or not, and nothing else."""
    known = {STUDY, FIGURES, PAGE, MODEL, MANIFEST}
    try:
        names = {name for name in os.listdir(out) if not is_left_behind(name)}
    except (FileNotFoundError, NotADirectoryError):
        return False
    return STUDY in names and names <= known and (out / STUDY).is_dir()


def _usual_folder(name: str, *, continued: bool) -> Path:
    """The first of `runs/NAME`, `runs/NAME-2` and so on that is new or, with `continued`, stopped before its end."""
    for number in itertools.count(1):
        out = Path("runs") / (name if number == 1 else f"{name}-{number}")
        if not out.exists() or (continued and _was_stopped(out)):
            return out
    raise AssertionError


def _was_stopped(out: Path) -> bool:
    if not _has_begun(out) or (out / MANIFEST).exists():
        return False
    try:
        with only_writer(out / STUDY):
            return True
    except UsageError:  # it is running
        return False
