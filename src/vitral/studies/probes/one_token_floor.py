"""The lowest loss of a model whose positions see one token each, by the test text's own counts.

Without attention a position sees its token, and with a table or sines of positions also its place in the window. The
loss of any such function on a text is at least the text's own entropy of the next token given both (Gibbs' inequality).
Arms are compared with it in `vitral.studies.losses`.
"""

from vitral.core.language import N_, _
from vitral.core.text import nats
from vitral.data.batches import thinned
from vitral.evaluation import bigram_entropy, entropy_by_place
from vitral.studies.probe import Plain, Probe, Rows, Setting, StudyResult, View

MOST_TOKENS = 5_000_000
"""Of the test split, as for the final losses."""
ROWS = {
    "given_token": N_("given the token, a floor without positions"),
    "given_place": N_("given the token and its position in the window, a floor with learned or sinusoidal positions"),
}


def measure(setting: Setting) -> Plain:
    """The entropy of the next token given the current one, and given its position in the window too."""
    split, time = thinned(setting.dataset.splits["test"], MOST_TOKENS), setting.base.model.context_length
    token = bigram_entropy(split, setting.dataset.tokenizer.vocab_size)
    return {"context_length": time, "given_token": token, "given_place": entropy_by_place(split, time)}


def _table(result: StudyResult, measured: Plain) -> View:
    rows = [(_(name), nats(measured[key])) for key, name in ROWS.items()]
    return View(tables=[Rows(_("In nats per token."), (_("entropy of the next token"), _("nats per token")), rows)])


PROBE = Probe(
    "one-token-floor",
    N_("Floors of a position that sees one token"),
    measure,
    about=N_(
        "Entropy of the next token by the counts of the test text itself, in windows of {context_length} tokens. "
        "Without attention each position sees its own token and, where positions are embedded, its place in the "
        "window; no function of these has a lower loss on this text. The floors are not reached: a model does not know "
        "the counts of the test text, and a part of the lower one is chance in the counts."
    ),
    more=_table,
    seconds=(1, 1, 1),
    of_runs=False,
)
