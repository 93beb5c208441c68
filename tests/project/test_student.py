"""The student edition: the same notebooks, with their solutions in files of their own."""

import nbformat
import pytest
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
        assert code[0] == [source for source in code[1] if not source.startswith("import hashlib")]


@pytest.mark.parametrize(("given", "said"), [(0.455, "right"), (0.46, "right"), (0.4, "not yet"), (None, "")])
def test_a_number_is_checked(capsys, given, said):
    cell = student.check({1: "0.455", 3: "4332"}).source
    assert "0.455" not in cell and "4332" not in cell
    exec(cell.replace("{1: None", f"{{1: {given}"), {})
    assert capsys.readouterr().out == f"exercise 1: {said}\n" * bool(said)


def test_answers_lie_beside_the_solutions_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    folder = student.main()
    checked = [path for path in folder.glob("*.ipynb") if "import hashlib" in path.read_text(encoding="utf-8")]
    assert len(checked) >= 8
    with pytest.raises(SystemExit, match="student is there already, perhaps with answers"):
        student.main()
    assert not any("<!-- answer" in path.read_text(encoding="utf-8") for path in folder.rglob("*.*"))
