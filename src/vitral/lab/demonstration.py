"""The demonstration: train, study and explain a small model of the bundled play, and write one page about it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vitral.core.config import assignment
from vitral.data import Dataset, load_corpus, prepare
from vitral.explain import Choice, RunView, Walkthrough
from vitral.lab.configuration import configure
from vitral.lab.run import Run
from vitral.model import cost, parameter_table
from vitral.reports.demonstration import DemonstrationResult, write_demonstration
from vitral.reports.model import ModelCount
from vitral.reports.text import Survey, survey_dataset
from vitral.runs import refuse_existing
from vitral.studies import Study, StudyResult, run_study, study_named
from vitral.training import Callback, RunConfig

PRESET = "demo"
SENTENCE = "The light"
LAYER, HEAD = 0, 0


@dataclass(frozen=True)
class Demonstration:
    """The demonstration before anything is trained.

    Attributes:
        out: its folder.
        config: the model and its training.
        dataset: the bundled play.
        survey: of the play.
        count: of the model.
        study: the model and the same without attention, over three seeds.
    """

    out: Path
    config: RunConfig
    dataset: Dataset
    survey: Survey
    count: ModelCount
    study: Study

    def train(self, callback: Callback) -> StudyResult:
        """Train all arms."""
        return run_study(self.study, self.config, self.out / "study", callback=callback, dataset=self.dataset)

    def trained(self) -> Run:
        """The full model of the first seed."""
        return Run(self.out / "study" / "arms" / self.study.arms[0].name / f"seed-{self.study.seeds[0]}")

    def walkthrough(self) -> Walkthrough:
        """The attention computation that is shown."""
        return self.trained().explain(SENTENCE, RunView(layers=(LAYER,), choice=Choice(heads=(HEAD,))))

    def write(self, study: StudyResult, walkthrough: Walkthrough) -> Path:
        """Write the page and return its path.

        Raises:
            StorageError: writing to disk failed.
        """
        run = self.trained()
        name = f"blocks.{run.model.config.num_layers - 1}.attn.weights"
        labels = [run.tokenizer.label(int(token)) for token in run.encode(SENTENCE)[0]]
        weights = run.trace(SENTENCE, [name])[name][0].numpy()
        result = DemonstrationResult(self.survey, self.count, run.path, SENTENCE, labels, weights, walkthrough, study)
        return write_demonstration(result, self.out)


def plan_demonstration(out: Path, settings: Sequence[str] = ()) -> Demonstration:
    """Read and survey the play; nothing is trained yet.

    Raises:
        UsageError: `out` exists, or a setting is invalid.
    """
    refuse_existing(out)
    config = configure(PRESET, overrides=[assignment(setting) for setting in settings])
    corpus = load_corpus(config.corpus)
    dataset = prepare(config.corpus, corpus=corpus)
    batch_size, vocab_size = config.training.batch_size, dataset.tokenizer.vocab_size
    surveyed = survey_dataset(dataset, corpus.text, context_length=config.model.context_length, batch_size=batch_size)
    rows, costs = parameter_table(config.model, vocab_size), cost(config.model, vocab_size, batch_size)
    count = ModelCount(PRESET, vocab_size, config.model, batch_size, rows, costs)
    whole = study_named("no-attention")
    return Demonstration(out, config, dataset, surveyed, count, whole.model_copy(update={"arms": whole.arms[:2]}))
