"""A folder of transformers: weights, configuration, tokenizer."""

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch

from vitral.core.files import as_json
from vitral.data.answers import ANSWER, END
from vitral.interop.foreign import CONFIG, WEIGHTS, WITHOUT_PROOF, needed
from vitral.interop.form import Form
from vitral.interop.forms import all_forms, first
from vitral.interop.forms.bert import BERT
from vitral.interop.proof import Draft, Opened, cannot_open
from vitral.interop.rewrites import Weighted
from vitral.interop.rules import exported
from vitral.interop.tokenizer_json import tokenizer_files
from vitral.runs import LoadedRun
from vitral.runs.identity import SPECIAL_IDS

GENERATION = "generation_config.json"
_FRONT = ("library_name: transformers", "pipeline_tag: text-generation")
_FILLS = ("library_name: transformers", "pipeline_tag: fill-mask")
_TO_FILL = (
    "```python",
    "from transformers import pipeline",
    "",
    'fill = pipeline("fill-mask", ".")',
    'print(fill("A prompt" + fill.tokenizer.mask_token))',
    "```",
)
_USE = (
    "```python",
    "from transformers import AutoModelForCausalLM, AutoTokenizer",
    "",
    'model, tokenizer = AutoModelForCausalLM.from_pretrained("."), AutoTokenizer.from_pretrained(".")',
    'ids = tokenizer("A prompt", return_tensors="pt", add_special_tokens=False).input_ids',
    "print(tokenizer.decode(model.generate(ids, do_sample=True)[0]))",
    "```",
)


def draft(run: LoadedRun, to: str) -> Draft:
    """A run in a form of transformers.

    Raises:
        UsageError: no such form, or it cannot express the model.
    """
    known, model = all_forms(), Weighted(run.model.config, run.model.state_dict())
    form, said = (known[to], known[to].said(model)) if to in known else first(known.values(), model)
    mask = run.tokenizer.mask if form is BERT else None
    masks = {} if mask is None else {"mask_token": run.tokenizer.label(mask)}
    files = {
        CONFIG: as_json(config_of(form, said, run)),
        WEIGHTS: safetensors.torch.save(exported(form.rules(said.config), said.weights), {"format": "pt"}),
        **text_files(run, said.config.context_length, **masks),
    }
    packages = ("transformers", "tokenizers", "safetensors")
    use, front = (_TO_FILL, _FILLS) if form is BERT else (_USE, _FRONT)
    return Draft(form.name, files, "transformers", packages, partial(opened, form.architecture), use, front)


def opened(architecture: str, folder: Path) -> Opened:
    """An export in transformers, as a model of this class.

    Raises:
        UsageError: it cannot be opened.
    """
    package = needed("transformers", WITHOUT_PROOF)
    package.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = getattr(package, architecture).from_pretrained(folder, local_files_only=True, dtype="auto").eval()
            tokenizer = package.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        except Exception as error:  # whatever a foreign library raises
            raise cannot_open("transformers", error) from None
    return Opened(
        lambda tokens: model(tokens).logits, lambda text: list(tokenizer.encode(text, add_special_tokens=False))
    )


def text_files(run: LoadedRun, context_length: int, **settings: str) -> dict[str, bytes]:
    """The tokenizer with further settings, and how far a text goes."""
    return {
        **tokenizer_files(run.tokenizer, context_length, **settings),
        GENERATION: as_json({"max_length": context_length, **special_ids(run)}),
    }


def special_ids(run: LoadedRun) -> dict[str, Any]:
    """The ids that begin, end and fill a text: those of an imported model and its descendants, and the end of answers.

    An encoder-decoder has the one that opens answers, too.
    """
    answering = {"eos_token_id": END} if run.sealed.config.corpus.records else {}
    answering |= {} if run.model.encoder is None else {"decoder_start_token_id": ANSWER}
    declared = run.tokenizer.declared
    return dict.fromkeys(SPECIAL_IDS) | run.sealed.special_ids | {key: declared[it] for key, it in answering.items()}


def config_of(form: Form, model: Weighted, run: LoadedRun) -> dict[str, Any]:
    """The foreign configuration."""
    return {
        "architectures": [form.architecture],
        "model_type": form.model_type,
        "vocab_size": run.model.vocab_size,
        **form.write(model.config),
        "tie_word_embeddings": model.config.tie_head,
        "dtype": str(next(iter(model.weights.values())).dtype).removeprefix("torch."),
        "use_cache": True,
        **special_ids(run),
    }
