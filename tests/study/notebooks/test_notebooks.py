"""Every notebook runs headless with papermill and keeps the house rules; the runner itself is tested on small ones."""

import ast
import json
import re
import sys
from functools import cache
from pathlib import Path

import nbformat
import papermill
import pytest

from palslib.__main__ import main
from palslib.study import reproduce
from palslib.study.reproduce import NOTEBOOKS, run_notebook

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
every_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


@cache
def cells_of(path: Path) -> list:
    return nbformat.read(path, as_version=4).cells


def code_cells(path: Path) -> list:
    return [cell for cell in cells_of(path) if cell.cell_type == "code" and cell.source.strip()]


def parameters_cell(path: Path):
    (cell,) = [cell for cell in code_cells(path) if "parameters" in cell.metadata.get("tags", [])]
    return cell


# --- house rules, on the committed files


@every_notebook
def test_small_as_jupyterlab_writes_it_and_without_widgets_or_paths_of_this_machine(path):
    """`make notebooks` leaves views of widgets out, so that the explorers' words are shown where no widget can be. With
    the kernel's name as JupyterLab writes it, a notebook that was only opened is not modified."""
    text = path.read_text(encoding="utf-8")
    assert path.stat().st_size < 300_000
    assert "widgets" not in json.loads(text)["metadata"] and "application/vnd.jupyter.widget-view+json" not in text
    assert json.loads(text)["metadata"]["kernelspec"]["display_name"] == "Python 3 (ipykernel)"
    assert text == json.dumps(json.loads(text), indent=1, ensure_ascii=False) + "\n"
    text = re.sub(r'"image/\w+": "[^"]*"', "", text)  # base64 may spell anything
    assert not re.findall(r"(?:/work|/root|/home|/Users|/tmp)/[\w.-]+", text)


@every_notebook
def test_cells(path):
    """A title; after the parameters one cell for all notebooks that installs what is missing; executed in order and
    without error; short cells. A semicolon at the end hides a value in JupyterLab but not under nbval, which runs cells
    without history: write `_ = ...`. What the text claims is asserted."""
    first, cells = cells_of(path)[0], code_cells(path)
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    assert cells[1].source == code_cells(PATHS[0])[1].source and "%pip install" in cells[1].source
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]
    assert [cell.source for cell in cells if len(cell.source.splitlines()) > 25] == []
    assert [cell.source for cell in cells if cell.source.rstrip().endswith(";")] == []
    assert any(re.search(r"^\s*assert\b", cell.source, re.MULTILINE) for cell in cells)


@every_notebook
def test_one_parameters_cell_that_papermill_can_read(path):
    """Papermill overlooks a line with two equals signs, or with an annotation such as `int | None`."""
    statements = ast.parse(parameters_cell(path).source).body
    names = [(s.target if isinstance(s, ast.AnnAssign) else s.targets[0]).id for s in statements]
    assert sorted(papermill.inspect_notebook(path)) == sorted(names)


# --- every notebook, run


@pytest.mark.parametrize(
    "path", [PATHS[0], *(pytest.param(path, marks=pytest.mark.slow) for path in PATHS[1:])], ids=lambda path: path.stem
)
def test_runs_at_its_default_parameters(path, tmp_path):
    """By papermill; `pytest --nbval` runs them all in any case, and the slow tests with other parameters."""
    result = run_notebook(path, tmp_path / path.name)
    assert not result.error, result.error
    assert result.cells == len(code_cells(path))


# --- the runner


def write(folder: Path, name: str, *sources: str) -> Path:
    """A notebook whose first code cell is tagged `parameters` and whose last is tagged `headline`."""
    cells = [nbformat.v4.new_markdown_cell("# Title"), *map(nbformat.v4.new_code_cell, sources)]
    cells[1].metadata["tags"], cells[-1].metadata["tags"] = ["parameters"], ["headline"]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / name)
    return folder / name


def test_parameters_reach_the_notebook_and_the_last_tagged_cell_is_the_headline(tmp_path):
    path = write(tmp_path, "01_a.ipynb", "steps = 2\nname = 'x'", "print('total:', steps * 2)\nprint(name)\n'shown'")
    result = run_notebook(path, tmp_path / "out" / "{braces}.ipynb", {"steps": 21})
    assert (result.name, result.error, result.headline) == ("01_a", "", "total: 42 x")
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["{braces}.ipynb"]


def test_a_long_headline_is_cut_between_words_but_never_within_an_interval(tmp_path):
    said = f"{'w ' * 55}+0.73 [+0.27, +1.19], 8 seeds"
    result = run_notebook(write(tmp_path, "01_a.ipynb", "n = 2", f"print('{said}')"), tmp_path / "out.ipynb")
    assert result.headline == f"{'w ' * 55}+0.73 …"


def test_the_kernel_is_this_interpreter_even_if_the_user_has_registered_another(tmp_path, monkeypatch):
    other = tmp_path / "kernels" / "python3"
    other.mkdir(parents=True)
    (other / "kernel.json").write_text('{"argv": ["/bin/false"], "display_name": "other", "language": "python"}')
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    path = write(tmp_path, "01_a.ipynb", "steps = 1", "import sys", "print(sys.executable)")
    copy = tmp_path / "copy.ipynb"
    assert not run_notebook(path, copy).error
    assert code_cells(copy)[-1].outputs[0].text.strip() == sys.executable


def test_a_file_that_is_no_executed_copy_is_not_replaced(tmp_path, monkeypatch, capsys):
    """Not the notebooks themselves, and not what a link leads to; an earlier copy is."""
    monkeypatch.setattr(reproduce, "NOTEBOOKS", tmp_path)
    path, copy = write(tmp_path, "01_a.ipynb", "steps = 1", "print(steps)"), tmp_path / "copies" / "01_a.ipynb"
    before = path.read_bytes()
    assert main(["reproduce", "--out", str(tmp_path)]) == 2 and "not a copy" in capsys.readouterr().err
    copy.parent.mkdir()
    copy.symlink_to(path)
    with pytest.raises(ValueError, match="not a copy"):
        run_notebook(path, copy)
    assert path.read_bytes() == before
    copy.unlink()
    assert [run_notebook(path, copy, {"steps": n}).headline for n in (2, 3)] == ["2", "3"]


def test_a_failing_notebook_does_not_stop_the_others(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(reproduce, "NOTEBOOKS", tmp_path)
    write(tmp_path, "01_fails.ipynb", "steps = 1", "x = 1 + 1\nassert x == 3, 'sums'", "print('never')")
    write(tmp_path, "02_dies.ipynb", "steps = 1", "import os", "os._exit(1)")
    (tmp_path / "03_is_none.ipynb").write_text("no notebook")
    write(tmp_path, "04_works.ipynb", "steps = 1", "print('works')")
    assert main(["reproduce", "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr().out
    assert "FAILED at cell 3\n    x = 1 + 1" in shown and "AssertionError: sums" in shown
    assert re.search(r"^02_dies .* FAILED at cell 4$", shown, re.MULTILINE) and "DeadKernelError" in shown
    assert re.search(r"^03_is_none .* FAILED at the start$", shown, re.MULTILINE)
    assert re.search(r"^04_works .* 2  works$", shown, re.MULTILINE)
    assert "1 of 4 notebooks succeeded" in shown
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["01_fails.ipynb", "02_dies.ipynb", "04_works.ipynb"]


def test_the_command_line_chooses_notebooks_and_sets_parameters(tmp_path, monkeypatch, capfd):
    """It says nothing of its kernels; a record says what each notebook took."""
    monkeypatch.setattr(reproduce, "NOTEBOOKS", tmp_path)
    write(tmp_path, "01_a.ipynb", "steps = 1\nname = 'x'", "raise SystemExit('not chosen')")
    write(tmp_path, "02_b.ipynb", "steps = 1\nname = 'x'", "print(repr(steps), repr(name))")
    call = ["reproduce", "--notebooks", "02", "--out", str(tmp_path / "out"), "--parameters", "steps=0.5", "name=y"]
    assert main([*call, "--record", str(tmp_path / "took.json")]) == 0
    shown = capfd.readouterr()
    assert "0.5 'y'" in shown.out and shown.err == ""
    took = json.loads((tmp_path / "took.json").read_text())["notebooks"][0]
    assert took["name"] == "02_b" and took["seconds"] > 0 and took["headline"] == "0.5 'y'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--notebooks", "03"], "unknown notebook '03'"),
        (["--parameters", "stpes=1"], "unknown parameter of notebook 01_a 'stpes': did you mean 'steps'"),
        (["--parameters", "steps"], "not of the form NAME=VALUE"),
        (["--out", "/dev/null/x"], "set PALSLIB_RUNS"),
    ],
)
def test_a_call_that_makes_no_sense_says_so(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.setattr(reproduce, "NOTEBOOKS", tmp_path)
    write(tmp_path, "01_a.ipynb", "steps = 1", "pass")
    assert main(["reproduce", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err
