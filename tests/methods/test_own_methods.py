"""Methods from outside the package are methods like the others; here LoRA and (IA)³, which METHODS does not list."""

import json
import linecache
from dataclasses import asdict, replace

import pytest
import torch
from shapes import LAYERS, batch, randomise, tiny_encoder

from palslib import METHODS, MultiTaskModel, RunConfig, fit_budget, train
from palslib.data.tasks import get_task
from palslib.methods import ia3, lora
from palslib.methods.adaptation import Adaptation
from palslib.methods.method import Method, Term
from palslib.methods.pal import PAL


class LoRA(lora.LoRA):
    """A family of one's own, with the modules of another one."""


class IA3(ia3.IA3):
    """Likewise."""


@pytest.fixture(autouse=True)
def own_families(monkeypatch):
    """What a test defines is gone after it."""
    monkeypatch.setattr(Method, "families", dict(Method.families))


OWN = [LoRA("lora", size=4), IA3("ia3")]
own = pytest.mark.parametrize("method", OWN, ids=lambda method: method.name)


@own
def test_counted_as_built(method):
    """d = 24, d_ff = 37, L = 3. LoRA of rank 4: 6 · 2 · 24 · 4 = 1,152; (IA)³: 3 · 85. No vector is decayed: the
    released code decays LHUC's alone (ledger D15)."""
    model = MultiTaskModel.from_backbone(tiny_encoder(), method, ["rte", "stsb"])
    assert sum(p.numel() for p in model.adaptations["rte"].parameters()) == {"lora": 1_152, "ia3": 255}[method.name]
    decayed = {id(p) for group in model.parameter_groups(0.01, True) if group["weight_decay"] for p in group["params"]}
    assert decayed and not any(id(p) in decayed for p in model.parameters() if p.ndim == 1)


def test_saved_and_loaded(tmp_path, monkeypatch):
    """Loaded where it is defined; elsewhere it is named."""
    MultiTaskModel.from_backbone(tiny_encoder(), OWN[0], ["rte"]).save_pretrained(tmp_path)
    assert type(MultiTaskModel.from_pretrained(tmp_path).method) is LoRA
    monkeypatch.delitem(Method.families, "LoRA")
    with pytest.raises(ValueError, match=r"unknown kind of method 'LoRA'.*; define a family of your"):
        MultiTaskModel.from_pretrained(tmp_path)


# --- in a config
def config(method, **changes) -> RunConfig:
    small = {"backbone": "tiny", "tasks": ("rte",), "steps": 3, "batch_size": 4, "progress": False, "keep": "last"}
    return RunConfig(method=method, **small | changes)


@own
def test_a_config_takes_a_method_itself(method, tmp_path):
    """It is JSON all the same, with a key of its own, and says only what is not as in the family."""
    given = config(method)
    assert given.resolved_method() == method and given.method == method.name
    fields = {"kind": method.kind} | ({"size": 4} if method.has_size else {})
    assert given.own_method == fields and given.size is None
    again = RunConfig.from_dict(json.loads(json.dumps(asdict(given))))
    assert (again, again.key) == (given, given.key)
    assert config(replace(method, pooler="per-task")).key != given.key != config(replace(method, name="mine")).key
    record = train(replace(given, folder=str(tmp_path)))
    assert record["method"] == method.to_dict() and record["config"]["own_method"] == fields
    assert record.model().method == method


def test_a_row_of_the_table_is_its_name_and_what_it_differs_by():
    fitted = fit_budget("pals-204", "minilm")
    assert config(METHODS["pals-204"]) == config("pals-204", size=204)
    assert config(fitted) == config("pals-204", size=fitted.size)
    changed = config(METHODS["pals-204"].with_options(heads=6), method_options={"activation": "gelu"}, size=60)
    assert changed.method_options == {"heads": 6, "activation": "gelu"} and changed.resolved_method().size == 60
    for size in (None, "paper"):  # its own
        assert config(METHODS["pals-204"].with_options(size=60), size=size).resolved_method().size == 60
    assert replace(config(fitted), method=METHODS["low-rank-100"], size=None).resolved_method().size == 100
    kept = config(METHODS["ffn-306"].with_options(size=100, inner=(306,)))  # not scaled with the size
    assert (kept.resolved_method().size, kept.resolved_method().inner) == (100, (306,))
    named = config(replace(METHODS["pals-204"], name="mine", size=60))  # of a family that every process knows
    assert (named.own_method, named.resolved_method().size) == ({"kind": "pal", "size": 60}, 60)
    assert type(config("mine", own_method={"kind": "lora"}).resolved_method()) is lora.LoRA


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"own_method": {"kind": "LoRA", "rank": 2}}, "option of 'LoRA' 'rank'.*size, layers"),
        ({"own_method": {"kind": "lora", "size": 4}, "size": 8}, "size is in own_method already"),
        ({"own_method": {"kind": "lora", "size": 4}, "size": "budget"}, "size is in own_method already"),
        ({"method": METHODS["pals-204"].with_options(size=60), "size": 120}, "size=120 contradicts the size 60"),
        ({"method": PAL("mine", size=24), "size": 60}, "size=60 contradicts the size 24 .*'mine'"),
    ],
)
def test_what_a_config_refuses_of_a_method(changes, message):
    with pytest.raises(ValueError, match=message):
        config(**{"method": "lora"} | changes)
    assert config(method="lora", own_method={"kind": "lora", "size": 4}, size=4).own_method["size"] == 4


# --- in a cell of a notebook
SOURCE = """
from dataclasses import dataclass
from palslib.methods.adaptation import Adaptation
from palslib.methods.method import Method

class Moved(Adaptation):
    factor = 2

    def value(self, layer, v, h):
        return v * self.factor

@dataclass(frozen=True, kw_only=True)
class OnValues(Method):
    layers: str = "all"

    def build(self, encoder, pooler, shared=None):
        return Moved(self, encoder, pooler)
"""


def cell(number: int, old: str = "", new: str = "") -> Method:
    """The method that a cell of a notebook defines, perhaps with another line."""
    source, name, space = SOURCE.replace(old, new), f"<cell {number}>", {"__name__": "__main__"}
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    exec(compile(source, name, "exec"), space)
    return space["OnValues"]("mine")


def test_a_method_whose_code_was_changed_is_not_given_its_old_result(tmp_path):
    """Run again as it was, its record is found; a cell that was edited asks for another folder."""
    first, again = (train(config(cell(number), folder=str(tmp_path)))["results"]["last"] for number in range(2))
    assert first == again
    for number, change in enumerate([("v * self", "v + self"), ("factor = 2", "factor = 3")], 2):
        with pytest.raises(ValueError, match="method"):
            train(config(cell(number, *change), folder=str(tmp_path)))


def test_a_cell_that_is_run_again_does_not_orphan_the_models_before_it(tmp_path):
    """The family is another class of the same kind then; tasks of a model made before and of one made after it fit."""
    before, after = (MultiTaskModel.from_backbone(tiny_encoder(), cell(number), ["rte"]) for number in range(2))
    randomise(before.heads)
    assert type(before.method) is not type(after.method)
    after.load_task(before.save_task("rte", tmp_path))
    assert all(map(torch.equal, before.state_dict().values(), after.state_dict().values()))
    before.save_pretrained(tmp_path / "model")
    MultiTaskModel.continued(tmp_path / "model", before.method, before.backbone_name, [get_task("sst2")])


def test_two_families_of_one_name_are_no_silent_exchange():
    """Another module's is refused, unless it has a `kind` of its own."""
    kind, elsewhere = OWN[0].kind, {"__module__": "elsewhere"}
    with pytest.raises(ValueError, match=r"test_own_methods already has a family 'LoRA': give this one another"):
        type("LoRA", (Method,), elsewhere)
    assert Method.families[kind] is type(OWN[0])
    other = type("LoRA", (Method,), elsewhere | {"kind": "LoRA, elsewhere"})
    assert other is Method.families["LoRA, elsewhere"]


def test_what_is_wrong_with_a_method_is_said_when_it_is_built():
    """A count that is not that of the module, a place by another name, a module for layers of a family without, and
    shared parameters that are not counted."""

    class Miscounted(LoRA):
        def terms(self, backbone):
            return [Term("A and B", "2dr", 24)]

    class Uncounted(LoRA):
        def build_shared(self, encoder):
            return torch.nn.Linear(4, 4)

    class Misplaced(LoRA):
        def build(self, encoder, pooler, shared=None):
            return type("Misplaced", (Adaptation,), {"values": None})(self, encoder, pooler)

    class Nowhere(Method):
        def build(self, encoder, pooler, shared=None):
            return OWN[1].build(encoder, pooler).__class__(self, encoder, pooler)

    wrong = {
        r"'mine': its `terms` count 24 .* 1,152": Miscounted("mine", size=4),
        "`terms` count 0 parameters shared by tasks, but its module has 20": Uncounted("mine", size=4),
        r"Misplaced of method 'mine' must define at least one of .*value": Misplaced("mine", size=4),
        "defines key, value, inner for layers, but adapts no layer": Nowhere("mine"),
    }
    for message, method in wrong.items():
        with pytest.raises(ValueError, match=message):
            MultiTaskModel.from_backbone(tiny_encoder(), method, ["rte"])
    with pytest.raises(ValueError, match="even s=1,000,000 fits"):
        fit_budget(Miscounted("mine", size=4))
    with pytest.raises(ValueError, match="owner of a term"):
        Term("A", "dr", 24, "layer")


def test_nothing_is_done_behind_the_back_of_a_class_of_ones_own():
    """What it adds to LoRA would be lost in a merge. It gets all word pieces in every layer, also in the last, of which
    only [CLS] is read, and no padding, as in bf16 on a CPU other methods may."""
    seen = []

    class Updates(lora.LowRankUpdates):
        def parallel(self, layer, h, rows):
            seen.append((len(h), len(rows.wanted(h))))

    class Longer(LoRA):
        def build(self, encoder, pooler, shared=None):
            return Updates(self, encoder, pooler)

    model = MultiTaskModel.from_backbone(tiny_encoder(), Longer("longer", size=4), ["rte"])
    with torch.autocast("cpu", torch.bfloat16):
        model("rte", **batch(rows=2, width=9))  # 9 + 8 word pieces; 18 is the next round number
    assert seen == [(17, 17)] * LAYERS
    with pytest.raises(ValueError, match="cannot be merged"):
        model.merged("rte")
