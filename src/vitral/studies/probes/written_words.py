"""The probe `written-words`: real and distinct words in what each model writes, beside those of the test text."""

from vitral.core.language import N_
from vitral.inspection.written_words import written_words
from vitral.studies.probe import Against, Dots, Plain, Probe, Quantity, Trained, require_causal_lm

WORDS = (200, 400, 2000)
"""Words that are measured of a run."""
COUNT = Quantity(N_("words measured"), "words", digits=0)
REAL = Quantity(N_("real words"), lambda run: 100 * run["real"], "%", "higher", 1)
TEST_REAL = Quantity(N_("real words of the test text"), lambda run: 100 * run["test_real"], "%", digits=1)
DISTINCT = Quantity(N_("distinct words"), lambda run: 100 * run["distinct"], "%", digits=1)
TEST_DISTINCT = Quantity(N_("distinct words of the test text"), lambda run: 100 * run["test_distinct"], "%", digits=1)


def measure(trained: Trained) -> Plain:
    """See `vitral.inspection.written_words.written_words`; the run's seed draws the samples."""
    require_causal_lm(trained)
    run = trained.run
    return written_words(run.model, run.tokenizer, trained.dataset, words=trained.size(*WORDS), seed=trained.seed)


PROBE = Probe(
    "written-words",
    N_("Words that the models write"),
    measure,
    about=N_(
        "Each model writes texts at temperature 1 from the beginning of a line. A word is real if it occurs in the "
        "training text. Distinct words are counted among equally many words of each arm. This measures words, not "
        "coherence: a text of real words may have no sense."
    ),
    tables=[(COUNT, REAL, TEST_REAL, DISTINCT, TEST_DISTINCT)],
    contrasts=[Against((REAL, DISTINCT))],
    figure=Dots(N_("Real words in what the models write"), REAL),
    seconds=(2, 3, 15),
)
