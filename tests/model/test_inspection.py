"""Whether what tasks add acts: sizes and entropies by hand, scores with it switched off, and the record of both."""

import math

import numpy as np
import pytest
import torch
from shapes import LAYERS, D, randomised, tiny_model, tokens
from training.small_runs import small

from palslib.bert.rows import Rows
from palslib.methods.table import METHODS
from palslib.model.inspection import how_strongly, relative_entropies, switched_off
from palslib.training.loop import train

WITHIN = [name for name, method in METHODS.items() if method.adapted_layers(LAYERS)]


def rows_of(model, task="rte", lengths=(5, 3, 7, 4)):
    return tokens(model.tasks[task], lengths, np.arange(len(lengths)) % 2)


def splits(*data):
    return {one.task.name: {"validation": one} for one in data}


# ----------------------------------------------------------------------------------------------------- size and entropy


def test_sizes_by_hand():
    """V^D = 0 with a bias of 2 in each of 24 places: ‖TS(h)‖ = 2 √24 everywhere, and ‖h‖ that of each layer's input."""
    model = randomised("pals-204")
    with torch.no_grad():
        decoder = model.adaptations["rte"].projection(0).decoder
        decoder.weight.zero_()
        decoder.bias.fill_(2)
    data = rows_of(model)
    with torch.inference_mode():
        states = model.encode("rte", data.batch(range(4))["rows"])
    sizes = how_strongly(model, splits(data))["rte"]["size"]
    assert list(sizes) == list(range(LAYERS))
    for layer, size in sizes.items():
        assert size == pytest.approx(float((2 * math.sqrt(D) / states[layer].norm(dim=-1)).mean()), rel=1e-5)


def test_entropies_by_hand():
    """Two heads on rows of four, two and one word pieces. Head 0: all alike, 1; head 1: on one piece, 0, but in the row
    of two (¾, ¼), 0.5623 nats of log 2, 0.8113. Four pieces and two count, the single one does not."""
    weights = torch.zeros(3, 2, 4, 4)
    for row, length in enumerate((4, 2, 1)):
        weights[row, 0, :, :length] = 1 / length
        weights[row, 1, :, 0] = 1
    weights[1, 1, :, :2] = torch.tensor([0.75, 0.25])
    found = relative_entropies(weights)
    assert found.shape == (6, 2)
    torch.testing.assert_close(found[:, 0], torch.ones(6))
    torch.testing.assert_close(found[:, 1], torch.tensor([0.0] * 4 + [0.8113] * 2), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", ["pals-204", "pals-276-top", "attention-on-top-204"])
def test_uniform_heads_have_entropy_one(name):
    """No query: every word piece looks at all alike, whatever the length of its row, and dropout does not enter."""
    model = randomised(name, dropout=0.3, mode="train")
    before = how_strongly(model, splits(rows_of(model)))["rte"]["entropy"]
    for part in model.adaptations["rte"].modules():
        if hasattr(part, "qkv"):
            with torch.no_grad():
                part.qkv.weight[:12] = 0
                part.qkv.bias[:12] = 0
    after = how_strongly(model, splits(rows_of(model)))["rte"]
    assert after["entropy"] == pytest.approx(dict.fromkeys(before, 1), abs=1e-6)
    assert 0 < min(before.values()) < 0.99 and max(before.values()) < 1
    assert ("size" in after) == (name != "attention-on-top-204")  # no task function within BERT
    assert all(part.training for part in model.modules())


def test_rows_of_one_word_piece():
    """They have a size; what a single piece looks at is no choice, so that alone they have no entropy."""
    model = randomised("pals-204")
    alone = how_strongly(model, splits(rows_of(model, lengths=(1, 1))))["rte"]
    assert set(alone) == {"size"} and all(math.isfinite(size) for size in alone["size"].values())


def test_of_each_task_what_there_is():
    """A size of an untrained PAL: 0. LHUC has no TS(h), and `shared` nothing."""
    model = tiny_model("pals-204")
    found = how_strongly(model, splits(rows_of(model), rows_of(model, "stsb")))
    assert set(found) == {"rte", "stsb"} and set(found["rte"]["size"].values()) == {0.0}
    for name in ("lhuc", "shared", "fine-tuned"):
        other = tiny_model(name)
        assert how_strongly(other, splits(rows_of(other))) == {}


# --------------------------------------------------------------------------------------------------------- switched off


@pytest.mark.parametrize("name", WITHIN)
def test_switched_off_is_the_plain_backbone(name):
    """Hidden states bit for bit, biases of V^D and norms of its own gone too; afterwards all is as before."""
    model, rows = randomised(name), Rows.from_padded(torch.tensor([[5, 6, 7, 8], [9, 10, 11, 12]]))
    states = torch.inference_mode()(lambda task: model.encode(task, rows))
    before, plain = states("rte"), states(None)
    with switched_off(model):
        assert all(map(torch.equal, states("rte"), plain))
    assert torch.equal(states("rte")[-1], before[-1]) and not torch.allclose(before[-1], plain[-1])


# --------------------------------------------------------------------------------------------------------------- record


def test_the_record_of_a_run(tmp_path):
    """Two tasks, two layers, at each of two evaluations; PALs act more in the end, and switched off they do nothing."""
    about = {"tasks": ("rte", "cola"), "steps": 4, "evaluate_every": 2, "seed": 3, "inspect": True}
    record = train(small(tmp_path, method="pals-204", size=12, learning_rate=1e-2, **about))
    first, last = (point["acting"] for point in record["history"])
    assert [*last] == ["rte", "cola"] and [*last["cola"]["size"]] == [*last["cola"]["entropy"]] == ["0", "1"]
    before, after = (np.mean([[*measured["size"].values()] for measured in point.values()]) for point in (first, last))
    assert 0 < before < after
    assert record["results"]["switched off"]["scores"].keys() == {"rte", "cola"}
