"""Write the live pages, docs/demo: make live.

Two pages of two readers each, with and without attention, which are runs of the zoo; and the page that leads to them.
Its windows are numbers of the models: a column is a token of a sentence, a pane a number of its residual stream.
"""

from pathlib import Path

from vitral import bundle, load
from vitral.core.language import in_language
from vitral.runs.zoo import numbers

FOLDER = Path(__file__).parent / "demo"
DOORS = {"aldermere": ("en", "The lantern burns low"), "casmurro": ("pt", "Olhos de ressaca, olhos de cigana")}
"""Runs of the zoo: the language of their page, and the sentence of their window."""
COLUMNS, ROWS, PANE = 12, 22, 20
"""Tokens and numbers of a window, and the width of a pane in units of its picture."""
GLASS = ("#940015", "#f5c847", "#d76f04", "#3d5bc6", "#11919e", "#6239a0", "#71bdf4", "#9f268d", "#206f33", "#8fe3ba")
"""Colours of tokens, of the page's own glass (web/src/page/marks/colour.ts)."""

CLEAR = "#fdf6e3"
"""Glass of a number that is 0."""
MOST = 0.9
"""The share of numbers below which glass has not all of its colour."""


def main() -> None:
    """Write all three pages."""
    FOLDER.mkdir(exist_ok=True)
    windows = {}
    for name, (language, sentence) in DOORS.items():
        page = FOLDER / f"{name}.html"
        page.unlink(missing_ok=True)
        with in_language(language):
            print(bundle([f"zoo:{name}", f"zoo:{name}-no-attention"], page))
        windows[f"{name}_window"] = window(name, sentence)
    losses = {
        f"{name}_{which}": f"{numbers()[run]['loss']:.2f}"
        for name in DOORS
        for which, run in (("full", name), ("without", f"{name}-no-attention"))
    }
    commas = {f"{key}_pt": loss.replace(".", ",") for key, loss in losses.items()}
    template = (Path(__file__).parent / "live.html").read_text("utf-8")
    for key, value in (windows | losses | commas).items():
        template = template.replace(f"{{{{{key}}}}}", value)
    (FOLDER / "index.html").write_text(template, "utf-8")


def window(name: str, sentence: str) -> str:
    """A pointed window as SVG: the residual stream of a model after its last block, over the tokens of a sentence."""
    run = load(f"zoo:{name}")
    stream = run.trace(sentence, [place := f"blocks.{run.model.config.num_layers - 1}.resid_post"])[place][0, :COLUMNS]
    ids = run.encode(sentence)[0, :COLUMNS].tolist()
    values = stream[:, :ROWS].abs()
    strength = (values / values.quantile(MOST)).clamp(max=1).sqrt()
    wide, high, gap = COLUMNS * PANE, ROWS * PANE, 1.8
    panes = [
        f'<rect x="{x * PANE + gap / 2:.1f}" y="{y * PANE + gap / 2:.1f}" width="{PANE - gap:.1f}" '
        f'height="{PANE - gap:.1f}" fill="{glass(GLASS[ids[x] % len(GLASS)], value)}"/>'
        for x, column in enumerate(strength.tolist())
        for y, value in enumerate(column)
    ]
    outline = f"M0 {high}V{wide}A{wide} {wide} 0 0 1 {wide / 2:.0f} 32A{wide} {wide} 0 0 1 {wide} {wide}V{high}Z"
    return (
        f'<svg viewBox="-3 28 {wide + 6} {high - 24}" aria-hidden="true" focusable="false">'
        f'<clipPath id="{name}"><path d="{outline}"/></clipPath>'
        f'<g clip-path="url(#{name})"><rect width="{wide}" height="{high}" class="lead"/>{"".join(panes)}</g>'
        f'<path d="{outline}" class="frame"/></svg>'
    )


def glass(colour: str, strength: float) -> str:
    """A colour between clear glass and all of its own."""
    pairs = [(int(CLEAR[at : at + 2], 16), int(colour[at : at + 2], 16)) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(clear + (own - clear) * strength):02x}" for clear, own in pairs)


if __name__ == "__main__":
    main()
