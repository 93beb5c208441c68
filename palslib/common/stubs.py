"""The names in a stub: a file `.pyi` of ordinary imports, which editors read in place of the module beside it.

Python imports each of these names when it is first used, so that `import palslib` does not wait for torch.
"""

import ast
from pathlib import Path


def listed(file: str) -> dict[str, tuple[str, str]]:
    """Name -> (its module, its name there; "" for the module itself), from the stub of the module in `file`."""
    found = {}
    for node in ast.parse(Path(file).with_suffix(".pyi").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.asname: (alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {alias.asname: (node.module, alias.name) for alias in node.names}
    return found
