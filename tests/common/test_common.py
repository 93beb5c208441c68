"""What every room uses: files written whole or not at all, one writer a folder, seeds, strict JSON, settings."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from palslib.common.files import LIST, LOCK, InUse, atomic_write, check_files, in_use, one_writer, saved_files
from palslib.common.precision import autocast, precision_of, products
from palslib.common.reading import read_object
from palslib.common.seeds import seed_from
from palslib.grid.sweep import Grid
from palslib.methods.table import get_method
from palslib.plan.config import RunConfig
from palslib.plan.sampling import TrainingPlan


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    """With the permissions of the umask, then of the file before; safetensors writes for the owner alone."""
    path, tensors, content = tmp_path / "new" / "a", {"a": torch.zeros(1)}, []
    os.umask(umask := os.umask(0))
    for mode in (0o666 & ~umask, 0o640):
        with pytest.raises(KeyError), atomic_write(path) as temporary:
            temporary.write_bytes(b"half")
            raise KeyError
        assert [file.read_bytes() for file in path.parent.iterdir()] == content
        with atomic_write(path) as temporary:
            save_file(tensors, temporary)
            assert [file.read_bytes() for file in path.parent.iterdir() if file != temporary] == content
        assert load_file(path).keys() == tensors.keys()
        assert path.stat().st_mode & 0o777 == mode and os.listdir(path.parent) == ["a"]
        path.write_bytes(b"1")
        content = [b"1"]
        path.chmod(0o640)


def save(folder, fail=False, **texts):
    with saved_files(folder, {"what": "mine"}) as new:
        for name, text in texts.items():
            (new / name).write_text(text)
        if fail:
            raise KeyError


def test_a_save_replaces_and_removes_only_what_an_earlier_one_listed(tmp_path):
    save(tmp_path, a="1", b="1")
    (tmp_path / "vocabulary").write_text("mine")
    with pytest.raises(KeyError):
        save(tmp_path, a="2", fail=True)
    with saved_files(tmp_path, {}) as new:
        (new / "a").write_text("3")
        (tmp_path / "note").write_text("mine, written during the save")
    assert sorted(os.listdir(tmp_path)) == ["a", "note", LIST, "vocabulary"] and check_files(tmp_path)
    assert (tmp_path / "a").read_text() == "3" and (tmp_path / "vocabulary").read_text() == "mine"
    for name in ("note", LIST):  # a user's file of a name that is to be saved; a list of somebody else's
        (tmp_path / LIST).write_text((tmp_path / LIST).read_text() if name == "note" else "{}")
        with pytest.raises((FileExistsError, ValueError), match=f"{name}.*(which|not written by)"):
            save(tmp_path, a="4", note="ours")
        assert (tmp_path / "a").read_text() == "3" and (tmp_path / "note").read_text().startswith("mine")


@pytest.mark.parametrize("moved", range(4))
def test_a_kill_between_two_files_loses_nothing(tmp_path, monkeypatch, moved):
    """Of a first save and of a second one: the list and two files, killed after none to all of these. Once the list is
    there, the others are moved when the folder is read; if they are gone, that is noticed."""
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
        if moved:
            assert check_files(tmp_path) and [(tmp_path / name).read_text() for name in "ab"] == [text, text]
        save(tmp_path, a=text, b=text)
        assert check_files(tmp_path)["what"] == "mine" and sorted(os.listdir(tmp_path)) == ["a", "b", LIST]


def test_a_folder_has_one_writer_who_leaves_the_lock(tmp_path):
    folder = tmp_path / "run"
    assert not in_use(folder) and not folder.exists()
    with one_writer(folder) as check:
        check()
        assert in_use(folder)
        with pytest.raises(InUse, match="run is in use"), one_writer(folder):
            pass
        shutil.rmtree(folder)
        with one_writer(folder), pytest.raises(InUse, match="deleted or taken over"):
            check()
    (folder / ".a.0.palslib-tmp").touch()  # of one that was killed
    with one_writer(folder):
        assert os.listdir(folder) == [LOCK]
    assert not in_use(folder)
    (folder / LOCK).write_text("mine")  # a note that is called like our lock is not ours
    with pytest.raises(ValueError, match="files in it that palslib did not write"), one_writer(folder):
        pass
    assert (folder / LOCK).read_text() == "mine"


def test_seeds():
    """A golden value; where words end, how they are ordered and whether they are numbers matters."""
    assert seed_from(0, "tasks", "annealed", bits=128) == 89488260321647888007716434179658794153
    seeds = {seed_from(*words) for words in [(1, 23), (12, 3), (3, 12), (123,), ("123",), ("1", "23"), ("1 23",), ()]}
    assert len(seeds) == 8 and max(seeds) < 2**63


NO_JSON = {b"": "Expecting value", b'{"a": "\xff"}': "0xff", b'{"a": NaN}': "NaN", b'{"a": 1e400}': "not a finite"}
NO_JSON |= {b'{"a": 1, "a": 2}': "'a' occurs twice", b"[1]": "object with parameters, not a list"}


@pytest.mark.parametrize("content", NO_JSON)
def test_what_is_no_json_is_named(tmp_path, content):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{path}.*{NO_JSON[content]}"):
        read_object(path)
    path.write_text('{"a": [[1, 2.5, null, true]], "b": "\u00e4"}', encoding="utf-8-sig")  # as Windows writes it
    assert read_object(path) == {"a": [[1, 2.5, None, True]], "b": "ä"}


def test_settings_are_pythons_types():
    config = RunConfig(seed=np.int64(3), data=Path("synthetic"), learning_rate=np.float64(1e-3), tasks=["rte"])
    assert config.key == RunConfig(seed=3, data="synthetic", learning_rate=1e-3, tasks=("rte",)).key
    assert type(config.seed) is int and config.data == "synthetic"
    assert Grid(product={"seed": np.arange(2)}).product == {"seed": [0, 1]}
    assert TrainingPlan({"a": 5}, "proportional", np.int64(4)) == TrainingPlan({"a": 5}, "proportional", 4)
    assert get_method("pals-204", size=np.int64(60)) == get_method("pals-204", size=60)


def test_products_are_exact_but_for_tf32_and_then_as_before():
    """ "high" is torch's word for TF32. What a user had set enters no run, and comes back after an error too."""
    with pytest.raises(ValueError, match="precision='tf32' needs a GPU; on a CPU give 'bf16', 'float32' or 'auto'"):
        precision_of("tf32", torch.device("cpu"))
    torch.set_float32_matmul_precision("medium")
    try:
        for precision, word in (("float32", "highest"), ("bf16", "highest"), ("tf32", "high")):
            with pytest.raises(KeyError), products(precision), autocast(precision, torch.device("cpu")):
                assert torch.get_float32_matmul_precision() == word
                assert torch.is_autocast_enabled("cpu") == (precision == "bf16")
                raise KeyError
            assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
