"""Tasks that have learned something, shipped with the package, for the MiniLM that it starts from.

The backbone was frozen while they were trained, so it is the one that everybody has, and a task is its own small file:
adaptation and head in half precision. `palslib sweep trained` trains GLUE's eight anew (a quarter of an hour on one
core, with GLUE within reach), `ship` puts here those that got beyond guessing in those 2,000 steps; the run's record is
in `figures/records/trained/`.
"""

from pathlib import Path

import torch

from palslib.common.names import check_name
from palslib.methods.table import get_method
from palslib.model.multi_task import MultiTaskModel

_FOLDER = Path(__file__).parent / "learned"
_METHOD = get_method("pals-204", size=120, freeze="backbone")


def load_trained(*tasks: str) -> MultiTaskModel:
    """MiniLM with PALs (s = 120) and heads that were trained on GLUE's mnli, qnli, qqp and sst2, in eval mode.

    >>> load_trained("sst2").predict("A joy from start to finish.", "sst2")["label"].item()
    'positive'

    Args:
        tasks: some of these four; none: all of them.

    Raises ValueError for another name.
    """
    there = {path.stem: path for path in sorted(_FOLDER.glob("*.safetensors"))}
    model = MultiTaskModel.from_backbone("minilm", _METHOD, tasks=())
    for task in tasks or there:
        model.load_task(there[check_name("trained task", task, there)])
    return model


def ship(model: MultiTaskModel, *tasks: str) -> None:
    """Puts tasks of a trained model where `load_trained` finds them."""
    for task in tasks:
        model.save_task(task, _FOLDER, torch.float16)
