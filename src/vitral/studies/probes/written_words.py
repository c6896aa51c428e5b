"""The probe `written-words`: real and distinct words in what each model writes, beside those of the test text."""

from vitral.core.language import N_, _
from vitral.figures.sections import Details, Heading, Preformatted
from vitral.inspection.written_words import written_words
from vitral.studies import probe
from vitral.studies.probe import Arms, Plain, Quantity, StudyResult, Trained, View

WORDS = (200, 400, 2000)
"""Words that are measured of a run."""
REAL = Quantity(N_("real words"), lambda run: 100 * run["real"], "%", better="higher", digits=1)
DISTINCT = Quantity(N_("distinct words"), lambda run: 100 * run["distinct"], "%", digits=1)
TEST = (
    Quantity(N_("real words of the test text"), lambda run: 100 * run["test_real"], "%", digits=1),
    Quantity(N_("distinct words of the test text"), lambda run: 100 * run["test_distinct"], "%", digits=1),
)
COUNT = Quantity(N_("words measured"), "words", digits=0)


def measure(trained: Trained) -> Plain:
    """See `vitral.inspection.written_words.written_words`; the run's seed draws the samples."""
    probe.require_causal_lm(trained)
    run = trained.run
    return written_words(run.model, run.tokenizer, trained.dataset, words=trained.size(*WORDS), seed=trained.seed)


def view(result: StudyResult, arms: Arms) -> View:
    """Shares by arm beside the test text's, every arm against its baseline, and the beginning of a sample of each."""
    how = _(
        "Each model writes texts at temperature 1 from the beginning of a line. A word is real if it occurs in the "
        "training text. Distinct words are counted among equally many words of each arm. This measures words, not "
        "coherence: a text of real words may have no sense."
    )
    title, caption = _("Real words in what the models write"), _("Share of words that occur in the training text.")
    samples = tuple(Preformatted(arm.first["text"], arm.title) for arm in arms)
    sections = (
        Heading(_("Words that the models write")),
        how,
        probe.mean_table(_("Means over seeds."), arms, COUNT, REAL, TEST[0], DISTINCT, TEST[1]),
        *probe.interval_plot("real-words", title, arms, REAL, caption),
        Details(_("The beginning of a sample of each arm"), samples),
    )
    return View(sections, probe.against_base(arms, REAL, DISTINCT))
