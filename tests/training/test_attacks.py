"""A tenth of the attack on runs, see `attack_runs.py`; all of it is `python tests/training/attack_runs.py`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.slow
def test_a_tenth_of_the_attack_finds_no_defect():
    """In a process of its own, which forks: no test before it may have started threads."""
    call = [sys.executable, str(Path(__file__).with_name("attack_runs.py")), "--seed", "7", "--fraction", "0.1"]
    about = {"env": os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}, "capture_output": True, "text": True}
    done = subprocess.run(call, **about, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "30 attacks" in done.stdout
