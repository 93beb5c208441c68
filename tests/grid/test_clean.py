"""`palslib clean` removes the weights of finished runs, and nothing that is not ours, in use or unfinished."""

import json

import pytest
from palslib.common.lock import MARK, run_lock
from palslib.common.sealed import MANIFEST, seal

from palslib.__main__ import main


def run(folder, status="finished", mark=True):
    """A run's folder as `train` leaves it, with a megabyte in each of two places."""
    for name, file in (("last", "model.safetensors"), ("checkpoint", "tensors.bin")):
        (folder / name).mkdir(parents=True)
        (folder / name / file).write_bytes(bytes(1_000_000))
        seal(folder / name)
    (folder / "record.json").write_text(json.dumps({"status": status}))
    (folder / "predictions.npz").write_bytes(b"p")
    if mark:
        (folder / MARK).write_text("ours")
    return folder


def files(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_it_shows_asks_and_removes_the_weights_of_finished_runs(tmp_path, monkeypatch, capsys):
    done, theirs = run(tmp_path / "runs" / "train" / "a"), run(tmp_path / "runs" / "b", mark=False)
    going_on, outside = run(tmp_path / "runs" / "c", status="failed"), run(tmp_path / "elsewhere")
    for name in ("last.aside-1", "best.old"):  # set aside by us, and by a user
        (done / name).mkdir()
    (done / "best.csv").write_text("predictions that a user keeps beside the weights")
    (done / (left := f"last.{'0f' * 8}.tmp")).mkdir()  # by a killed writer
    (done / "best").symlink_to(outside / "last")
    (tmp_path / "runs" / "link").symlink_to(outside)
    before = [files(folder) for folder in (done, theirs, going_on, outside)]
    words = ["clean", "--folder", str(tmp_path / "runs")]
    asked = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or "n")
    assert main(words) == 0 and len(asked) == 1
    said = capsys.readouterr().out
    assert f"2.0 MB  train/a: checkpoint, last, {left}\n" in said
    assert "1 finished runs" in said and "nothing was removed" in said
    assert [files(folder) for folder in (done, theirs, going_on, outside)] == before
    (done / "best").unlink()  # through a link a run's folder is not written
    assert main([*words, "--yes"]) == 0 and len(asked) == 1
    assert files(done) == {"record.json", "predictions.npz", MARK, "last.aside-1", "best.old", "best.csv"}
    assert [files(folder) for folder in (theirs, going_on, outside)] == before[1:]
    assert main(words) == 0 and len(asked) == 1 and "nothing that clean removes" in capsys.readouterr().out


def test_a_file_among_the_weights_that_palslib_did_not_write_stays(tmp_path, capsys):
    folder = run(tmp_path / "a")
    for name in ("last", "checkpoint"):
        (folder / name / "notes.txt").write_text("mine")
    (folder / "checkpoint" / MANIFEST).write_text("damaged")
    assert main(["clean", "--folder", str(tmp_path), "--yes"]) == 0
    said = capsys.readouterr().out
    for name in ("last", "checkpoint"):
        assert f"a/{name} stays, with other files in it: notes.txt\n" in said and files(folder / name) == {"notes.txt"}


def test_it_refuses_what_is_not_ours_in_use_or_cannot_be_asked_about(tmp_path, monkeypatch, capsys):
    run(tmp_path / "theirs", mark=False)
    assert main(["clean", "--folder", str(tmp_path), "--yes"]) == 2
    assert f"{MARK} is missing" in capsys.readouterr().err
    done = run(tmp_path / "ours")
    before = files(done)
    monkeypatch.setattr("builtins.input", lambda _: (_ for _ in ()).throw(EOFError))
    assert main(["clean", "--folder", str(tmp_path)]) == 1 and "--yes" in capsys.readouterr().err
    with run_lock(done):
        assert main(["clean", "--folder", str(tmp_path), "--yes"]) == 1
    assert "in use" in capsys.readouterr().err and files(done) == before


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_record_that_cannot_be_read_is_named(tmp_path, capsys, text):
    (run(tmp_path / "a") / "record.json").write_text(text)
    assert main(["clean", "--folder", str(tmp_path), "--yes"]) == 2
    assert "record.json" in capsys.readouterr().err and (tmp_path / "a" / "last").is_dir()
