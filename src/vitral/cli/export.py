"""vitral export: a run as another library's model."""

from pathlib import Path
from typing import Annotated

import typer

from vitral.cli.options import Format, FormatOption, RunArgument, Which, WhichOption
from vitral.core.language import _


def export(
    run: RunArgument,
    out: Annotated[Path, typer.Option(help="Folder to create.")],
    to: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="A form of transformers (gpt2, llama, mistral, qwen2, gpt-neox, opt, gpt-neo, mpt; hf takes the first "
            "that can express the model), torch-nn, onnx, gguf for llama.cpp and Ollama, or graph, every operation as "
            "JSON, for any model.",
        ),
    ] = "hf",
    proof: Annotated[
        bool, typer.Option(help="Open the export in the other library and compare logits, text and tokens.")
    ] = True,
    checkpoint: WhichOption = Which.best,
    format: FormatOption = Format.text,
) -> None:
    """Write a run as a folder that another library opens, with tokenizer, model card and proof.

    The logits are the same up to rounding; a model that no form can express is refused with the reason.
    """
    from vitral.cli.screen import print_json, say
    from vitral.lab import export as export_model

    made = export_model(run, out, to=to, proof=proof, checkpoint=checkpoint.value)
    if format is Format.json:
        found = None if made.proof is None else made.proof.plain()
        print_json({"path": str(made.path), "form": made.form, "proof": found})
        return
    say(_("exported: {path} ({form})", path=made.path, form=made.form))
    if made.proof is None:
        say(_("not proved: the export was not opened in the other library"))
        return
    difference = {
        "reader": made.proof.reader,
        "difference": f"{made.proof.greatest_difference:.1e}",
        "prompts": len(made.proof.prompts),
    }
    say(_("proved: {prompts} prompts in {reader}, logits differ by at most {difference}", **difference))
    if not made.proof.equal_text:
        say(_("the most probable tokens are not everywhere the same: two of them are that close; see PROOF.json"))
