"""numpy, pandas and pyarrow, imported at first use, for files that are also read when a command only shows its help.

Such a file begins with `from __future__ import annotations`, because its annotations name these modules' classes.
"""

import importlib
from typing import TYPE_CHECKING


class Later:
    """Stands for a module, which is imported when a part of it is first asked for."""

    def __init__(self, module: str):
        self._module = module

    def __getattr__(self, name: str):
        if name.startswith("__"):  # tools that list a file's names ask for these
            raise AttributeError(name)
        return getattr(importlib.import_module(self._module), name)


if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
else:
    np, pd, pa = Later("numpy"), Later("pandas"), Later("pyarrow")
