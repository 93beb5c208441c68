"""palslib: BERT and PALs (Stickland & Murray 2019) reproduced, counted and questioned.

Its public names are those of the stub `__init__.pyi`. Each is imported when it is first used, so that counting and
planning do not load torch.
"""

import importlib

from palslib.common.stubs import listed

__version__ = "0.1.0"

_HOME = listed(__file__)
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'palslib' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME[name][0]), name)


def __dir__():
    return __all__
