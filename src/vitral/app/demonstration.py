"""The demonstration: train, study and explain a small model of a bundled text, and write one page about it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitral.app.arguments import free_folder
from vitral.app.run import Run
from vitral.compare import short_names
from vitral.core.errors import UsageError
from vitral.core.files import MANIFEST, is_left_behind, replace_durably
from vitral.core.language import language
from vitral.data import Dataset, prepare
from vitral.evaluation import copied_spans, training_text
from vitral.page import page_document, page_of
from vitral.report.demonstration import FIGURES, MODEL, PAGE, DemonstrationResult
from vitral.report.model import ModelCount
from vitral.report.survey import survey_dataset
from vitral.runs import load_run, refuse_existing
from vitral.runs.loading import warn_on_stderr
from vitral.studies import Study, StudyResult, run_study, study_named
from vitral.studies.plan import leaves
from vitral.studies.results import run_name
from vitral.training import Callback, RunConfig
from vitral.training.configuration import configure

SEEDS = (1, 2, 3)
PRESET = "demo"
STUDY = "study"
CHARACTERS, SAMPLE_SEED, TEMPERATURE = 600, 1, 0.8


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
        count: of the model.
        study: the model and the same without attention, over three seeds.
    """

    out: Path
    subject: Subject
    config: RunConfig
    dataset: Dataset
    count: ModelCount
    study: Study

    def train(self, callback: Callback) -> StudyResult:
        """Train all arms."""
        return run_study(self.study, self.config, self.out / STUDY, callback=callback, dataset=self.dataset)

    def finish(self, study: StudyResult) -> DemonstrationResult:
        """The text and the attention of the full model of the first seed, and the findings of the study."""
        run = Run(self.out / STUDY / run_name(self.study.arms[0].name, self.study.seeds[0]))
        sentence = self.subject.sentence
        name = f"blocks.{run.model.config.num_layers - 1}.attn.weights"
        text = run.generate(max_tokens=CHARACTERS, temperature=TEMPERATURE, seed=SAMPLE_SEED)
        copied = copied_spans(text, training_text(self.dataset))
        sizes = {"context_length": self.config.model.context_length, "batch_size": self.config.training.batch_size}
        return DemonstrationResult(
            survey=survey_dataset(self.dataset, self.dataset.load_text().text, **sizes),
            count=self.count,
            run=run.path,
            sample={"text": text, "step": run.step, "temperature": TEMPERATURE, "copied": copied},
            sentence=sentence,
            labels=[run.tokenizer.label(int(token)) for token in run.encode(sentence)[0]],
            weights=run.trace(sentence, [name])[name][0].numpy(),
            walkthrough=run.explain(sentence, layer=0, head=0),
            study=study,
        )

    def carry(self, run: Path) -> Path | None:
        """Write the page that carries the trained model, beside it the one without attention, and return its path.

        Where a page cannot carry both, it carries the first alone; None if it cannot either. A note says so.

        Raises:
            StorageError: writing to disk failed.
        """
        path = self.out / MODEL
        both = [run, self.out / STUDY / run_name(self.study.arms[1].name, self.study.seeds[0])]
        for named in (zip(short_names(both), both, strict=True), [(self.subject.folder, run)]):
            try:
                content = page_of({name: load_run(folder) for name, folder in named}, ablated=False)
            except UsageError as error:
                warn_on_stderr(str(error))
                continue
            replace_durably(path, page_document(content).encode())
            return path
        return None


def plan_demonstration(out: Path | None, settings: Mapping[str, Any]) -> Demonstration:
    """Read the bundled text of the current language; nothing is trained yet.

    Args:
        out: a new folder, or that of a demonstration with the same text and settings that was stopped: it is continued.
            If None, `runs/demo`, `runs/demo-2` and so on, in Portuguese `runs/demo-pt`: the first that is new or,
            without settings, not finished.
        settings: changes of the configuration.

    Raises:
        UsageError: `out` contains something else, a setting is invalid, or its model could not fill the page.
    """
    subject = SUBJECTS[language()]

    def is_free(folder: Path) -> bool:
        stopped = not settings and _has_begun(folder) and not (folder / MANIFEST).exists()
        return stopped or not folder.exists()

    out = free_folder(subject.folder, is_free) if out is None else out
    if not _has_begun(out):
        refuse_existing(out)
    if any(key.startswith("training.objective") and value != "next-token" for key, value in leaves(settings)):
        raise UsageError("demo: it shows a model of next tokens; leave training.objective out")
    config = configure(PRESET, corpus=subject.text, overrides=[settings])
    dataset = prepare(config.corpus)
    model, least = config.model, len(dataset.tokenizer.encode(subject.sentence))
    if model.attention == "none" or model.num_layers == 0 or model.context_length < least:
        raise UsageError(
            "demo: the page needs a model of next tokens with a block of attention, and model.context_length of "
            "{least} or more",
            least=least,
        )
    count = ModelCount.of(PRESET, config, dataset.tokenizer.vocab_size)
    whole = study_named("no-attention")
    study = whole.model_copy(update={"arms": whole.arms[:2], "seeds": SEEDS, "tune": {}, "design": ""})
    return Demonstration(out, subject, config, dataset, count, study)


def _has_begun(out: Path) -> bool:
    """Whether a folder contains a demonstration, finished or not, and nothing else."""
    known = {STUDY, FIGURES, PAGE, MODEL, MANIFEST}
    names = {name for name in os.listdir(out) if not is_left_behind(name)} if out.is_dir() else set()
    return STUDY in names and names <= known and (out / STUDY).is_dir()
