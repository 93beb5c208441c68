"""palslib: BERT and PALs (Stickland & Murray 2019) reproduced, counted and questioned.

The names below are the public interface. They are imported when first used, so that counting and planning do not load
torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # for editors and type checkers; when run, `__getattr__` imports the names
    from palslib.data.submission import write_submission as write_submission
    from palslib.data.tasks import TASKS as TASKS
    from palslib.data.tasks import Task as Task
    from palslib.data.tasks import load_rows as load_rows
    from palslib.grid.sweep import Grid as Grid
    from palslib.methods.counting import count_parameters as count_parameters
    from palslib.methods.counting import fit_budget as fit_budget
    from palslib.methods.operations import count_operations as count_operations
    from palslib.methods.table import METHODS as METHODS
    from palslib.methods.table import Method as Method
    from palslib.methods.table import get_method as get_method
    from palslib.model.learned import load_trained as load_trained
    from palslib.model.multi_task import MultiTaskModel as MultiTaskModel
    from palslib.plan.config import RunConfig as RunConfig
    from palslib.plan.sampling import TrainingPlan as TrainingPlan
    from palslib.plan.sampling import annealed_alpha as annealed_alpha
    from palslib.plan.sampling import task_probabilities as task_probabilities
    from palslib.records import load_records as load_records
    from palslib.study.analysis.identity import measured as measured
    from palslib.training.in_turn import train_in_turn as train_in_turn
    from palslib.training.loop import evaluate as evaluate
    from palslib.training.loop import train as train
    from palslib.training.pretraining import pretrain as pretrain

__version__ = "0.1.0"

_HOME = {
    "METHODS": "methods.table",
    "Method": "methods.table",
    "get_method": "methods.table",
    "count_parameters": "methods.counting",
    "fit_budget": "methods.counting",
    "count_operations": "methods.operations",
    "measured": "study.analysis.identity",
    "task_probabilities": "plan.sampling",
    "annealed_alpha": "plan.sampling",
    "TrainingPlan": "plan.sampling",
    "TASKS": "data.tasks",
    "Task": "data.tasks",
    "load_rows": "data.tasks",
    "MultiTaskModel": "model.multi_task",
    "load_trained": "model.learned",
    "RunConfig": "plan.config",
    "train": "training.loop",
    "evaluate": "training.loop",
    "train_in_turn": "training.in_turn",
    "pretrain": "training.pretraining",
    "write_submission": "data.submission",
    "Grid": "grid.sweep",
    "load_records": "records",
}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'palslib' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(f"palslib.{_HOME[name]}"), name)


def __dir__():
    return __all__
