"""Settings of all tests: no Hugging Face hub, no display, a new runs folder, real data only from PALSLIB_DATA."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

import pytest

from palslib.common.places import data_folder

os.environ["OMP_NUM_THREADS"] = "1"  # sums differ in their last bits with the number of threads
if not os.environ.get("PALSLIB_GPU"):  # all tests but those of `test_on_a_gpu.py` compare bits of a CPU
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def pytest_configure(config):
    """Makes the settings that are needed before anything else is imported, and before nbval starts a kernel."""
    if data_folder():
        os.environ["PALSLIB_DATA"] = str(data_folder())
    if os.environ.get("PALSLIB_RUNS"):  # made absolute: nbval starts its kernels in notebooks/
        os.environ["PALSLIB_RUNS"] = os.path.abspath(os.environ["PALSLIB_RUNS"])
    else:  # a new folder, so that no test finds files of an earlier run
        config.own_runs = os.environ["PALSLIB_RUNS"] = tempfile.mkdtemp(prefix="palslib-runs-")
    if config.getoption("nbval", False):
        config.option.nbval_current_env = True  # this interpreter, whichever kernel is registered as `python3`
        config.option.nbval_cell_timeout = min(config.option.nbval_cell_timeout, 600)
        os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # under Agg no cell outputs a figure
    else:
        os.environ.setdefault("MPLBACKEND", "Agg")


def pytest_unconfigure(config):
    if hasattr(config, "own_runs"):
        shutil.rmtree(config.own_runs, ignore_errors=True)
        del os.environ["PALSLIB_RUNS"]


def pytest_collectstart(collector):
    if hasattr(collector, "skip_compare"):  # a notebook under nbval: progress bars and warnings are not results
        collector.skip_compare += ("stderr",)


def pytest_collection_modifyitems(items):
    """Puts notebooks last; skips `real_data` tests without PALSLIB_DATA, and slow tests without PALSLIB_SLOW."""
    items.sort(key=lambda item: item.path.name == "test_notebooks.py")
    for item in items:
        if hasattr(item, "output_timeout"):  # nbval waits 5 s for a cell's output, too short on a busy machine
            item.output_timeout = 60
        if item.get_closest_marker("real_data") or "real_data" in getattr(item, "fixturenames", ()):
            reason = "needs real data: PALSLIB_DATA is not set"
            item.add_marker(pytest.mark.skipif(data_folder() is None, reason=reason))
        if item.get_closest_marker("slow") and not os.environ.get("PALSLIB_SLOW"):
            item.add_marker(pytest.mark.skip(reason="slow: PALSLIB_SLOW=1 runs it"))


@pytest.fixture
def real_data() -> Path:
    """The folder of real files that PALSLIB_DATA names: glue, minbert, crowdflower."""
    folder = data_folder()
    assert folder.is_dir(), f"PALSLIB_DATA={folder} is not a folder"
    return folder


@pytest.fixture(autouse=True)
def own_figures():
    """Resets matplotlib's style before each test and closes all figures after it."""
    import matplotlib  # only here: it reads MPLBACKEND when it is imported

    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a fixture of a whole module may have changed it before this test
        yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture(scope="module")
def tokenizer():
    """That of the tiny backbone."""
    from palslib.bert.backbones import load_tokenizer  # only here: most notebooks do not need it

    return load_tokenizer("tiny")


@pytest.fixture(scope="module")
def small_groups():
    """Lets short rows form several groups in attention, as long ones do."""
    from palslib.bert import rows

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows, "WASTE", 12)
        patch.setattr(rows, "AREA", 100)
        yield
