"""What every room uses: files written whole or not at all, seeds from words."""

import errno
import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from palslib.common.files import atomic_write, recover, set_aside, whole, write_text
from palslib.common.lock import MARK, InUse, in_use, run_lock
from palslib.common.names import shown
from palslib.common.reading import read_json, read_object
from palslib.common.sealed import SEAL, Damaged, prove, prove_file, seal, seal_file
from palslib.common.seeds import seed_from


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "a.txt"
    write_text(path, "ä\n")
    with pytest.raises(KeyError), atomic_write(path) as temporary:
        temporary.write_bytes(b"half")
        raise KeyError
    assert path.read_bytes() == "ä\n".encode() and os.listdir(path.parent) == ["a.txt"]
    with atomic_write(path) as temporary:
        temporary.write_bytes(b"\x00")
        assert path.read_text(encoding="utf-8") == "ä\n"  # until the block's end
    assert path.read_bytes() == b"\x00" and os.listdir(path.parent) == ["a.txt"]


def write_folder(path, name, keep=False, fail=False):
    """Writes a folder with an empty file of this name."""
    with atomic_write(path, keep) as temporary:
        temporary.mkdir()
        (temporary / name).touch()
        if fail:
            raise KeyError


@pytest.fixture
def calls(monkeypatch):
    """What was flushed, renamed and removed, in order."""
    found = []
    for name, word in (("fsync", "flush"), ("replace", "rename"), ("rmdir", "remove")):
        plain = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, plain=plain, word=word, **k: (found.append(word), plain(*a, **k)))
    return found


def test_a_killed_process_leaves_one_whole_folder(tmp_path, monkeypatch):
    """Killed between the two renames: the one before is found, and comes back with the next write."""
    target, rename, renamed = tmp_path / "a", os.replace, []

    def killed_at_the_second(*names):
        renamed.append(names)
        if len(renamed) == 2:
            raise KeyboardInterrupt
        rename(*names)

    write_folder(target, "one")
    (tmp_path / "a.old").mkdir()  # somebody else's
    monkeypatch.setattr(os, "replace", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        write_folder(target, "two")
    monkeypatch.undo()
    assert not target.exists() and os.listdir(whole(target)) == ["one"]
    recover(target)
    assert os.listdir(target) == ["one"]
    target.rename(tmp_path / "a.0123456789abcdef.old")
    with pytest.raises(KeyError):
        write_folder(target, "three", fail=True)
    assert sorted(os.listdir(tmp_path)) == ["a", "a.old"] and os.listdir(target) == ["one"] and whole(target) == target


def test_the_folder_before_goes_when_the_next_is_on_the_disk(tmp_path, calls):
    """Whole or not at all. Flushed are what is written, and then the new name, else a machine that stops may have the
    name and nothing in it; only after that the one before is removed, or kept."""
    write_text(tmp_path / "file", "b")
    assert calls == ["flush", "rename", "flush"]
    write_folder(tmp_path / "a", "one")
    with pytest.raises(KeyError):
        write_folder(tmp_path / "a", "half", fail=True)
    assert os.listdir(tmp_path / "a") == ["one"]
    calls.clear()
    write_folder(tmp_path / "a", "two")
    assert os.listdir(tmp_path / "a") == ["two"] and sorted(os.listdir(tmp_path)) == ["a", "file"]
    assert calls == ["flush", "flush", "rename", "rename", "flush", "remove"]
    write_folder(tmp_path / "a", "three", keep=True)
    assert os.listdir(tmp_path / "a") == ["three"] and os.listdir(tmp_path / "a.old") == ["two"]


def test_temporary_names_cannot_be_foreseen(tmp_path):
    """Else a link of that name, laid by another user of the folder, would lead the writer elsewhere."""
    names = set()
    for _ in range(20):
        with atomic_write(tmp_path / "a") as temporary:
            assert temporary.name.startswith("a.") and str(os.getpid()) != temporary.name.split(".")[1]
            names.add(temporary.name)
            temporary.touch()
    assert len(names) == 20 and min(map(len, names)) >= 16


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_what_is_written_is_as_readable_as_the_umask_says(tmp_path, umask):
    """safetensors writes for the owner alone, as a file and in a folder."""
    before = os.umask(umask)
    try:
        with atomic_write(tmp_path / "one.safetensors") as temporary:
            save_file({"a": torch.zeros(1)}, temporary)
        with atomic_write(tmp_path / "folder") as temporary:
            temporary.mkdir()
            save_file({"a": torch.zeros(1)}, temporary / "model.safetensors")
            (temporary / "mine").touch(0o600)
    finally:
        os.umask(before)
    paths = [tmp_path / "one.safetensors", tmp_path / "folder" / "model.safetensors", tmp_path / "folder" / "mine"]
    assert [path.stat().st_mode & 0o777 for path in paths] == [0o666 & ~umask, 0o666 & ~umask, 0o600]


def test_what_a_kill_leaves_is_removed_by_the_next_writer(tmp_path):
    """Of the very name, and only what a writer named; nobody's of a writer that is still at it."""
    token = "0123456789abcdef"
    for name in (f"a.b.{token}.tmp", f"a.b.{token}.old", "a.b.mine.tmp", f"ab.{token}.tmp", "a", "a.b", "a.b.old"):
        (tmp_path / name).touch()
    with atomic_write(tmp_path / "c") as other:
        other.touch()
        write_text(tmp_path / "a.b", "")
        assert (tmp_path / f"a.b.{token}.tmp").exists()
    with atomic_write(tmp_path / "a.b") as temporary:
        temporary.touch()
    assert sorted(os.listdir(tmp_path)) == ["a", "a.b", "a.b.mine.tmp", "a.b.old", f"ab.{token}.tmp", "c"]


def test_nothing_is_written_through_a_link(tmp_path):
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "a").symlink_to(tmp_path / "mine")
    with pytest.raises(FileExistsError, match="link"):
        write_text(tmp_path / "a", "ours")
    assert (tmp_path / "a").is_symlink() and (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("name", ["lock", "best", "checkpoint", "last.mine.tmp", "best.old", "record.json"])
@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_palslib_did_not_write_is_refused_by_name(tmp_path, name, kind):
    """Without our mark even a lock is somebody's file; with it, a link still leads elsewhere."""
    folder, mine = tmp_path / "run", tmp_path / "mine"
    folder.mkdir()
    mine.write_text("mine")
    path = folder / name
    {"file": lambda: path.write_text("mine"), "folder": path.mkdir, "link": lambda: path.symlink_to(mine)}[kind]()
    before = path.lstat()
    with pytest.raises(ValueError, match=re.escape(str(path))), run_lock(folder):
        pass
    assert path.lstat() == before and mine.read_text() == "mine" and os.listdir(folder) == [name]
    if kind == "link" and name in ("lock", "best"):
        (folder / MARK).touch()
        with pytest.raises(ValueError, match="is a link"), run_lock(folder):
            pass


def test_what_is_set_aside_is_never_overwritten(tmp_path):
    for number in (1, 2):
        (tmp_path / "a").write_text(str(number))
        assert set_aside([tmp_path / "a", tmp_path / "missing"]) == f".aside-{number}"
    assert [(tmp_path / f"a.aside-{number}").read_text() for number in (1, 2)] == ["1", "2"]


def check_damage(path, prove, step=1):
    """Every bit (or every so many) of a file is flipped, one at a time, and its end lost: each is seen and named."""
    content = path.read_bytes()
    damaged = [content[:-1]]
    for bit in range(0, 8 * len(content), step):
        damaged.append(content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :])
    for other in damaged:
        path.write_bytes(other)
        with pytest.raises(Damaged, match=path.name):
            prove()
    path.write_bytes(content)
    prove()


def test_every_bit_of_what_is_sealed_counts(tmp_path):
    """Of a folder's data and, every seventh, of its manifest; of a file, also of the checksum inside it."""
    path = tmp_path / "a"
    path.write_bytes(b"before " + SEAL.encode() + b" after")
    seal_file(path)
    check_damage(path, lambda: prove_file(path))
    for other in (b"", path.read_bytes() + b"x"):
        path.write_bytes(other)
        with pytest.raises(Damaged):
            prove_file(path)
    (folder := tmp_path / "folder").mkdir()
    (folder / "data").write_bytes(bytes(range(16)))
    seal(folder, key="ours")
    assert prove(folder)["key"] == "ours"
    check_damage(folder / "data", lambda: prove(folder))
    check_damage(folder / "manifest.json", lambda: prove(folder), step=7)
    (folder / "data").unlink()
    with pytest.raises(Damaged, match="data is missing"):
        prove(folder)


def test_a_lock_is_held_by_one_and_leaves_nothing(tmp_path):
    folder = tmp_path / "run"
    with run_lock(folder) as lock:
        lock.check()
        assert in_use(folder) and sorted(os.listdir(folder)) == ["lock", MARK]
        with pytest.raises(InUse, match=re.escape(f"{folder} is in use by {lock.holder}")), run_lock(folder):
            pass
    assert not in_use(folder) and not folder.exists()
    folder.mkdir()
    (folder / "lock").write_text("process 1 on a machine that is gone")  # left by one that was killed
    (folder / MARK).touch()
    with run_lock(folder) as lock:
        lock.check()
    assert os.listdir(tmp_path) == ["run"] and os.listdir(folder) == []


def test_a_lock_is_never_had_by_two(tmp_path):
    """Eight processes take it 25 times each, while its file comes and goes: nobody finds another in the folder."""
    code = """
import os, sys
from pathlib import Path
from palslib.common.lock import InUse, run_lock
folder, done = Path(sys.argv[1]), 0
while done < 25:
    try:
        with run_lock(folder):
            os.close(os.open(folder / "here", os.O_CREAT | os.O_EXCL))
            os.unlink(folder / "here")
            done += 1
    except InUse:
        pass
"""
    processes = [subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "run")]) for _ in range(8)]
    assert [process.wait(120) for process in processes] == [0] * 8
    assert [path.name for path in tmp_path.rglob("*")] in ([], ["run"])  # empty


def test_a_folder_that_goes_while_it_is_made_is_made_again(tmp_path, monkeypatch):
    """Another holder had the folder when it was to be made, and has removed it since."""
    calls, make = [], os.mkdir

    def mkdir(path, *mode):
        calls.append(path)
        if len(calls) == 1:
            raise FileExistsError(path)
        make(path, *mode)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with run_lock(tmp_path / "run") as lock:
        lock.check()
    assert len(calls) == 2
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError), run_lock(tmp_path / "file"):
        pass


def test_seeds():
    """Golden values; NumPy's integers count as Python's; where words end and how they are ordered matters."""
    assert seed_from(0, "tasks", "annealed", bits=128) == 89488260321647888007716434179658794153
    assert seed_from(np.int64(3), np.str_("rte")) == seed_from(3, "rte")
    seeds = {seed_from(*words) for words in [(1, 23), (12, 3), (3, 12), (123,), ("123",), ("1", "23"), ("1 23",), ()]}
    assert len(seeds) == 8 and max(seeds) < 2**63
    with pytest.raises(TypeError):
        seed_from(0.5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON: Expecting value"),
        (b'{"a": "\xff"}', "not JSON: 'utf-8' codec can't decode byte 0xff"),
        (b'{"a": NaN}', "not JSON: NaN is not a finite number"),
        (b'{"a": ' + b"9" * 400 + b"}", "not JSON: 99999999999999999999 is not a finite number"),
        (b'{"a": 1, "a": 2}', "not JSON: the key 'a' occurs twice"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON that palslib reads: nested more than 64 levels deep"),
        (b"[" * 70 + b"]" * 70, "not JSON that palslib reads: nested more than 64 levels deep"),
        (b"[1]", "must be a JSON object with parameters, not a list"),
    ],
)
def test_what_is_no_json_is_named(content, message, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_object(path)
    assert str(caught.value).startswith(f"{path}: {message}") and len(str(caught.value)) < 500
    path.write_text('{"a": [[1, 2.5, null, true]], "b": "\u00e4"}', encoding="utf-8-sig")  # as Windows writes it
    assert read_json(path) == {"a": [[1, 2.5, None, True]], "b": "ä"}
    assert shown("ab") == "'ab'" and shown([1] * 500, 9) == "[1, 1, 1,..."


@pytest.mark.parametrize("lacks", ["module", "locks"])
def test_where_no_folder_can_be_locked_the_message_says_so(tmp_path, monkeypatch, lacks):
    """Windows has no `fcntl`, some network file systems have no locks."""
    if lacks == "module":
        monkeypatch.setitem(sys.modules, "fcntl", None)
    else:
        error = OSError(errno.ENOLCK, "No locks available")
        monkeypatch.setattr("fcntl.flock", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(OSError, match="must lock its folder"), run_lock(tmp_path / "run"):
        pytest.fail("locked")
