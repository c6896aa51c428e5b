"""A report of which only the page is shown, as in a notebook."""

from pathlib import Path
from typing import TYPE_CHECKING

from vitral.figures.sections import Figure
from vitral.reports.folder import ReportFolder

if TYPE_CHECKING:
    import matplotlib.figure


class Unwritten(ReportFolder):
    """A report folder that is never written; its figures are only on the page."""

    def __init__(self) -> None:
        """Belong to no folder."""
        super().__init__(Path())

    def figure(self, drawn: "matplotlib.figure.Figure", name: str, caption: str, alt: str) -> Figure:
        """The figure as a section of a page."""
        from vitral.figures.style import svg_bytes  # matplotlib is slow to import

        return Figure(svg_bytes(drawn).decode(), caption, alt)

    def write(self, *, manifest: bool = True) -> None:
        """Nothing is written."""
