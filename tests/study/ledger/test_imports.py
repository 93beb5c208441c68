"""Counting, planning, the ledger with all that notebook 06 imports of it, and grids: without torch and the hub."""

import subprocess
import sys

from palslib.common.places import PROJECT

CODE = """
import sys, palslib.study.ledger.verdicts, palslib.data.metrics
print([name for name in ("torch", "transformers", "datasets", "scipy", "sklearn", "matplotlib") if name in sys.modules])

import palslib.study.ledger.claims, palslib.study.ledger.derivations, palslib.study.figures.style
import palslib.grid.sweep, palslib.study.notebook
import palslib.methods.operations
from palslib import TrainingPlan, count_parameters, fit_budget
from palslib.study.ledger import view
frame = palslib.study.ledger.verdicts.verdict_frame()
view.ratios_of_table_3(), view.averages_of_table_2(), view.find("1.13", frame)
count_parameters("pals-204"), fit_budget("pals-204", "minilm"), TrainingPlan({"rte": 5}, "annealed", 3).examples(2)
print([name for name in ("torch", "transformers", "accelerate", "huggingface_hub") if name in sys.modules])
"""


def test_every_verdict_without_torch_and_without_a_hub():
    """In a process of its own, with the committed records; a hub's config would need huggingface_hub. What is slow to
    import is imported when it is used: pandas is a third of a second; scipy and scikit-learn would be as much again."""
    done = subprocess.run([sys.executable, "-c", CODE], cwd=PROJECT, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["[]", "[]"], done.stdout + done.stderr
