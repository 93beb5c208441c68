"""The result of a run: its record and the trained model; and a trained model from any place where one is saved."""

from pathlib import Path

from palslib.common.files import LIST, read_list
from palslib.common.names import check_name
from palslib.common.places import as_path
from palslib.common.reading import read_object
from palslib.model.multi_task import MultiTaskModel
from palslib.model.saving import from_task


class Trained(dict):
    """The record of a finished run, as in `record.json`, with access to its model."""

    def __init__(self, record: dict, folder: Path, model: MultiTaskModel | None = None):
        """`model`: the one after the last step, where the run has ended in this process."""
        super().__init__(record)
        self.folder, self._last = folder.absolute(), model

    def model(self, which: str = "last") -> MultiTaskModel:
        """The trained model, in eval mode, ready for `predict`, `save_task` and `save_pretrained`.

        Args:
            which: `last` or, for a run with `keep="best"`, `best`: the weights with the best dev average.

        Raises ValueError if no such weights were kept (except for the last ones of a run just trained here), and if
        they have been exchanged.
        """
        check_name("weights", which, ("last", "best"))
        kept = self.folder / which
        if (kept / LIST).is_file():
            model = MultiTaskModel.from_pretrained(kept)  # its error names a damaged file
            if self.get("weights", {}).get(which) not in (None, read_list(kept)["digest"]):
                raise ValueError(f"the weights in {kept} are not those that this run has kept")
            return model
        if which == "last" and self._last is not None:
            self._last.sparse_embeddings = False  # other optimisers than a run's refuse sparse gradients
            return self._last.eval()
        raise ValueError(f"{self.folder} has no weights {which!r}: train with keep={which!r} into another folder")


def open_model(where: str | Path, backbone: str = "minilm") -> MultiTaskModel:
    """A trained model, in eval mode: from the folder of a saved model or of a run (its last weights), a task's file, or
    the Hub. `backbone` is the one that a task's file was trained on: its name, or the folder of the saved model."""
    here = as_path(where)
    if here.is_file():
        return from_task(MultiTaskModel, here, backbone)
    if (here / "record.json").is_file():
        return Trained(read_object(here / "record.json", "fields of a record"), here).model()
    return MultiTaskModel.from_pretrained(where)
