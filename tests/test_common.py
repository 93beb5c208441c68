"""What every room uses: files written whole or not at all, seeds from words."""

import os

import numpy as np
import pytest

from palslib.common import atomic_write, seed_from, write_text


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


def test_a_folder_is_written_whole_or_not_at_all(tmp_path):
    def write(text, fail=False):
        with atomic_write(tmp_path / "a") as temporary:
            (temporary / "b").mkdir(parents=True)
            (temporary / "b" / text).touch()
            if fail:
                raise KeyError

    write("one")
    with pytest.raises(KeyError):
        write("two", fail=True)
    assert os.listdir(tmp_path / "a" / "b") == ["one"]
    write("three")
    assert os.listdir(tmp_path / "a" / "b") == ["three"] and os.listdir(tmp_path) == ["a"]


def test_a_killed_process_leaves_one_whole_folder(tmp_path, monkeypatch):
    """Killed between the two renames: the one before is at `.old`, and the next call ends as if nothing had been."""
    target, rename, renamed = tmp_path / "a", os.replace, []

    def killed_at_the_second(*names):
        renamed.append(names)
        if len(renamed) == 2:
            raise KeyboardInterrupt
        rename(*names)

    def write(name):
        with atomic_write(target) as temporary:
            temporary.mkdir()
            (temporary / name).touch()

    write("one")
    monkeypatch.setattr(os, "replace", killed_at_the_second)
    with pytest.raises(KeyboardInterrupt):
        write("two")
    assert os.listdir(tmp_path) == ["a.old"] and os.listdir(tmp_path / "a.old") == ["one"]
    write("three")
    assert os.listdir(tmp_path) == ["a"] and os.listdir(target) == ["three"]


def test_what_is_written_is_flushed_before_it_is_renamed(tmp_path, monkeypatch):
    """Else a machine that stops may have the new name and nothing in it."""
    calls, flush, rename = [], os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda number: (calls.append("flush"), flush(number)))
    monkeypatch.setattr(os, "replace", lambda *names: (calls.append("rename"), rename(*names)))
    write_text(tmp_path / "a", "b")
    assert calls == ["flush", "rename", "flush"]


def test_seeds():
    """Golden values; NumPy's integers count as Python's; where words end and how they are ordered matters."""
    assert seed_from(0, "tasks", "annealed", bits=128) == 89488260321647888007716434179658794153
    assert seed_from(np.int64(3), np.str_("rte")) == seed_from(3, "rte")
    seeds = {seed_from(*words) for words in [(1, 23), (12, 3), (3, 12), (123,), ("123",), ("1", "23"), ("1 23",), ()]}
    assert len(seeds) == 8 and max(seeds) < 2**63
    with pytest.raises(TypeError):
        seed_from(0.5)
