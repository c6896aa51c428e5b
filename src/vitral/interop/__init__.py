"""Models of other libraries, in and out, with proof."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.interop.exporting import Export, export_run
    from vitral.interop.importing import import_model
    from vitral.interop.proof import Proof
    from vitral.interop.registry import all_forms

__all__ = ["Export", "Proof", "all_forms", "export_run", "import_model"]

__getattr__ = lazily(
    __name__,
    {
        "Export": "exporting",
        "Proof": "proof",
        "export_run": "exporting",
        "all_forms": "registry",
        "import_model": "importing",
    },
)
