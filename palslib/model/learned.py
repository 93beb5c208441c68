"""Tasks that have learned something, shipped with the package: GLUE's eight, for the MiniLM that it starts from.

The backbone was frozen while they were trained, so it is the one that everybody has, and a task is its own small file:
adaptation and head in half precision. `palslib sweep trained` trains them anew (twenty minutes of one core, with GLUE
within reach), `ship` puts them here; the run's record is in `figures/records/trained/`.
"""

from pathlib import Path

import torch

from palslib.common.names import check_name
from palslib.methods.table import get_method
from palslib.model.multi_task import MultiTaskModel

_FOLDER = Path(__file__).parent / "learned"
_METHOD = get_method("pals-204", size=120, freeze="backbone")


def load_trained(*tasks: str) -> MultiTaskModel:
    """MiniLM with PALs (s = 120) and heads that were trained on GLUE, in eval mode.

    >>> load_trained("sst2").predict("A joy from start to finish.", "sst2")["label"].item()
    'positive'

    Args:
        tasks: names of `TASKS`; none: all eight.

    Raises ValueError for another name.
    """
    there = {path.stem: path for path in sorted(_FOLDER.glob("*.safetensors"))}
    model = MultiTaskModel.from_backbone("minilm", _METHOD, tasks=())
    for task in tasks or there:
        model.load_task(there[check_name("trained task", task, there)])
    return model


def ship(model: MultiTaskModel) -> None:
    """Puts a trained model's tasks where `load_trained` finds them."""
    for task in model.tasks:
        model.save_task(task, _FOLDER, torch.float16)
