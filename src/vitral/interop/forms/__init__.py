"""The forms by name, a file for each family, and which of them a model can take."""

from collections.abc import Iterable

from vitral.core.errors import UsageError
from vitral.interop.form import Form, Inexpressible
from vitral.interop.forms.bert import BERT
from vitral.interop.forms.gpt import GPT2, GPT_NEO, MPT, NEOX, OPT
from vitral.interop.forms.llama import LLAMA, MISTRAL, QWEN2
from vitral.interop.forms.torch_nn import TORCH_NN
from vitral.interop.rewrites import Weighted

ANY = "hf"
"""Instead of a form: the first that can express the model."""


def all_forms() -> dict[str, Form]:
    """The forms of transformers, in the order in which they are tried."""
    return {form.name: form for form in (GPT2, LLAMA, MISTRAL, QWEN2, NEOX, OPT, GPT_NEO, MPT, BERT)}


def form_of_type(model_type: object, where: str) -> Form:
    """The form of a `model_type`.

    Raises:
        UsageError: there is none.
    """
    known = {form.model_type: form for form in (*all_forms().values(), TORCH_NN)}
    if not isinstance(model_type, str) or model_type not in known:
        raise UsageError(
            "{where}: models of the type {model_type!a:.60} are not known; known are {known}",
            where=where,
            model_type=model_type,
            known=", ".join(known),
        )
    return known[model_type]


def first(forms: Iterable[Form], model: Weighted) -> tuple[Form, Weighted]:
    """The first form that can express the model, and the model as it expresses it.

    Raises:
        UsageError: none can; with the reason of the nearest form, which refuses the fewest properties of the model.
    """
    refusals: list[Inexpressible] = []
    for form in forms:
        try:
            return form, form.said(model)
        except Inexpressible as error:
            refusals.append(error)
    raise UsageError(
        "no form can express this model; the nearest is {reason} (other forms that refuse it: {others})",
        reason=min(refusals, key=lambda refusal: refusal.distance),
        others=len(refusals) - 1,
    )
