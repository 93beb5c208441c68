"""torch and what stands on it, imported when it is first used: for files that are read in order to count, too.

All of a method stands in one file, its closed forms above its torch modules. Counting parameters imports that file, but
is not to wait for torch. So it says `from palslib.bert.later import Module, nn, torch`: the names that `later.pyi`
lists, each of them a stand-in until it is used, and `Module`, which becomes a subclass of torch's with the first
module that is made. Nothing else in the package is deferred in this way.
"""

import importlib

from palslib.common.stubs import listed


class Later:
    """Stands for a module, or for something in it, which is imported when this is first called or asked for a part."""

    def __init__(self, module: str, name: str):
        self._home = module, name

    def __getattr__(self, name: str):
        if name == "real":
            module = importlib.import_module(self._home[0])
            self.real = getattr(module, self._home[1]) if self._home[1] else module
            return self.real
        if name.startswith("__"):  # asked by what inspects all names of a module
            raise AttributeError(name)
        return getattr(self.real, name)

    def __call__(self, *values, **named):
        return self.real(*values, **named)


globals().update({name: Later(*home) for name, home in listed(__file__).items()})


class _InTheMeantime:
    """The base of `Module` before torch is loaded; Python does not let a class replace `object` itself."""


class Module(_InTheMeantime):
    """`torch.nn.Module`, from the first instance on; until then a class can derive from it without torch."""

    def __new__(cls, *values, **named):
        base = Later("torch.nn", "Module").real
        if Module.__bases__ != (base,):
            Module.__bases__ = (base,)
        return super().__new__(cls)
