"""vitral import: a run of another library's model."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import RunFolderOption
from vitral.core.language import _


def import_model(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|hf:NAME",
            help="A folder of transformers with config.json and safetensors, or a model of the Hugging Face hub, as in "
            "hf:distilbert/distilgpt2 or hf:distilbert/distilgpt2@main.",
        ),
    ],
    out: RunFolderOption = None,
    tokenizer: Annotated[
        Path | None, typer.Option(help="tokenizer.json, or a folder with one.  [default: that of the model]")
    ] = None,
) -> None:
    """Make a run of another library's model: GPT-2, Llama, Mistral, GPT-NeoX, OPT, GPT-Neo, MPT.

    Only safetensors are read; nothing is unpickled, and no code that comes with a model is run.
    """
    from vitral.cli.screen import say
    from vitral.interop import import_model as make_run
    from vitral.lab.interchange import folder_for

    run = make_run(source, out or folder_for(source), tokenizer=tokenizer)
    origin = run.document("corpus")["imported"]
    say(_("imported: {path} ({form})", path=run.path, form=origin["form"]))
    say(_("continue a text: vitral generate {path} --prompt TEXT", path=run.path))
