"""The ledger, and all that notebook 06 imports of it, works without torch and asks no hub for anything."""

import subprocess
import sys

from palslib.common.places import PROJECT

MODULES = "palslib.ledger.verdicts, palslib.ledger.view, palslib.ledger.claims, palslib.ledger.derivations"


def test_every_verdict_without_torch_and_without_a_hub():
    """In a process of its own, with the committed records; a hub's config would need huggingface_hub."""
    code = f"""
import sys
import {MODULES}, palslib.ledger.paper, palslib.figures.style, palslib.notebook
frame = palslib.ledger.verdicts.verdict_frame()
palslib.ledger.view.ratios_of_table_3(), palslib.ledger.view.averages_of_table_2()
palslib.ledger.view.find("1.13", frame)
print(len(frame), [name for name in ("torch", "transformers", "accelerate", "huggingface_hub") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split(maxsplit=1)[1].strip() == "[]", done.stdout + done.stderr
    assert int(done.stdout.split()[0]) >= 93


def test_what_is_slow_to_import_is_imported_when_it_is_used():
    """pandas is a third of a second; scipy and scikit-learn would be as much again, each."""
    imports = "import sys, palslib.ledger.verdicts, palslib.data.metrics"
    code = f"{imports}\nprint([name for name in sys.argv[1:] if name in sys.modules])"
    slow = ["torch", "transformers", "datasets", "scipy", "sklearn", "matplotlib"]
    done = subprocess.run([sys.executable, "-c", code, *slow], cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
