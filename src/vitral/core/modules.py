"""Modules that refuse wrong input like our functions do."""

from typing import Any

import torch
from torch import nn

from vitral.core.checked import translated
from vitral.core.errors import UsageError, VitralError


class CheckedModule(nn.Module):
    """A module whose call raises our errors; a compiled call is not traced through the check."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call `forward`, with the hooks of the module."""
        if torch.compiler.is_compiling():
            return super().__call__(*args, **kwargs)
        try:
            return super().__call__(*args, **kwargs)
        except VitralError:
            raise
        except Exception as error:
            complaint = self.complaint(*args, **kwargs)
            if complaint is not None:
                raise UsageError(complaint) from None
            ours = translated(error, type(self).forward, (self, *args), kwargs)
            if ours is error:
                raise
            raise ours from ours.__cause__

    def complaint(self, *args: Any, **kwargs: Any) -> str | None:
        """What is wrong with the input of a call that failed, where the module knows better than its annotations."""
        return None
