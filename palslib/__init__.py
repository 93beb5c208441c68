"""palslib: BERT and PALs (Stickland & Murray 2019) reproduced, counted and questioned.

The names below are the public surface. They are imported when first used, so that counting and planning never wait for
torch.
"""

import importlib

__version__ = "0.1.0"

_HOME = {
    "METHODS": "methods",
    "Method": "methods",
    "get_method": "methods",
    "count_parameters": "counting",
    "fit_budget": "counting",
    "count_operations": "operations",
    "measured": "identity",
    "task_probabilities": "sampling",
    "annealed_alpha": "sampling",
    "TrainingPlan": "sampling",
    "TASKS": "tasks",
    "Task": "tasks",
    "load_task": "tasks",
    "MultiTaskModel": "model",
    "RunConfig": "config",
    "train": "training",
    "evaluate": "training",
    "train_in_turn": "adapters",
    "pretrain": "pretraining",
    "write_submission": "submission",
    "Grid": "sweep",
    "load_records": "records",
}
__all__ = sorted(_HOME)


def __getattr__(name: str):
    if name not in _HOME:
        raise AttributeError(f"module 'palslib' has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(importlib.import_module(f"palslib.{_HOME[name]}"), name)


def __dir__():
    return __all__
