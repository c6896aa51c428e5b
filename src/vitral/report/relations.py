"""The sentences about compared runs."""

from vitral.compare.comparison import BITS, NATS, PairedDifference, Relation
from vitral.core.language import N_, _, number
from vitral.core.text import NONE, minus

UNITS = {NATS: N_("nats per token"), BITS: N_("bits per character"), "nothing": N_("nothing")}
BATCHES = {
    "same": N_("the same, by their hash"),
    "same by configuration": N_("the same, by configuration"),
    "other": N_("others: {keys}"),
}
OVER_THE_TEXT = N_(
    "The intervals hold together with 95%. They are the uncertainty over texts like this test split, cut into "
    "contiguous blocks: they are about these trained models. They do not contain the chance of another seed, so they "
    "are no claim about the variants in general; vitral study makes such claims. Nor do they hold if the run that "
    "others are compared with was chosen because its loss on this test split is the lowest."
)


def relation_text(relation: Relation) -> str:
    """The possible comparison, and the difference, in one or two sentences."""
    return f"{_allowed(relation)} {_found(relation)}".strip()


def _allowed(relation: Relation) -> str:
    names = {"run": relation.run, "against": relation.against}
    if not relation.same_text:
        return _("{run} was tested on another text than {against}: their losses cannot be compared.", **names)
    if not relation.same_test:
        return _(
            "{run} has the text of {against}, but read or split in another way: their losses are of other test "
            "texts and cannot be compared.",
            **names,
        )
    if not relation.same_task:
        return _("{run} predicts something else than {against}: their losses cannot be compared.", **names)
    if relation.same_tokens:
        return _("{run} and {against} have the same test text in the same tokens: losses can be compared.", **names)
    if relation.comparable == "nothing":
        return _(
            "{run} has the test text of {against} in other tokens, and of this long text only parts were measured, "
            "which are other parts in other tokens: their losses cannot be compared.",
            **names,
        )
    return _(
        "{run} has the test text of {against} in other tokens: losses in nats per token cannot be compared, bits "
        "per character can.",
        **names,
    )


def _found(relation: Relation) -> str:
    found = relation.difference
    if found is None:
        return _("No difference: {reason}.", reason=_(relation.why)) if relation.why else ""
    size = number(abs(found.difference), ".4f")
    places = {"run": relation.run, "against": relation.against, "size": size, "unit": _(UNITS[found.unit])}
    if found.low is None:
        return _("{run} minus {against}: {size} {unit}.", **(places | {"size": signed_number(found.difference)}))
    span = {"interval": interval_text(found), "blocks": len(found.blocks)}
    if not found.excludes_zero:
        return _(
            "No difference is shown: {size} {unit} (interval over {blocks} blocks {interval}).",
            **(places | {"size": signed_number(found.difference)}),
            **span,
        )
    if found.difference < 0:
        return _(
            "{run} predicts this text better than {against}, by {size} {unit} (interval of the difference over "
            "{blocks} blocks {interval}).",
            **places,
            **span,
        )
    return _(
        "{run} predicts this text worse than {against}, by {size} {unit} (interval of the difference over {blocks} "
        "blocks {interval}).",
        **places,
        **span,
    )


def signed_number(value: float, digits: int = 4) -> str:
    """A difference with its sign, in the current language."""
    return minus(number(value, f"+.{digits}f"))


def interval_text(found: PairedDifference) -> str:
    """An interval in the current language."""
    if found.low is None or found.high is None:
        return NONE
    return _("{low} to {high}", low=signed_number(found.low), high=signed_number(found.high))
