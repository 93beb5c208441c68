"""torch and what is built on it, imported at first use, for files that are also read when parameters are counted.

All of a method is in one file, its closed forms above its torch modules, and counting should not wait seconds for
torch. So such a file says `from palslib.bert.later import Module, nn, torch`. Each name that `later.pyi` lists is then
a stand-in, which imports the real thing when it is first called or asked for a part of it. `Module` gets
`torch.nn.Module` as its base class when the first module is made.
"""

import importlib

from palslib.common.later import Later
from palslib.common.stubs import listed

globals().update({name: Later(*home) for name, home in listed(__file__).items()})


class _Base:
    """The base of `Module` before torch is loaded, because Python does not let a class replace the base `object`."""


class Module(_Base):
    """`torch.nn.Module`, from the first instance on; until then a class can derive from it without torch."""

    def __new__(cls, *values, **named):
        if Module.__bases__ == (_Base,):
            Module.__bases__ = (importlib.import_module("torch.nn").Module,)
        return super().__new__(cls)
