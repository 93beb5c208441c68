"""Trained tasks that are shipped with the package, for its default backbone MiniLM.

The backbone was frozen during training, so each task fits the public MiniLM and is one small file with its adaptation
and head in half precision. `palslib sweep trained` repeats the training on GLUE's eight tasks (2,000 steps, about an
hour on one core, with access to GLUE). Those that scored clearly better than guessing were stored here by
`model.save_task(task, "palslib/model/learned", torch.float16)`; the run's record is in `figures/records/trained/`.
"""

from pathlib import Path

from palslib.common.names import check_name
from palslib.model.multi_task import MultiTaskModel

_FOLDER = Path(__file__).parent / "learned"


def load_trained(*tasks: str) -> MultiTaskModel:
    """MiniLM with PALs (s = 120) and heads that were trained on GLUE's mnli, qnli, qqp and sst2, in eval mode.

    >>> load_trained("sst2").predict("A joy from start to finish.", "sst2")["label"].item()
    'positive'

    Args:
        tasks: names of some of these four; without any name, all of them.

    Raises ValueError for another name.
    """
    there = {path.stem: path for path in sorted(_FOLDER.glob("*.safetensors"))}
    model = MultiTaskModel.from_backbone("minilm", "pals-204", tasks=(), size=120, freeze="backbone")
    for task in tasks or there:
        model.load_task(there[check_name("trained task", task, there)])
    return model
