"""Generation in C: `step.c`, its build and its use; every part is optional."""

from vitral.model.native.library import BUILD, Native, native
from vitral.model.native.step import Choice, NativeStep, Refused, native_step

__all__ = ["BUILD", "Choice", "Native", "NativeStep", "Refused", "native", "native_step"]
