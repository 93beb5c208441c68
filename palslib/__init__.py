"""palslib: BERT and PALs (Stickland & Murray 2019) reproduced, counted and questioned.

The names below are the public surface. They are imported when first used, so that counting and planning never wait for
torch.
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "METHODS": "methods.table",
    "Method": "methods.table",
    "get_method": "methods.table",
    "count_parameters": "methods.counting",
    "fit_budget": "methods.counting",
    "count_operations": "methods.operations",
    "measured": "analysis.identity",
    "task_probabilities": "plan.sampling",
    "annealed_alpha": "plan.sampling",
    "TrainingPlan": "plan.sampling",
    "TASKS": "data.tasks",
    "Task": "data.tasks",
    "load_rows": "data.tasks",
    "load_task": "data.tasks",
    "MultiTaskModel": "model.multi_task",
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
