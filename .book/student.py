"""Writes the student edition, in `runs/student`: `make student`. The notebooks have no outputs and no solutions; those
are in files of their own, in its folder `solutions`. Where a solution begins with `<!-- answer: NUMBER -->`, a cell
after the exercises tells a student whether a number is right; it holds hashes, not the answers."""

import hashlib
import os
import re
from pathlib import Path

import nbformat

from palslib.common.places import PROJECT, runs_folder

SOLUTION = re.compile(r"<details><summary>Solution</summary>\s*(.*?)\s*</details>", re.DOTALL)
ANSWER = re.compile(r"<!-- answer: (\S+) -->\s*")
CHECK = """import hashlib

answers = {answers}  # your numbers in place of None, to two digits
for number, right in {hashes}.items():
    if answers[number] is not None:
        near = [f"{{number}}: {{factor * answers[number]:.2g}}" for factor in (0.99, 1, 1.01)]
        given = [hashlib.sha256(text.encode()).hexdigest() for text in near]
        print(f"exercise {{number}}:", "right" if right in given else "not yet")"""


def check(answers: dict[int, str]):
    """The cell that checks the numbers that answer exercises, by their numbers."""
    hashes = {n: hashlib.sha256(f"{n}: {float(right):.2g}".encode()).hexdigest() for n, right in answers.items()}
    return nbformat.v4.new_code_cell(CHECK.format(answers=dict.fromkeys(answers), hashes=hashes))


def main() -> Path:
    folder = runs_folder() / "student"
    if folder.exists():
        raise SystemExit(f"{folder} is there already, perhaps with answers: move or remove it first")
    (folder / "solutions").mkdir(parents=True)
    clone = os.path.relpath(PROJECT, folder)
    for path in sorted((PROJECT / "notebooks").glob("*.ipynb")):
        notebook, solutions, exercises = nbformat.read(path, as_version=4), [], None
        for cell in notebook.cells:
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
                continue
            if found := SOLUTION.findall(cell.source):
                solutions, exercises = solutions + found, cell
            cell.source = SOLUTION.sub("*Your answer:*", cell.source).replace("](../", f"]({clone}/")
        answers = {n: found[1] for n, text in enumerate(solutions, 1) if (found := ANSWER.match(text))}
        if answers:
            notebook.cells.insert(notebook.cells.index(exercises) + 1, check(answers))
        nbformat.write(notebook, folder / path.name)
        text = "\n\n".join(f"## Exercise {n}\n\n{ANSWER.sub('', text)}" for n, text in enumerate(solutions, 1))
        (folder / "solutions" / f"{path.stem}.md").write_text(f"# {path.stem}\n\n{text}\n", encoding="utf-8")
    return folder


if __name__ == "__main__":
    print(main())
