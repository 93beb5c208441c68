"""Every notebook keeps the house rules; the runner, by papermill, is tested on small ones."""

import json
import re
import sys
from functools import cache
from pathlib import Path

import nbformat
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


# --- the runner


def write(folder: Path, name: str, *sources: str) -> Path:
    """A notebook whose first code cell is tagged `parameters` and whose last is tagged `headline`."""
    cells = [nbformat.v4.new_markdown_cell("# Title"), *map(nbformat.v4.new_code_cell, sources)]
    cells[1].metadata["tags"], cells[-1].metadata["tags"] = ["parameters"], ["headline"]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), folder / name)
    return folder / name


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder for the notebooks that the command line then runs."""
    monkeypatch.setattr(reproduce, "NOTEBOOKS", tmp_path)
    return tmp_path


def test_parameters_reach_the_notebook_in_the_kernel_of_this_interpreter(folder, monkeypatch):
    """Even if the user has registered another; the last tagged cell is the headline."""
    (folder / "kernels" / "python3").mkdir(parents=True)
    other = {"argv": ["/bin/false"], "display_name": "other", "language": "python"}
    (folder / "kernels" / "python3" / "kernel.json").write_text(json.dumps(other))
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(folder))
    path = write(folder, "01_a.ipynb", "steps = 2", "import sys", "print('total:', steps * 2)\nprint(sys.executable)")
    result = run_notebook(path, folder / "out" / "copy.ipynb", {"steps": 21})
    assert (result["name"], result["error"], result["headline"]) == ("01_a", "", f"total: 42 {sys.executable}")
    assert [p.name for p in (folder / "out").iterdir()] == ["copy.ipynb"]


def test_a_file_that_is_no_executed_copy_is_not_replaced(folder, capsys):
    """Not the notebooks themselves, and not what a link leads to; an earlier copy is."""
    path, copy = write(folder, "01_a.ipynb", "steps = 1", "print(steps)"), folder / "copies" / "01_a.ipynb"
    before = path.read_bytes()
    assert main(["reproduce", "--out", str(folder)]) == 1 and "not a copy" in capsys.readouterr().out
    copy.parent.mkdir()
    copy.symlink_to(path)
    with pytest.raises(ValueError, match="not a copy"):
        run_notebook(path, copy)
    assert path.read_bytes() == before
    copy.unlink()
    assert [run_notebook(path, copy, {"steps": n})["headline"] for n in (2, 3)] == ["2", "3"]


def test_a_failing_notebook_does_not_stop_the_others(folder, capfd):
    """Nothing is said of kernels; a record says what each notebook took."""
    write(folder, "01_fails.ipynb", "steps = 1", "x = 1 + 1\nassert x == 3, 'sums'", "print('never')")
    write(folder, "02_dies.ipynb", "steps = 1", "import os", "os._exit(1)")
    (folder / "03_is_none.ipynb").write_text("no notebook")
    write(folder, "04_works.ipynb", "steps = 1", "print(repr(steps))")
    call = ["reproduce", "--out", str(folder / "out"), "--record", str(folder / "took.json")]
    assert main(call) == 1
    shown = capfd.readouterr()
    assert shown.err == "" and "FAILED at cell 3\n" in shown.out and "AssertionError: sums" in shown.out
    assert re.search(r"^02_dies .* FAILED at cell 4$", shown.out, re.MULTILINE) and "DeadKernelError" in shown.out
    assert re.search(r"^03_is_none .* FAILED at the start$", shown.out, re.MULTILINE)
    assert re.search(r"^04_works .* 2  1$", shown.out, re.MULTILINE) and "1 of 4 notebooks succeeded" in shown.out
    copies = ["01_fails.ipynb", "02_dies.ipynb", "04_works.ipynb"]
    assert sorted(p.name for p in (folder / "out").iterdir()) == copies
    took = json.loads((folder / "took.json").read_text())["notebooks"][-1]
    assert took["name"] == "04_works" and took["seconds"] > 0 and took["headline"] == "1"
    assert main([*call, "--notebooks", "04", "--parameters", "steps=0.5"]) == 0
    assert "0.5" in capfd.readouterr().out


def test_a_call_that_makes_no_sense_says_so(folder, capsys):
    write(folder, "01_a.ipynb", "steps = 1", "pass")
    for wrong, said in (("--notebooks 03", "notebook '03'"), ("--parameters stpes=1", "'stpes': did you mean 'steps'")):
        assert main(["reproduce", "--out", str(folder / "out"), *wrong.split()]) == 2
        assert said in capsys.readouterr().err
