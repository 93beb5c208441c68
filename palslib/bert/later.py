"""torch and what stands on it, imported at first use: for files that counting parameters reads, too.

All of a method stands in one file, its closed forms above its torch modules, and counting is not to wait seconds for
torch. So such a file says `from palslib.bert.later import Module, nn, torch`. It gets stand-ins for the names that
`later.pyi` lists, and `Module`, which becomes a subclass of torch's with the first module that is made.
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
        if name.startswith("__"):  # what lists a file's names asks for these
            raise AttributeError(name)
        return getattr(self.real, name)

    def __call__(self, *values, **named):
        return self.real(*values, **named)


globals().update({name: Later(*home) for name, home in listed(__file__).items()})


class _Base:
    """The base of `Module` before torch is loaded, as Python lets no class replace `object` itself."""


class Module(_Base):
    """`torch.nn.Module`, from the first instance on; until then a class can derive from it without torch."""

    def __new__(cls, *values, **named):
        if Module.__bases__ == (_Base,):
            Module.__bases__ = (importlib.import_module("torch.nn").Module,)
        return super().__new__(cls)
