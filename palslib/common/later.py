"""numpy, pandas and pyarrow, imported at first use, for files that are also read when a command only shows its help.

Such a file begins with `from __future__ import annotations`, because its annotations name these modules' classes.
"""

import pkgutil
from typing import TYPE_CHECKING


class Later:
    """Stands for a module (`torch.nn`) or for something in it (`torch.nn:Linear`), which is imported when this is first
    called or asked for a part."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str):
        if name == "real":
            self.real = pkgutil.resolve_name(self._name)
            return self.real
        if name.startswith("__"):  # tools that list a file's names ask for these
            raise AttributeError(name)
        return getattr(self.real, name)

    def __call__(self, *values, **named):
        return self.real(*values, **named)


if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    import pyarrow as pa
else:
    np, pd, pa = Later("numpy"), Later("pandas"), Later("pyarrow")
