"""Writes the student edition into `runs/student`: `make student`; grades what comes back: `make grade FOLDER=...`.

The notebooks have no outputs and no solutions; those are in `runs/solutions`. Files that a notebook links to lie in the
folder `files` beside it, so that the folder can be handed out as it is. Where a solution begins with
`<!-- answer: NUMBER -->`, cells after the exercises tell a student whether a number is right (a whole number exactly,
another to two digits); they hold hashes, not the answers.
"""

import hashlib
import re
import shutil
import sys
import tempfile
from pathlib import Path

import nbformat

from palslib.common.places import PROJECT, runs_folder
from palslib.study.reproduce import run_notebook

NOTEBOOKS = sorted((PROJECT / "notebooks").glob("*.ipynb"))
SOLUTION = re.compile(r"<details><summary>Solution</summary>\s*(.*?)\s*</details>", re.DOTALL)
ANSWER = re.compile(r"<!-- answer: (\S+) -->\s*")
CHECK = """import hashlib


def check_answer(number, right):
    if my_answers[number] is None:
        return
    try:
        answer = float(my_answers[number])
    except (TypeError, ValueError):
        return print(f"exercise {{number}}: give a number")
    forms = [f"{{answer:.15g}}", *(f"about {{factor * answer:.2g}}" for factor in (0.99, 1, 1.01))]
    hashes = [hashlib.sha256(f"{{number}}: {{form}}".encode()).hexdigest() for form in forms]
    print(f"exercise {{number}}:", "right" if right in hashes else "not yet")


_ = [check_answer(*item) for item in {hashes}.items()]"""


def check(answers: dict[int, str]):
    """The cell that checks the numbers that answer exercises, by their numbers."""
    forms = {n: right if right.isdigit() else f"about {float(right):.2g}" for n, right in answers.items()}
    hashes = {n: hashlib.sha256(f"{n}: {form}".encode()).hexdigest() for n, form in forms.items()}
    return nbformat.v4.new_code_cell(CHECK.format(hashes=hashes), metadata={"tags": ["headline"]})


def solutions(notebook) -> list[str]:
    """The solutions of a notebook's exercises, in their order."""
    return [text for cell in notebook.cells if cell.cell_type == "markdown" for text in SOLUTION.findall(cell.source)]


def numbers(texts: list[str]) -> dict[int, str]:
    """Exercise -> the number that is checked, for those that have one."""
    return {n: answer[1] for n, text in enumerate(texts, start=1) if (answer := ANSWER.match(text))}


def carried(text: str, folder: Path) -> str:
    """The text with its links to files of the clone changed to copies of them in `folder/files`."""

    def link(path: re.Match) -> str:
        copy = Path("files", path[1].lstrip("."))  # JupyterLab shows no hidden folder
        (folder / copy).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / path[1], folder / copy)
        return f"]({copy.as_posix()}"

    return re.sub(r"\]\(\.\./([^)#\s]+)", link, text)


def main() -> Path:
    folder, apart = runs_folder() / "student", runs_folder() / "solutions"
    if there := [old for old in (folder, apart) if old.exists()]:
        raise SystemExit(f"{there[0]} is there already, perhaps with answers: move or remove it first")
    for new in (folder, apart):
        new.mkdir(parents=True)
    for path in NOTEBOOKS:
        notebook = nbformat.read(path, as_version=4)
        texts, exercises = solutions(notebook), 0
        for place, cell in enumerate(notebook.cells):
            if cell.cell_type == "code":
                cell.outputs, cell.execution_count = [], None
            else:
                exercises = place if SOLUTION.search(cell.source) else exercises
                cell.source = carried(SOLUTION.sub("*Your answer:*", cell.source), folder)
        answers = numbers(texts)
        own = f"my_answers = {dict.fromkeys(answers)}  # your numbers in place of None"
        notebook.cells[exercises + 1 : exercises + 1] = [nbformat.v4.new_code_cell(own), check(answers)]
        nbformat.write(notebook, folder / path.name)
        text = "\n\n".join(f"## Exercise {n}\n\n{ANSWER.sub('', text)}" for n, text in enumerate(texts, start=1))
        text = re.sub(r"\]\((?=files/|\d\d_)", f"](../{folder.name}/", carried(text, folder))
        (apart / f"{path.stem}.md").write_text(f"# {path.stem}\n\n{text}\n", encoding="utf-8")
    return folder


def grade(folder: Path) -> None:
    """Prints how many exercises of each notebook in a folder are answered rightly, by running copies of them to the
    end; a notebook's name has to have that of ours in it. The check is ours, whatever was handed in."""
    handed_in = sorted(path for path in folder.rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
    if not handed_in:
        raise SystemExit(f"there are no notebooks in {folder}")
    width = max((len(str(path.relative_to(folder))) for path in handed_in), default=0)
    for path in handed_in:
        ours = [own for own in NOTEBOOKS if own.stem in path.stem]
        if not ours:
            print(f"{path.relative_to(folder)!s:{width}}  none of our notebooks by its name")
            continue
        answers = numbers(solutions(nbformat.read(ours[0], 4)))
        try:
            notebook = nbformat.read(path, 4)
        except Exception as error:  # one that is damaged does not end the grading of the others
            print(f"{path.relative_to(folder)!s:{width}}  cannot be read: {error}")
            continue
        notebook.cells.append(check(answers))
        with tempfile.TemporaryDirectory() as place:
            nbformat.write(notebook, Path(place, "copy.ipynb"))
            result = run_notebook(Path(place, "copy.ipynb"), Path(place, "run.ipynb"), limit=600)
        failed = f"  stopped at {result['error'].splitlines()[0]}" if result["error"] else ""
        right = result["headline"].count(": right")
        print(f"{path.relative_to(folder)!s:{width}}  {right} of {len(answers)}{failed}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        grade(Path(sys.argv[1]).expanduser())
    else:
        print(main())
