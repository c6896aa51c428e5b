"""Explaining: a traced computation as numbered steps, and how it is shown."""

from vitral.explain.arithmetic import Arithmetic, Exponentials, Sum
from vitral.explain.renderers import to_sections, to_text
from vitral.explain.walkthrough import Step, Walkthrough, walk_attention

__all__ = ["Arithmetic", "Exponentials", "Step", "Sum", "Walkthrough", "to_sections", "to_text", "walk_attention"]
