"""torch and what is built on it, imported at first use, for files that are also read when parameters are counted: all
of a method is in one file, and counting should not wait seconds for torch. `common/later.py` says how.
"""

from typing import TYPE_CHECKING

from palslib.common.later import Later

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.nn import Module, functional
    from transformers import activations

    from palslib.bert.attention import attend
    from palslib.bert.dropout import drop
    from palslib.bert.rows import Rows
else:
    torch, nn, functional = map(Later, ("torch", "torch.nn", "torch.nn.functional"))
    activations, attend = Later("transformers.activations"), Later("palslib.bert.attention:attend")
    drop, Rows = Later("palslib.bert.dropout:drop"), Later("palslib.bert.rows:Rows")

    class _Base:
        """The base of `Module` before torch is loaded: Python does not let a class replace the base `object`."""

    class Module(_Base):
        """`torch.nn.Module`, from the first instance on; until then a class can derive from it without torch."""

        def __new__(cls, *values, **named):
            if Module.__bases__ == (_Base,):
                Module.__bases__ = (nn.Module,)
            return super().__new__(cls)
