"""Models of other libraries, in and out, with proof."""

from typing import TYPE_CHECKING

from vitral.core.lazy import lazily

if TYPE_CHECKING:
    from vitral.interop.exporting import Export, export_run
    from vitral.interop.forms import all_forms
    from vitral.interop.graph_reader import Graph, read_graph
    from vitral.interop.importing import import_model

__getattr__ = lazily(__name__)
