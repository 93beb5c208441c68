"""Parameter counts: the ledger's integers by hand arithmetic, and the closed forms against models really built.

BERT-base unless said: d = 768, d_ff = 3072, L = 12, H = 12, 30,522 word pieces, T = 8. A1 is 109,482,240.
"""

import subprocess
import sys

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoModel, BertConfig, ElectraConfig, RobertaConfig

from palslib import METHODS, MultiTaskModel, count_parameters, get_method
from palslib.ledger.paper import TABLE_3
from palslib.methods.counting import BACKBONES, Backbone

BASE = 109_482_240


def held(module):
    return sum(p.numel() for p in module.parameters()) if module is not None else 0


# --- A and B: the ledger's integers ---------------------------------------------------------------------------------


def test_a1_bert_base():
    """(30,522 + 512 + 2) · 768 + 2 · 768 = 23,837,184; 12 · 7,087,872 = 85,054,464; 768² + 768 = 590,592.

    Together 109,482,240; not the 127 million of B14.
    """
    assert BACKBONES["bert-base-uncased"].parameters == 23_837_184 + 85_054_464 + 590_592 == BASE


def test_a2_one_layer():
    """4d² = 2,359,296; 2d · d_ff = 4,718,592; together 12d² = 7,077,888; 9d + d_ff = 6,912 + 3,072 = 9,984 = 13d."""
    assert BACKBONES["bert-base-uncased"].layer_parameters == 7_077_888 + 9_984 == 7_087_872


def test_a3_pals():
    """2ds = 2 · 768 · 204 = 313,344; 12 · 3s² = 36 · 41,616 = 1,498,176; biases 204 + 768 + 36 · 204 = 8,316."""
    assert count_parameters("pals-204").per_task == 1_811_520
    assert count_parameters("pals-204", exact=True).per_task == 1_819_836


def test_a4_pals_for_eight_tasks():
    """8 · 1,811,520 = 14,492,160; (109,482,240 + 14,492,160) / 109,482,240 = 1.1324."""
    count = count_parameters("pals-204", "bert-base-uncased", num_tasks=8)
    assert count.added == 14_492_160
    assert count.total == 123_974_400
    assert round(count.ratio, 3) == 1.132


@pytest.mark.parametrize("name", ["low-rank-100", "serial-100"])
def test_a5_low_rank(name):
    """12 · 2 · 768 · 100 = 1,843,200; biases 12 · (100 + 768) = 10,416. Serial has the same matrices elsewhere."""
    count = count_parameters(name)
    assert (count.per_task, round(count.ratio, 3)) == (1_843_200, 1.135)
    assert count_parameters(name, exact=True).per_task == 1_853_616


def test_a6_no_sharing():
    """12 · (2 · 768 · 84 + 3 · 84²) = 12 · (129,024 + 21,168) = 1,802,304; biases 12 · (84 + 768 + 252) = 13,248."""
    count = count_parameters("pals-no-sharing-84")
    assert (count.per_task, round(count.ratio, 3)) == (1_802_304, 1.132)
    assert count_parameters("pals-no-sharing-84", exact=True).per_task == 1_815_552


@pytest.mark.parametrize("name", ["pals-276-top", "pals-276-bottom"])
def test_a7_half_of_the_layers(name):
    """2 · 768 · 276 = 423,936; 6 · 3 · 276² = 18 · 76,176 = 1,371,168; biases 276 + 768 + 6 · 828 = 6,012."""
    count = count_parameters(name)
    assert (count.per_task, round(count.ratio, 3)) == (1_795_104, 1.131)
    assert count_parameters(name, exact=True).per_task == 1_801_116


def test_a8_feed_forward_within():
    """313,344 + 12 · 2 · 204 · 306 = 313,344 + 12 · 124,848 = 1,811,520: PALs' count, since 2 · 306 = 3 · 204.

    Biases 204 + 768 + 12 · (306 + 204) = 7,092.
    """
    assert count_parameters("ffn-306").per_task == 1_811_520
    assert count_parameters("ffn-306", exact=True).per_task == 1_818_612


def test_a9_attention_on_top():
    """313,344 + 6 · 4 · 204² = 313,344 + 24 · 41,616 = 1,312,128.

    Biases 972 + 6 · 4 · 204 = 5,868; six norms 12 · 204 = 2,448.
    """
    count = count_parameters("attention-on-top-204")
    assert (count.per_task, round(count.ratio, 3)) == (1_312_128, 1.096)
    assert count_parameters("attention-on-top-204", exact=True).per_task == 1_312_128 + 5_868 + 2_448


def test_a10_feed_forward_on_top():
    """313,344 + 6 · 2 · 204 · 408 = 313,344 + 998,784; 313,344 + 6 · (2 · 204 · 252 + 252²) = 313,344 + 6 · 166,320.

    Biases and norms: 972 + 6 · (408 + 204 + 408) = 7,092; 972 + 6 · (252 + 252 + 204 + 408) = 7,668.
    """
    assert count_parameters("ffn-on-top-408").per_task == 1_312_128
    assert count_parameters("ffn-on-top-252x2").per_task == 1_311_264
    assert count_parameters("ffn-on-top-408", exact=True).per_task == 1_312_128 + 7_092
    assert count_parameters("ffn-on-top-252x2", exact=True).per_task == 1_311_264 + 7_668


def test_a11_a_pooler_for_each_task():
    """768² = 589,824; with bias 590,592. Eight in place of one shared add seven: 4,134,144, or 1.038."""
    assert count_parameters("shared", pooler="per-task").per_task == 589_824
    count = count_parameters("shared", pooler="per-task", exact=True)
    assert (count.per_task, count.added) == (590_592, 4_134_144)
    assert round(count.ratio, 3) == 1.038


def test_a12_lhuc():
    """12 · 768 = 9,216; a scale has no bias. Eight tasks 73,728."""
    for exact in (False, True):
        assert count_parameters("lhuc", exact=exact).per_task == 9_216
    assert count_parameters("lhuc").added == 73_728


def test_a13_one_and_a_half_million():
    """Low rank: 8 · 12 · 1,536 · 10 = 1,474,560. PALs: 8 · (1,536 · 53 + 36 · 2,809) = 8 · 182,532; 54: 8 · 187,920."""
    assert count_parameters("low-rank-100", size=10).added == 1_474_560
    assert count_parameters("pals-204", size=53, heads=1).added == 1_460_256
    assert count_parameters("pals-204", size=54, heads=1).added == 1_503_360


@pytest.mark.parametrize("exact", [False, True])
def test_a14_a15_a16_houlsby(exact):
    """One adapter 2md + d + m = 2 · 64 · 768 + 768 + 64 = 99,136, biases counted in the report.

    12 · 99,136 = 1,189,632; not shared 24 · 99,136 + 24 · 1,536 + 590,592 = 2,379,264 + 36,864 + 590,592 = 3,006,720;
    4 · 99,136 = 396,544.
    """
    assert count_parameters("houlsby-64", exact=exact).per_task == 1_189_632
    assert count_parameters("houlsby-64-not-shared", exact=exact).per_task == 3_006_720
    assert count_parameters("houlsby-64-3-shared", exact=exact).per_task == 396_544


def test_the_released_houlsby_has_m_50():
    """12 · (2 · 50 · 768 + 768 + 50) = 12 · 77,618 = 931,416 (ledger D15)."""
    assert count_parameters("houlsby-64", size=50).per_task == 931_416


def test_a25_seven_times_fewer():
    """8 / 1.13237 = 7.065; by the rounded 1.132 it is 7.07."""
    ratio = count_parameters("fine-tuned").ratio / count_parameters("pals-204").ratio
    assert round(ratio, 3) == 7.065
    assert round(8 / round(count_parameters("pals-204").ratio, 3), 2) == 7.07


def test_a26_bert_large():
    """(31,036 + 2) · 1024 = 31,782,912; 24 · (12 · 1024² + 13 · 1024) = 24 · 12,596,224; pooler 1,049,600."""
    large = BACKBONES["bert-large-uncased"]
    assert large.parameters == 31_782_912 + 302_309_376 + 1_049_600 == 335_141_888
    assert round(large.parameters / BASE, 2) == 3.06


def test_a27_sizes_within_fifteen_million():
    """Eight tasks: 14,492,160 + 14,418,432 + 14,360,832 all fit, 14,745,600 too, and so does 101: 14,893,056."""
    names = ("pals-204", "pals-no-sharing-84", "pals-276-top", "low-rank-100")
    assert [count_parameters(n).added for n in names] == [14_492_160, 14_418_432, 14_360_832, 14_745_600]
    assert count_parameters("low-rank-100", size=101).added == 14_893_056
    assert count_parameters("low-rank-100", size=102).added == 15_040_512
    assert round((BASE + 15_000_000) / BASE, 3) == 1.137  # B13: not 1.13


def test_b1_a_bert_layer_for_each_task():
    """8 · 7,077,888 = 56,623,104, 1.517; with biases and norms 8 · 7,087,872 = 56,702,976, 1.518. Not 73 million."""
    plain, exact = (count_parameters("bert-layer-on-top", exact=e) for e in (False, True))
    assert (plain.added, round(plain.ratio, 3)) == (56_623_104, 1.517)
    assert (exact.added, round(exact.ratio, 3)) == (56_702_976, 1.518)


def test_b3_twelve_layers():
    """12 · (4d² + 2d · 3072) = 84,934,656. With an inner size of d: 12 · 6 · 589,824 = 42,467,328."""
    narrow = Backbone("narrow", 30_522, 768, 12, 12, 768)
    for inner, weights in ((3072, 84_934_656), (768, 42_467_328)):
        count = count_parameters("bert-layer-on-top", Backbone("any", 30_522, 768, 12, 12, inner))
        assert 12 * count.per_task == weights
    assert narrow.layer_parameters == 42_467_328 // 12 + 9 * 768 + 768


def test_b4_three_tasks():
    """3 · 1,811,520 = 5,434,560; 1.0496."""
    count = count_parameters("pals-204", num_tasks=3)
    assert (count.added, round(count.ratio, 2)) == (5_434_560, 1.05)


def test_the_papers_column_but_for_the_bert_layer():
    """1.517 1.096 1.096 1.132 1.132 1.135 1.131 1.131 against 1.66 1.10 1.10 1.13 1.13 1.13 1.13 1.13."""
    printed = {name: row["ratio"] for name, row in TABLE_3.items() if "ratio" in row}
    wrong = {name for name, ratio in printed.items() if abs(count_parameters(name).ratio - ratio) > 0.005}
    assert len(printed) == 8 and wrong == {"bert-layer-on-top"}


def test_feature_extraction():
    """A weight for the embeddings and each of 12 layers, and γ: 14."""
    assert count_parameters("feature-extraction", exact=True).per_task == 14


# --- sums, owners, tasks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tasks", [1, 3, 8, 100])
def test_separate_models_cost_a_backbone_a_task(tasks):
    """T backbones in place of one: (T - 1) · 109,482,240 added, ratio T."""
    count = count_parameters("fine-tuned", num_tasks=tasks)
    assert count.ratio == tasks
    assert count.added == (tasks - 1) * BASE
    assert count.per_task == BASE


def test_shared_adds_nothing():
    count = count_parameters("shared", exact=True)
    assert (count.terms, count.added, count.ratio) == ((), 0, 1.0)


def test_poolers_come_on_top_of_what_a_method_adds():
    """8 · 1,811,520 + 7 · 589,824 = 14,492,160 + 4,128,768 = 18,620,928. With one task a pooler replaces itself."""
    assert count_parameters("pals-204", pooler="per-task").added == 18_620_928
    assert count_parameters("pals-204", num_tasks=1, pooler="per-task").added == 1_811_520


@pytest.mark.parametrize(
    ("sharing", "per_task", "common"),
    [
        ("layers", 1_811_520, 0),
        ("none", 5_258_304, 0),
        ("layers and tasks", 1_498_176, 313_344),
        ("tasks", 1_498_176, 3_760_128),
    ],
)
def test_the_four_sharings(sharing, per_task, common):
    """One pair is 313,344, twelve are 3,760,128; queries, keys and values are always the task's: 1,498,176."""
    count = count_parameters("pals-204", sharing=sharing)
    assert (count.per_task, count.shared_by_tasks) == (per_task, common)
    assert count.added == 8 * per_task + common


@pytest.mark.parametrize(("on_top", "residual", "norm"), [(3, True, True), (12, False, True), (6, True, False)])
def test_options_on_top(on_top, residual, norm):
    """A layer is 4 · 204² = 166,464 and 816 biases; a norm 408; the residual has no parameters."""
    count = count_parameters("attention-on-top-204", on_top=on_top, residual=residual, layer_norm=norm, exact=True)
    assert count.per_task == 313_344 + 972 + on_top * (166_464 + 816 + 408 * norm)


def test_the_terms_of_pals():
    first, second = count_parameters("pals-204").terms
    assert (first.part, first.formula, first.value, first.owner) == ("V^E and V^D", "2ds", 313_344, "task")
    assert (second.part, second.formula, second.value) == ("query, key, value", "12 · 3s²", 1_498_176)


def test_the_formula_of_two_inner_sizes_reads_as_a_sum():
    """204 · 252 + 252 · 252 + 252 · 204 = 51,408 + 63,504 + 51,408 = 166,320, six times."""
    term = count_parameters("ffn-on-top-252x2").terms[1]
    assert term.formula == "6 · (204·252 + 252·252 + 252·204)"
    assert term.value == 6 * 166_320


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("exact", [False, True])
def test_terms_sum_up_to_what_is_added(name, exact):
    count = count_parameters(name, num_tasks=5, exact=exact)
    weight = {"task": 5, "tasks": 1, "replaced": -1}
    assert sum(weight[t.owner] * t.value for t in count.terms) == count.added
    assert count.ratio == (BASE + count.added) / BASE


@pytest.mark.parametrize("value", [0, -1, 2.0, "8"])
def test_the_number_of_tasks_is_a_positive_integer(value):
    with pytest.raises(ValueError, match="num_tasks must be a positive integer"):
        count_parameters("pals-204", num_tasks=value)


def test_an_unknown_backbone_is_refused_with_the_nearest():
    with pytest.raises(ValueError, match="'bert-base-uncasd': did you mean 'bert-base-uncased'"):
        count_parameters("pals-204", "bert-base-uncasd")


# --- against models really built ------------------------------------------------------------------------------------


def encoder(kind: str, seed_sizes: tuple[int, ...]):
    """A random encoder of odd sizes, on torch's meta device: shapes without memory."""
    heads, width, layers, inner, words, positions, embedding = seed_sizes
    sizes = dict(
        hidden_size=heads * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=inner,
        vocab_size=words,
        max_position_embeddings=positions,
    )
    config = {
        "bert": lambda: BertConfig(**sizes),
        "roberta": lambda: RobertaConfig(**sizes, type_vocab_size=1),
        "electra": lambda: ElectraConfig(**sizes, embedding_size=embedding),
    }[kind]()
    return AutoModel.from_config(config)


SIZES = st.tuples(
    st.integers(1, 4), st.integers(1, 9), st.integers(2, 5), st.integers(1, 41), st.integers(5, 60),
    st.integers(3, 20), st.integers(1, 30),
)  # fmt: skip


def check_agreement(kind, sizes, method):
    with torch.device("meta"):
        model = MultiTaskModel(encoder(kind, sizes), method, ("cola", "rte"))
    backbone = Backbone.of(model.config)
    count = count_parameters(method, backbone, 2, exact=True)
    assert held(model.backbone) + held(model.new_pooler) == backbone.parameters
    assert held(model.adaptations["rte"]) == held(model.adaptations["cola"]) == count.per_task
    assert held(model.shared) == count.shared_by_tasks
    everything = held(model) - held(model.heads)  # the backbone's replaced parts are still there
    assert everything - sum(t.value for t in count.terms if t.owner == "replaced") == count.total


@pytest.mark.parametrize("name", METHODS)
@settings(deadline=None, max_examples=4, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_closed_form_is_what_a_model_holds(name, data):
    """For every method on random odd sizes, whatever its pooler: backbone, each task's adaptation, what tasks share."""
    row = METHODS[name]
    options = {}
    if row.has_size:
        heads = data.draw(st.integers(1, 4)) if row.takes("heads") else 1
        options["size"] = heads * data.draw(st.integers(1, 12))
        options |= {"heads": heads} if row.takes("heads") else {}
    if row.takes("inner"):
        options["inner"] = tuple(data.draw(st.lists(st.integers(1, 30), min_size=1, max_size=3)))
    if name != "fine-tuned":
        options["pooler"] = data.draw(st.sampled_from(["shared", "per-task"]))
    if row.takes("sharing"):
        options["layers"] = data.draw(st.sampled_from(["all", "top", "bottom"]))
        options["sharing"] = data.draw(st.sampled_from(["layers", "none", "tasks", "layers and tasks"]))
    if row.takes("on_top"):
        options |= {"on_top": data.draw(st.integers(1, 3)), "layer_norm": data.draw(st.booleans())}
    if row.takes("scaled"):
        options["scaled"] = data.draw(st.booleans())
    if row.takes("span"):
        options["second"] = data.draw(st.sampled_from(["serial", "parallel", "pal"]))
        options |= {"pal_size": 6, "pal_heads": 2}
        options |= {"span": data.draw(st.sampled_from([1, 3])), "own_norms": data.draw(st.booleans())}
        options |= {"adapters_per_layer": data.draw(st.integers(1, 2))}
    kind = data.draw(st.sampled_from(["bert", "roberta", "electra"]))
    check_agreement(kind, data.draw(SIZES), get_method(name, **options))


@pytest.mark.parametrize("kind", ["bert", "roberta", "electra"])
def test_every_shape_of_encoder_is_counted_whole(kind):
    """ELECTRA's embeddings are 7 wide and led to d = 15 by a linear map; where both are 15 there is none."""
    check_agreement(kind, (3, 5, 3, 17, 50, 11, 7), get_method("pals-204", size=6, heads=3))
    check_agreement(kind, (3, 5, 3, 17, 50, 11, 15), get_method("houlsby-64", size=6))


def test_bert_base_itself():
    """On the meta device: 109,482,240, and 1,819,836 for each task."""
    with torch.device("meta"):
        model = MultiTaskModel(AutoModel.from_config(BertConfig()), "pals-204", ("rte",))
    assert held(model.backbone) == BASE
    assert held(model.adaptations["rte"]) == 1_819_836


@pytest.mark.parametrize("name", ["tiny", "minilm"])
def test_the_named_backbones_have_the_sizes_of_their_configurations(name):
    from palslib.bert.backbones import load_config

    config = load_config(name)
    listed, read = BACKBONES[name], Backbone.of(config)
    assert listed.parameters == read.parameters
    assert (listed.num_layers, listed.num_heads) == (read.num_layers, read.num_heads)


# --- cheap ----------------------------------------------------------------------------------------------------------


def test_counting_and_planning_never_import_torch():
    """Neither to be imported, nor for the public functions, used through the package's own names."""
    code = (
        "import sys\n"
        "import palslib.data.tasks, palslib.ledger.verdicts, palslib.methods.operations, palslib.plan.config\n"
        "from palslib import TrainingPlan, count_parameters, fit_budget\n"
        "assert count_parameters('pals-204').per_task == 1811520 and fit_budget('pals-204', 'minilm').size == 120\n"
        "assert len(TrainingPlan({'rte': 5}, 'annealed', 3).examples(2)) == 32\n"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
