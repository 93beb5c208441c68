"""`palslib clean` removes the weights of finished runs, and nothing that is not ours, in use or unfinished."""

import json

from palslib.__main__ import main
from palslib.common.files import LOCK, one_writer


def run(folder, status="finished", lock=LOCK):
    """A run's folder as `train` leaves it, with a megabyte in each of two places."""
    (folder / "last").mkdir(parents=True)
    for name in ("last/model.safetensors", "checkpoint.before.pt"):
        (folder / name).write_bytes(bytes(1_000_000))
    for name in ("predictions.npz", "last/notes.md", "checkpoint.my.pt.txt"):
        (folder / name).write_text("what a user keeps there")
    (folder / lock).touch()
    (folder / "record.json").write_text(json.dumps({"status": status}))
    return folder


def files(folder) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_it_shows_asks_and_removes_the_weights_of_finished_runs(tmp_path, monkeypatch, capsys):
    done, theirs = run(tmp_path / "runs" / "train" / "a"), run(tmp_path / "runs" / "b", lock="mine")
    going_on, outside = run(tmp_path / "runs" / "c", status="failed"), run(tmp_path / "elsewhere")
    (done / "best").symlink_to(outside / "last")
    (tmp_path / "runs" / "link").symlink_to(outside)
    before = [files(folder) for folder in (done, theirs, going_on, outside)]
    words = ["clean", "--folder", str(tmp_path / "runs")]
    monkeypatch.setattr("builtins.input", lambda text: "n")
    assert main(words) == 0 and "2.0 MB  train/a\n" in capsys.readouterr().out
    assert [files(folder) for folder in (done, theirs, going_on, outside)] == before
    (done.parent / LOCK).touch()  # as `adapters` has it, each of whose tasks starts from the weights of the one before
    for folder in (done, done.parent):
        with one_writer(folder):
            assert main([*words, "--yes"]) == 1 and "in use" in capsys.readouterr().err and files(done) == before[0]
    assert main([*words, "--yes"]) == 0
    assert files(done) == before[0] - {"last/model.safetensors", "checkpoint.before.pt"}
    assert [files(folder) for folder in (theirs, going_on, outside)] == before[1:]


def test_a_record_that_cannot_be_read_is_named(tmp_path, capsys):
    (run(tmp_path / "a") / "record.json").write_text("[1]")
    assert main(["clean", "--folder", str(tmp_path), "--yes"]) == 1 and "record.json" in capsys.readouterr().err
    assert (tmp_path / "a" / "last" / "model.safetensors").exists()
