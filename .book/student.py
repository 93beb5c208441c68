"""Writes the student edition, in `runs/student`: `make student`. The notebooks have no outputs and no solutions; those
are in files of their own, in its folder `solutions`."""

import os
import re
import shutil
from pathlib import Path

import nbformat

from palslib.common.places import PROJECT, runs_folder

SOLUTION = re.compile(r"<details><summary>Solution</summary>\s*(.*?)\s*</details>", re.DOTALL)


def main() -> Path:
    folder = runs_folder() / "student"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "solutions").mkdir(parents=True)
    clone = os.path.relpath(PROJECT, folder)
    for path in sorted((PROJECT / "notebooks").glob("*.ipynb")):
        notebook, solutions = nbformat.read(path, as_version=4), []
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
                continue
            solutions += SOLUTION.findall(cell.source)
            cell.source = SOLUTION.sub("*Your answer:*", cell.source).replace("](../", f"]({clone}/")
        nbformat.write(notebook, folder / path.name)
        text = "\n\n".join(f"## Exercise {number}\n\n{text}" for number, text in enumerate(solutions, 1))
        (folder / "solutions" / f"{path.stem}.md").write_text(f"# {path.stem}\n\n{text}\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    print(main())
