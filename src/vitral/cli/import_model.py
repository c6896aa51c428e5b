"""vitral import: a run of another library's model."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import RunFolderOption
from vitral.core.language import _, ngettext


def import_model(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|FILE|hf:NAME",
            help="A folder of transformers with config.json and safetensors, or a model of the Hugging Face hub, as in "
            "hf:distilbert/distilgpt2 or hf:distilbert/distilgpt2@main; ckpt.pt of nanoGPT; or model.safetensors of "
            "any GPT with --map.",
        ),
    ],
    out: RunFolderOption = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|FOLDER|hf:NAME",
            help="tokenizer.json or a folder with one, a .tiktoken or .toml file, or the training text of a model of "
            "characters.  [default: that of the model]",
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option(
            "--map", metavar="FILE", help="TOML file that maps the names of the tensors; see docs/interop.md."
        ),
    ] = None,
) -> None:
    """Make a run of a model of GPT-2, Llama, Mistral, Qwen2, GPT-NeoX, OPT, GPT-Neo, MPT, nanoGPT or torch.nn.

    Only tensors and plain data are read, and no code that comes with a model is run.
    """
    from vitral.cli.screen import runnable, say
    from vitral.data import Tokenizer
    from vitral.interop import import_model as make_run
    from vitral.lab.interchange import folder_for

    run = make_run(source, out or folder_for(source), tokenizer=tokenizer, names=names)
    origin = run.document("corpus")["imported"]
    say(_("imported: {path} ({form})", path=run.path, form=origin["form"]))
    tokens = Tokenizer(run.document("tokenizer"))
    unused = len(tokens.specials) if tokens.name == "file" else 0
    if unused:
        say(
            ngettext(
                "{count:,} of the {rows:,} rows of the embedding has no token; it is kept, and never written",
                "{count:,} of the {rows:,} rows of the embedding have no token; they are kept, and never written",
                unused,
                count=unused,
                rows=tokens.vocab_size,
            )
        )
    say(runnable(_("continue a text: vitral generate {path} --prompt TEXT", path=run.path)))
