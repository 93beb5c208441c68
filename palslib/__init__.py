"""palslib: BERT and PALs (Stickland & Murray 2019) reproduced, counted and questioned.

Its public names are those of the stub `__init__.pyi`, which editors read. Each is imported when it is first used, so
that counting and planning do not load torch.
"""

import ast
import importlib
from pathlib import Path

__version__ = "0.1.0"

_HOME = {}
"""Public name -> the module that has it."""
for _line in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body:
    if isinstance(_line, ast.ImportFrom):
        _HOME |= {alias.name: _line.module for alias in _line.names}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'palslib' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(_HOME[name]), name)


def __dir__():
    return __all__
