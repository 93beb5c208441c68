"""What notebook 01 says of every method: it starts as BERT or it does not, and it holds what its formula says."""

import pytest
import torch
from shapes import STARTS_AS_BACKBONE, batch, tiny_encoder, tiny_method, tiny_model

from palslib.analysis.identity import compare_with_backbone, disturb, final_states, measured
from palslib.methods.counting import count_parameters
from palslib.methods.table import METHODS


def test_every_method():
    """Published counts (ledger A): PALs 1,811,520, LHUC 12 · 768, feature extraction 12 + 1 + 1."""
    table = compare_with_backbone(map(tiny_method, METHODS), tiny_encoder(), batch()).set_index("method")
    assert [label.split(" ")[0] for label in table.index] == list(METHODS)
    table.index = list(METHODS)
    assert table.index[table["starts as BERT"]].tolist() == STARTS_AS_BACKBONE
    assert table.index[table["after noise"] == "equal"].tolist() == ["shared"]
    assert table["built"].tolist() == table["closed form"].tolist()
    published = table["per task, BERT-base"]
    assert (published["pals-204"], published["lhuc"], published["feature-extraction"]) == (1_811_520, 9_216, 14)


@pytest.mark.parametrize("name", METHODS)
def test_measured_is_the_closed_form(name):
    """What each of two tasks owns, and what both share, tensor by tensor and by formula."""
    model = tiny_model(name)
    count = count_parameters(model.method, model.config, len(model.tasks), exact=True)
    assert measured(model) == dict.fromkeys(model.tasks, count.per_task) | {"tasks": count.shared_by_tasks}


def test_the_backbone_keeps_its_weights():
    encoder = tiny_encoder()
    before = {name: value.clone() for name, value in encoder.state_dict().items() if "pooler" not in name}
    compare_with_backbone([tiny_method("pals-204"), tiny_method("houlsby-64-not-shared")], encoder, batch())
    after = encoder.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_noise_reaches_one_task_and_depends_on_the_seed():
    model, other, third = (tiny_model("pals-204") for _ in range(3))
    disturb(model, "rte", seed=1)
    disturb(other, "rte", seed=1)
    disturb(third, "rte", seed=2)
    states = [final_states(m, "rte", batch()) for m in (model, other, third)]
    assert torch.equal(states[0], states[1]) and not torch.allclose(states[0], states[2])
    assert torch.equal(final_states(model, "stsb", batch()), final_states(model, None, batch()))


@pytest.mark.parametrize("name", ["attention-on-top-204", "feature-extraction"])
def test_what_goes_on_top_is_part_of_the_final_states(name):
    model = tiny_model(name)
    assert not torch.allclose(final_states(model, "rte", batch()), final_states(model, None, batch()))
