"""What every room uses: files written whole or not at all, one writer a folder, seeds from words, strict JSON."""

import errno
import os
import re
import shutil
from contextlib import suppress

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from palslib.common.files import (
    LIST,
    LOCK,
    TEMPORARY,
    InUse,
    atomic_write,
    check_files,
    digest,
    in_use,
    one_writer,
    saved_files,
    write_text,
)
from palslib.common.names import shown
from palslib.common.reading import read_json, read_object
from palslib.common.seeds import seed_from


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "new" / "a.txt"
    write_text(path, "ä\n")
    with pytest.raises(KeyError), atomic_write(path) as temporary:
        temporary.write_bytes(b"half")
        raise KeyError
    assert path.read_bytes() == "ä\n".encode() and os.listdir(path.parent) == ["a.txt"]

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
        patch.setattr(os, "fsync", full)
        write_text(path, "b")
    with atomic_write(path) as temporary:
        temporary.write_bytes(b"\x00")
        assert path.read_text(encoding="utf-8") == "ä\n"  # until the block's end
    assert path.read_bytes() == b"\x00" and os.listdir(path.parent) == ["a.txt"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_what_is_written_is_as_readable_as_the_umask_or_the_file_before_says(tmp_path, umask):
    """safetensors writes for the owner alone."""
    before = os.umask(umask)
    try:
        for path, mode in ((tmp_path / "one", 0o666 & ~umask), (tmp_path / "other", 0o640)):
            if mode == 0o640:
                path.touch()
                path.chmod(mode)
            with atomic_write(path) as temporary:
                save_file({"a": torch.zeros(1)}, temporary)
            assert path.stat().st_mode & 0o777 == mode
    finally:
        os.umask(before)


def save(folder, fail=False, **texts):
    with saved_files(folder, {"what": "mine"}) as new:
        for name, text in texts.items():
            (new / name).write_text(text)
        if fail:
            raise KeyError


def test_a_save_replaces_and_removes_only_what_an_earlier_one_listed(tmp_path):
    save(tmp_path, a="1", b="1")
    (tmp_path / "vocabulary").write_text("mine")
    (tmp_path / "vocabulary").chmod(0o600)
    there = (tmp_path / "vocabulary").stat()
    with pytest.raises(KeyError):
        save(tmp_path, a="2", fail=True)
    with saved_files(tmp_path, {}) as new:
        (new / "a").write_text("3")
        (tmp_path / "note").write_text("mine, written during the save")
    assert sorted(os.listdir(tmp_path)) == ["a", "note", LIST, "vocabulary"] and check_files(tmp_path)
    assert (tmp_path / "a").read_text() == "3" and (tmp_path / "vocabulary").stat() == there
    for name in ("note", LIST):  # a user's file of a name that is to be saved; a list of somebody else's
        (tmp_path / LIST).write_text((tmp_path / LIST).read_text() if name == "note" else "{}")
        with pytest.raises((FileExistsError, ValueError), match=f"{name}.*(which|not written by)"):
            save(tmp_path, a="4", note="ours")
        assert (tmp_path / "a").read_text() == "3" and (tmp_path / "note").read_text().startswith("mine")


@pytest.mark.parametrize("moved", range(4))
def test_a_kill_between_two_files_is_noticed_and_the_next_save_goes_through(tmp_path, monkeypatch, moved):
    """Of a first save and of a second one: the list and two files, killed after none to all of these."""
    replace, calls = os.replace, []

    def killed(*names):
        if os.path.dirname(names[1]) == str(tmp_path):
            calls.append(names)
            if len(calls) > moved:
                raise SystemExit
        replace(*names)

    for text in "12":
        calls.clear()
        with monkeypatch.context() as patch, suppress(SystemExit):
            patch.setattr(os, "replace", killed)
            patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # a killed process removes nothing
            save(tmp_path, a=text, b=text)
        if moved in (1, 2):
            with pytest.raises(ValueError, match="is missing, damaged, or not of the save"):
                check_files(tmp_path)
        save(tmp_path, a=text, b=text)
        assert check_files(tmp_path)["what"] == "mine" and sorted(os.listdir(tmp_path)) == ["a", "b", LIST]


def test_every_bit_of_a_saved_file_counts(tmp_path):
    save(tmp_path, a="abc", b="d")
    for name in ("a", LIST):
        content = (tmp_path / name).read_bytes()
        for bit in range(0, 8 * len(content), 1 if name == "a" else 7):
            flipped = content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]
            (tmp_path / name).write_bytes(flipped)
            with pytest.raises(ValueError, match=re.escape(str(tmp_path))):
                check_files(tmp_path)
        (tmp_path / name).write_bytes(content)
    assert check_files(tmp_path)
    (tmp_path / "b").unlink()
    os.mkfifo(tmp_path / "b")  # which is not waited for
    with pytest.raises(ValueError, match="b is missing"):
        check_files(tmp_path)


def test_a_digest_is_of_content_alone(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text("x")
    one, other = torch.arange(4.0), torch.arange(8.0)[::2] / 2  # equal values, elsewhere in memory
    assert digest(tmp_path / "a") == digest(tmp_path / "b") != digest("x")
    assert digest({"a": one, "b": other}) == digest({"b": one, "a": other}) != digest({"a": one + 1, "b": other})


def test_a_folder_has_one_writer_who_leaves_the_lock(tmp_path):
    folder = tmp_path / "run"
    assert not in_use(folder) and not folder.exists()
    with one_writer(folder) as check:
        check()
        assert in_use(folder)
        with pytest.raises(InUse, match=re.escape(f"{folder} is in use")), one_writer(folder):
            pass
        shutil.rmtree(folder)
        with pytest.raises(InUse, match="deleted or taken over"):
            check()
        with one_writer(folder), pytest.raises(InUse):
            check()
    assert not in_use(folder) and os.listdir(folder) == [LOCK]
    (folder / f".a.0{TEMPORARY}").touch()  # of one that was killed
    with one_writer(folder):
        assert os.listdir(folder) == [LOCK]


@pytest.mark.parametrize("name", [LOCK, "record.json", "best"])
def test_a_folder_that_palslib_did_not_write_is_refused(tmp_path, name):
    """A note that is called like our lock is not ours either."""
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match="files in it that palslib did not write"), one_writer(tmp_path):
        pass
    assert os.listdir(tmp_path) == [name] and (tmp_path / name).read_text() == "mine"


def test_seeds():
    """Golden values; NumPy's integers count as Python's; where words end and how they are ordered matters."""
    assert seed_from(0, "tasks", "annealed", bits=128) == 89488260321647888007716434179658794153
    assert seed_from(np.int64(3), np.str_("rte")) == seed_from(3, "rte")
    seeds = {seed_from(*words) for words in [(1, 23), (12, 3), (3, 12), (123,), ("123",), ("1", "23"), ("1 23",), ()]}
    assert len(seeds) == 8 and max(seeds) < 2**63
    with pytest.raises(TypeError):
        seed_from(0.5)


def test_what_is_no_json_is_named(tmp_path):
    path = tmp_path / "a.json"
    wrong = {b"": "Expecting value", b'{"a": "\xff"}': "0xff", b'{"a": NaN}': "NaN", b'{"a": 1e400}': "not a finite"}
    wrong |= {b'{"a": 1, "a": 2}': "'a' occurs twice", b"[1]": "object with parameters, not a list"}
    for content, word in wrong.items():
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"{path}.*{word}"):
            read_object(path)
    path.write_text('{"a": [[1, 2.5, null, true]], "b": "\u00e4"}', encoding="utf-8-sig")  # as Windows writes it
    assert read_json(path) == {"a": [[1, 2.5, None, True]], "b": "ä"}
    assert shown("ab") == "'ab'" and shown([1] * 500, 9) == "[1, 1, 1,..."
