"""Parameter counts: the weights of each method by hand, and the closed forms against models really built.

The ledger's rows A and B, which sum them over tasks and layers, are worked out in
`tests/study/ledger/test_verdicts.py`.
"""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from shapes import EVERY
from transformers import AutoConfig, AutoModel, BertConfig

from palslib import MultiTaskModel, count_parameters, get_method
from palslib.bert.backbones import load_config
from palslib.methods.counting import BACKBONES, Backbone

BASE = 109_482_240


def held(module):
    return sum(p.numel() for p in module.parameters()) if module is not None else 0


def test_weights_of_a_task_that_no_row_of_the_ledger_counts():
    """BERT-base: 36 · 204² and 12 · 2d · 100. All others: BY_HAND of study/ledger/test_verdicts.py; biases below."""
    counted = [count_parameters(name).per_task for name in ("pals-shared-across-tasks-204", "serial-100")]
    assert counted == [1_498_176, 1_843_200]


# --- sums, owners, tasks --------------------------------------------------------------------------------------------
def test_separate_models_and_poolers():
    """T backbones in place of one: (T - 1) · 109,482,240 added, ratio T. A pooler a task beside PALs: 8 · 1,811,520 +
    7 · 589,824 = 14,492,160 + 4,128,768 = 18,620,928; with one task a pooler replaces itself."""
    for tasks in (1, np.int64(8)):
        count = count_parameters("fine-tuned", num_tasks=tasks)
        assert (count.ratio, count.added, count.per_task) == (tasks, (tasks - 1) * BASE, BASE)
    assert count_parameters("pals-204", pooler="per-task").added == 18_620_928
    assert count_parameters("pals-204", num_tasks=1, pooler="per-task").added == 1_811_520


def test_a_term_has_its_part_formula_value_and_owner():
    """204 · 252 + 252 · 252 + 252 · 204 = 166,320, six times."""
    first, second = count_parameters("ffn-on-top-252x2").terms
    assert (first.part, first.formula, first.value, first.owner) == ("V^E and V^D", "2ds", 313_344, "task")
    assert (second.formula, second.value) == ("6 · (204·252 + 252·252 + 252·204)", 6 * 166_320)


# --- against models really built ------------------------------------------------------------------------------------
def encoder(kind: str, sizes: tuple[int, ...]):
    """A random encoder of odd sizes, on torch's meta device: shapes without memory."""
    heads, width, layers, inner, words, positions = sizes
    named = {"hidden_size": heads * width, "num_hidden_layers": layers, "num_attention_heads": heads}
    named |= {"intermediate_size": inner, "vocab_size": words, "max_position_embeddings": positions}
    return AutoModel.from_config(AutoConfig.for_model(kind, **named, type_vocab_size=1 if kind == "roberta" else 2))


RANGES = ((1, 4), (1, 9), (2, 5), (1, 41), (5, 60), (3, 20))
SIZES = st.tuples(*(st.integers(low, high) for low, high in RANGES))


@pytest.mark.parametrize("name", EVERY)
@settings(deadline=None, max_examples=4, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_closed_form_is_what_a_model_holds(name, data):
    """For every method on random odd sizes, whatever its pooler: backbone, each task's adaptation, what tasks share."""
    row, options = get_method(name), {}
    if row.has_size:
        heads = data.draw(st.integers(1, 4)) if "heads" in row.options() else 1
        options["size"] = heads * data.draw(st.integers(1, 12))
        options |= {"heads": heads} if "heads" in row.options() else {}
    if "inner" in row.options():
        options["inner"] = tuple(data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    if name != "fine-tuned":
        options["pooler"] = data.draw(st.sampled_from(["shared", "per-task"]))
    if "sharing" in row.options():
        options["layers"] = data.draw(st.sampled_from(["all", "top", "bottom"]))
        options["sharing"] = data.draw(st.sampled_from(["layers", "none", "tasks", "layers and tasks"]))
    if "on_top" in row.options():
        options |= {"on_top": data.draw(st.integers(1, 3)), "layer_norm": data.draw(st.booleans())}
    if "scaled" in row.options():
        options["scaled"] = data.draw(st.booleans())
    if "span" in row.options():
        options["second"] = data.draw(st.sampled_from(["serial", "parallel", "pal"]))
        options |= {"pal_size": 6, "pal_heads": 2}
        options |= {"span": data.draw(st.sampled_from([1, 3])), "own_norms": data.draw(st.booleans())}
        options |= {"adapters_per_layer": 1 if options["second"] == "pal" else data.draw(st.integers(1, 2))}
    method, kind = get_method(name, **options), data.draw(st.sampled_from(["bert", "roberta"]))
    with torch.device("meta"):
        model = MultiTaskModel(encoder(kind, data.draw(SIZES)), method, ("cola", "rte"))
    backbone = Backbone.of(model.config)
    count = count_parameters(method, backbone, 2, exact=True)
    assert held(model.backbone) == backbone.parameters
    assert held(model.adaptations["rte"]) == held(model.adaptations["cola"]) == count.per_task
    assert held(model.shared) == count.shared_by_tasks
    everything = held(model) - held(model.heads)  # the backbone's replaced parts are still there
    assert everything - sum(t.value for t in count.terms if t.owner == "replaced") == count.total


@pytest.mark.parametrize("name", ["tiny", "minilm", "bert-base-uncased"])
def test_the_named_backbones_have_the_sizes_of_their_configurations(name):
    """BERT-base's is the default of Transformers."""
    listed, read = BACKBONES[name], Backbone.of(BertConfig() if name.startswith("bert") else load_config(name))
    assert listed.parameters == read.parameters
    assert (listed.num_layers, listed.num_heads) == (read.num_layers, read.num_heads)
