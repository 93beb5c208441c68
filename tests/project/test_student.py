"""The student edition: the same notebooks, without what gives the answers away; and what is handed in, graded."""

import re

import nbformat
import pytest
import student
from study.notebooks.test_notebooks import write


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALSLIB_RUNS", str(runs))
        assert student.main() == runs / "student"
        with pytest.raises(SystemExit, match="student is there already, perhaps with answers"):
            student.main()
    return runs


def test_what_is_handed_out_has_every_exercise_and_no_solution(runs):
    for path in student.NOTEBOOKS:
        ours, theirs = (nbformat.read(folder / path.name, as_version=4) for folder in (path.parent, runs / "student"))
        texts = (runs / "solutions" / f"{path.stem}.md").read_text(encoding="utf-8")
        questions = sum(cell.source.count("*Your answer:*") for cell in theirs.cells)
        assert len(student.solutions(ours)) == texts.count("\n## Exercise ") == questions > 1
        assert len(student.numbers(student.solutions(ours))) == questions
        code = [[cell.source for cell in page.cells if cell.cell_type == "code"] for page in (ours, theirs)]
        assert [source for source in code[1] if not source.startswith(("my_answers = {", "import hashlib"))] == code[0]
        assert not any(cell.get("outputs") for cell in theirs.cells)
    handed_out = "".join(path.read_text(encoding="utf-8") for path in runs.glob("student/*.ipynb"))
    assert "<summary>Solution" not in handed_out and "<!-- answer" not in handed_out


def test_its_links_lead_to_files_that_come_with_it(runs):
    for path in [*runs.glob("student/*.ipynb"), *runs.glob("solutions/*.md")]:
        for link in re.findall(r"\]\(([^)#\s\"\\]+)", path.read_text(encoding="utf-8")):
            if re.match(r"(\.\./)?student/|files/|\d\d_\w+\.", link):
                assert (path.parent / link).is_file(), f"{path.name}: {link}"
            else:
                assert "../" not in link, f"{path.name}: {link}"


@pytest.mark.parametrize(
    ("answer", "given", "said"),
    [
        ("0.455", 0.46, "right"),
        ("0.455", 0.4, "not yet"),
        ("72", 72, "right"),  # a whole number is exact: s has to be a multiple of 12
        ("72", 71, "not yet"),
        ("0", 0, "right"),
        ("0", 1, "not yet"),
        ("72", None, ""),
        ("72", ": right", "give a number"),
    ],
)
def test_a_number_is_checked(capsys, answer, given, said):
    cell = student.check({1: answer}).source
    assert answer not in re.sub(r"[0-9a-f]{64}", "", cell).replace("0.99", "") or answer == "0"
    exec(cell, {"my_answers": {1: given}})
    assert capsys.readouterr().out == (f"exercise 1: {said}\n" if said else "")


def test_what_is_handed_in_is_graded(tmp_path, capsys):
    """02 has two numbers; a page that prints its own praise gets none for it, one that stops is said to."""
    for name, line in (("a", "my_answers = {1: 72, 2: 3.65}"), ("b", "my_answers = {1: 71, 2: 3.65}"), ("c", "1 / 0")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, "02_parameter_counting.ipynb", "s = 1", line, "print('exercise 1: right')")
    write(tmp_path, "else.ipynb", "s = 1", "pass")
    student.grade(tmp_path)
    lines = {line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()}
    page = "02_parameter_counting.ipynb"
    assert lines[f"a/{page}"] == "2 of 2" and lines[f"b/{page}"] == "1 of 2"
    assert lines[f"c/{page}"].startswith("0 of 2 stopped at cell 3")
    assert lines["else.ipynb"].startswith("none of our notebooks")
