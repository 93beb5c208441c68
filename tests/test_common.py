"""What every room uses: files written whole or not at all, seeds from words."""

import errno
import os
import resource
import signal

import numpy as np
import pytest

from palslib.common import atomic_write, read_json, read_object, seed_from, shown, write_text


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


def test_a_full_disk_names_the_file(tmp_path):
    """The system's error does not; here a file may have 10 bytes."""
    unlimited, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, unlimited[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*a\.txt'") as caught:
            write_text(tmp_path / "a.txt", "longer than that")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
        signal.signal(signal.SIGXFSZ, handler)
    assert caught.value.errno == errno.EFBIG and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not JSON: Expecting value"),
        (b'{"a": "\xff"}', "not JSON: 'utf-8' codec can't decode byte 0xff"),
        ("{}".encode("utf-16"), "not JSON: 'utf-8' codec"),
        (b'{"a": NaN}', "not JSON: NaN is not a finite number"),
        (b'{"a": 1e999}', "not JSON: 1e999 is not a finite number"),
        (b'{"a": ' + b"9" * 400 + b"}", "not JSON: 99999999999999999999 is not a finite number"),
        (b'{"a": 1, "a": 2}', "not JSON: the key 'a' comes twice"),
        (b"[" * 100_000 + b"]" * 100_000, "not JSON of ours: nested more than 64 deep"),
        (b"[" * 70 + b"]" * 70, "not JSON of ours: nested more than 64 deep"),
        (b"[1]", "not an object of parameters but a list"),
    ],
)
def test_what_is_no_json_is_named(content, message, tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        read_object(path)
    assert str(caught.value).startswith(f"{path}: {message}") and len(str(caught.value)) < 500


def test_json_comes_as_it_is(tmp_path):
    path = tmp_path / "a.json"
    path.write_text('{"a": [[1, 2.5, null, true]], "b": "\u00e4"}')
    assert read_json(path) == {"a": [[1, 2.5, None, True]], "b": "ä"}


def test_a_long_value_is_shown_in_part():
    assert shown("ab") == "'ab'" and shown([1] * 500, 9) == "[1, 1, 1,... (1,500 characters)"
