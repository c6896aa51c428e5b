"""How `vitral evaluate` looks on a terminal."""

from vitral.api.corpora import ngram_rows
from vitral.api.measuring import NOVEL_LENGTH, Measures
from vitral.cli.screen import console, say, table


def print_measures(measures: Measures) -> None:
    """Losses of whole parts, the n-gram lines, what a sample copies."""
    rows = [
        (
            name,
            f"{part.num_targets:,}",
            f"{part.loss:.4f}",
            f"{part.perplexity:.3f}",
            f"{part.bits_per_character:.4f}",
            f"{part.bits_per_byte:.4f}",
        )
        for name, part in measures.splits.items()
    ]
    columns = ("part", "tokens", "nats per token", "perplexity", "bits per character", "bits per byte")
    screen = console()
    screen.print(table(f"{measures.run} at step {measures.step:,}", columns, rows))
    screen.print(
        table("What counting alone achieves on the test part", ("", "nats per token"), ngram_rows(measures.lines))
    )
    say(f"The test loss stands {measures.standing}.")
    if measures.copying is not None:
        copied = measures.copying
        say(
            f"Of a sample of {copied.characters:,} characters the longest piece that stands in the training text has "
            f"{copied.longest.length}: {copied.longest.text!r}. {copied.novel_share:.0%} of its pieces of "
            f"{NOVEL_LENGTH} characters are new."
        )
