"""The lowest loss of a model whose positions see one token each, by the test text's own counts.

Without attention a position sees its token, and with a table or sines of positions also its place in the window. The
loss of any such function on a text is at least the text's own entropy of the next token given both (Gibbs' inequality).
"""

from vitral.core.language import N_, _
from vitral.data.batches import thinned
from vitral.evaluation import bigram_entropy, entropy_by_place
from vitral.figures.sections import Heading, Table
from vitral.figures.text import nats
from vitral.studies.probe import Plain, Setting, StudyResult, View

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


def view(result: StudyResult, measured: Plain) -> View:
    """The entropies; arms are compared with them in `vitral.studies.losses`."""
    about = _(
        "Entropy of the next token by the counts of the test text itself, in windows of {time} tokens. Without "
        "attention each position sees its own token and, where positions are embedded, its place in the window; no "
        "function of these has a lower loss on this text. The floors are not reached: a model does not know the counts "
        "of the test text, and a part of the lower one is chance in the counts.",
        time=measured["context_length"],
    )
    rows = tuple((_(name), nats(measured[key])) for key, name in ROWS.items())
    table = Table(_("In nats per token."), (_("entropy of the next token"), _("nats per token")), rows)
    return View((Heading(_("Floors of a position that sees one token")), about, table))
