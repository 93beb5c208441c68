"""The student edition: the same notebooks, with their solutions in files of their own."""

import nbformat
import student

from palslib.common.places import PROJECT


def test_solutions_are_in_files_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    folder = student.main()
    for path in (PROJECT / "notebooks").glob("*.ipynb"):
        ours, theirs = (nbformat.read(of / path.name, as_version=4).cells for of in (path.parent, folder))
        number = sum(cell.source.count("<summary>Solution") for cell in ours)
        solutions = (folder / "solutions" / f"{path.stem}.md").read_text(encoding="utf-8")
        assert number == solutions.count("\n## Exercise ") == sum(c.source.count("*Your answer:*") for c in theirs) > 1
        assert "<summary>Solution" not in "".join(cell.source for cell in theirs)
        assert not any(cell.get("outputs") for cell in theirs)
        code = [[cell.source for cell in cells if cell.cell_type == "code"] for cells in (ours, theirs)]
        assert code[0] == code[1]
