"""Parameters of every notebook work as they are typed on a command line, where all is words."""

import re
import shlex

import papermill
import pytest
from papermill.cli import _resolve_type
from test_notebooks import code_cells, every_notebook, parameters_cell
from training.small_runs import two_classes

from palslib.study.notebook import take_parameters
from palslib.study.reproduce import NOTEBOOKS, run_notebook

GRID = [
    ("00", "premise='It rains.' hypothesis=1.13 entailed=False backbone=tiny", "of the PAL has a gradient"),
    ("01", "backbone=tiny size=24", ""),
    ("02", "method=low-rank-100 backbone=tiny num_tasks=3", ""),
    ("03", "steps=5000 epochs=5 batch_size=16 seed=1", ""),
    ("04", "backbone=tiny steps=8 tasks='rte stsb' schedule=round-robin recipe=released keep=none seed=1", "2 tasks"),
    ("04", "preset=minbert backbone=minbert:tiny data=synthetic tasks='rte mood.csv' steps=6 keep=best", "2 tasks"),
    ("05", "tasks='rte cola' text=1984 pair=None seed=1", "without PALs"),
    ("05", "tasks='mood.csv rte' seed=2", "without PALs"),
    ("05", "tasks=stsb,qqp,sst2 first_task=sst2 text='A cat sat.' pair='It was a mat.'", "without PALs"),
    ("06", "look_up=1.13", " hold, "),
    ("07", "backbone=tiny method=houlsby-64-3-shared epochs=1 epoch_steps=2 batch_size=8 seed=1", "of an earlier"),
    ("08", "backbone=tiny question=Why? answer='Nobody knows.' head=1", "in 2 layers"),
    ("09", "method=pals-204 steps=9 memory=4 margin=0 learning_rate=1e-3 seed=2", "backward transfer"),
    ("10", "backbone=tiny measured='pals-204 shared' also=lhuc rows=1 repeats=1", "operations of 8 tasks"),
    ("11", "records=nothing", "Not shown: any difference"),
    ("12", "records=nothing", "0 seeds"),
    ("13", "backbone=tiny steps=6 seed=1", "3 tasks"),
]
"""A notebook's number, other parameters as words, and what its headline then has. `mood.csv` and `nothing`, a folder
without records, stand for what the test makes."""


def defaults(path) -> dict:
    names = {}
    exec(parameters_cell(path).source, names)
    return {name: value for name, value in names.items() if not name.startswith("__")}


def taken(path, given: dict) -> dict:
    """The parameters of a notebook that papermill was given these for, as its cell with `begin` leaves them."""
    cell = parameters_cell(path)
    injected = papermill.translators.PythonTranslator.codify(given)
    names = {"In": ["", cell.source, injected]}
    exec(f"{cell.source}\n{injected}", names)
    take_parameters(names)
    return {name: names[name] for name in defaults(path)}


@every_notebook
def test_every_parameter_has_a_type_and_a_comment_and_its_default_can_be_typed(path):
    """As papermill shows them, which overlooks a line with two equals signs, or an annotation such as `int | None`. It
    puts its own cell behind the first: `begin` sees both, behind what installs palslib."""
    meant, shown = defaults(path), papermill.inspect_notebook(path)
    assert shown.keys() == meant.keys()
    bare = [name for name, one in shown.items() if one["inferred_type_name"] == "None" or not one["help"]]
    assert not bare, f"as in `steps: int = 60  # updates`: a type and a comment for {', '.join(bare)}"
    typed = {name: " ".join(value) if isinstance(value, list) else str(value) for name, value in meant.items()}
    assert taken(path, {name: _resolve_type(value) for name, value in typed.items()}) == meant
    first, _, third = code_cells(path)[:3]
    assert "parameters" in first.metadata["tags"] and re.search(r"^begin\(", third.source, re.MULTILINE)


(FIFTH,) = NOTEBOOKS.glob("05_*.ipynb")


def test_words_become_what_the_first_cell_says():
    given = {"tasks": "rte, cola", "text": 1.13, "first_task": None}
    assert taken(FIFTH, given) == defaults(FIFTH) | given | {"tasks": ["rte", "cola"], "text": "1.13"}


def test_what_is_none_is_named():
    for name, value, said in (
        ("taks", "rte", "'taks': did you mean 'tasks'"),
        ("rows", 1.5, "'rows' must be int, not 1.5"),
        ("tasks", "[rte", r"'tasks' must be list\[str\], not '\[rte'"),
    ):
        with pytest.raises(ValueError, match=said):
            taken(FIFTH, {name: value})


@pytest.mark.slow
@pytest.mark.parametrize(("number", "given", "headline"), GRID, ids=lambda value: str(value)[:40])
def test_other_parameters(number, given, headline, tmp_path):
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    two_classes(tmp_path / "mood.csv")
    given = given.replace("mood.csv", str(tmp_path / "mood.csv")).replace("nothing", str(tmp_path))
    words = dict(word.split("=", 1) for word in shlex.split(given))
    result = run_notebook(path, tmp_path / "out.ipynb", {name: _resolve_type(word) for name, word in words.items()})
    assert not result["error"] and headline in result["headline"], result
