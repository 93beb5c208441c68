"""What studies the paper; with what the notebooks need, which `pip install palslib` alone does not bring."""

from importlib.util import find_spec

_NEEDED = ("papermill", "ipykernel", "ipywidgets", "matplotlib", "seaborn")
if missing := [name for name in _NEEDED if not find_spec(name)]:
    raise ModuleNotFoundError(f"palslib.study needs {', '.join(missing)}: pip install 'palslib[notebooks]'")
