"""Code that studies the paper; it needs the notebooks' packages: pip install 'palslib[notebooks]'."""

from importlib.util import find_spec

_NEEDED = ("papermill", "ipykernel", "ipywidgets", "matplotlib", "seaborn")
if missing := [name for name in _NEEDED if not find_spec(name)]:
    raise ModuleNotFoundError(f"palslib.study needs {', '.join(missing)}: pip install 'palslib[notebooks]'")
