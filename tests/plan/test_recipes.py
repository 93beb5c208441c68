"""The two recipes: every field alone shows its quirk, here or beside what it changes (D1, D4, D5 in test_sampling.py,
D8 in methods/test_functions.py, D10 in test_optimizer.py). Each is a row of the ledger: ledger/test_verdicts.py."""

from copy import deepcopy
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from palslib.bert.backbones import load_tokenizer
from palslib.data.metrics import METRICS, batchwise
from palslib.data.tasks import TASKS
from palslib.data.tokens import tokenise_task
from palslib.methods.table import get_method
from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.plan.recipes import get_recipe, rate_factor
from palslib.training.evaluation import evaluate, predict
from palslib.training.loop import Run


# --------------------------------------------------------------------------------------------- runs on a tiny backbone
def make_run(tmp_path, method="lhuc", tasks=("rte", "stsb"), batch_size=8, micro_batches=1, **options):
    """A run of 20 steps, in which tasks take turns, with these fields of the recipe."""
    about = {"schedule": "round-robin", "steps": 20, "batch_size": batch_size, "micro_batches": micro_batches}
    about |= {"backbone": "tiny", "max_length": 48, "precision": "float32", "progress": False}
    return Run(RunConfig(method=method, tasks=tasks, recipe_options=options, **about), tmp_path / "run")


def changed(before, module):
    return [name for name, tensor in module.state_dict().items() if not torch.equal(before[name], tensor)]


@pytest.mark.parametrize("dropout", ["throughout", "until evaluated"])
def test_d2_dropout_after_an_evaluation(tmp_path, dropout):
    """Two losses of one batch differ while dropout is on, and are equal once it stays off."""
    run = make_run(tmp_path, dropout=dropout)
    assert run.model.training
    run.train_step()
    run.evaluate()
    batch = run.train_data["rte"].batch(np.arange(8))
    losses = {run.model(task="rte", **batch).loss.item() for _ in range(3)}
    assert (len(losses) > 1) == (dropout == "throughout")
    run.train_step()  # goes on all the same
    assert run.model.training == (dropout == "throughout")


def test_d3_correlations_by_batches(tmp_path):
    run, values = make_run(tmp_path, tasks=("cola", "stsb")), ("whole split", "batches of 8")
    recipes = [get_recipe("paper", correlations=value) for value in values]
    whole, by_batches = (evaluate(run.model, run.dev_data, recipe) for recipe in recipes)
    for task, metric in (("cola", "matthews"), ("stsb", "pearson")):
        data = run.dev_data[task]["validation"]
        outputs = predict(run.model, task, data)
        predictions = outputs.argmax(-1) if task == "cola" else outputs[:, 0].astype("float64")
        assert whole[task][metric] == pytest.approx(100 * METRICS[metric](data.labels, predictions), abs=0.01)
        assert by_batches[task][metric] == pytest.approx(100 * batchwise(metric, data.labels, predictions), abs=0.01)
    assert by_batches["cola"]["accuracy"] == whole["cola"]["accuracy"]
    assert by_batches["stsb"]["spearman"] == whole["stsb"]["spearman"]
    assert by_batches["stsb"]["pearson"] != whole["stsb"]["pearson"]


@pytest.mark.parametrize(("batch_size", "parts", "last"), [(12, 1, 4), (12, 4, 4), (14, 7, 8), (20, 5, 4)])
def test_d4_a_partial_batch_in_parts(tmp_path, batch_size, parts, last):
    """64 rows in twelves leave 4, which make 4 parts of 1; in fourteens they leave 8, which make seven parts of 1 or 2;
    in twenties they leave 4, which leave one of five parts empty. The loss is the mean over the rows all the same."""
    run = make_run(tmp_path, tasks=("rte",), order="replayed", batch_size=batch_size, micro_batches=parts)
    run.model.eval()
    run.step = 64 // batch_size
    rows = run.plan.examples(run.step)
    assert len(rows) == last
    expected = run.model(task="rte", **run.train_data["rte"].batch(rows)).loss.item()
    run.train_step()
    assert run.pending[-1].item() == pytest.approx(expected, rel=1e-5)


METHOD_FIELDS = [
    ({"pal_heads": 6}, "pals-204", {"heads": 6}),
    ({"pal_activation": "gelu"}, "pals-204", {"activation": "gelu"}),
    ({"low_rank_activation": "gelu"}, "serial-100", {"activation": "gelu"}),
    ({"init": "normal"}, "attention-on-top-204", {"init": "normal"}),
    ({"houlsby_second": "parallel"}, "houlsby-64", {"second": "parallel"}),
    ({"houlsby_size": 50}, "houlsby-64", {"size": 50}),
    ({"frozen_norms": "trained"}, "feature-extraction", {"freeze": "backbone but norms"}),
    ({"frozen_norms": "trained"}, "pals-204", {}),  # nothing is frozen there
    ({"pal_heads": 6}, "attention-on-top-204", {}),
    ({"init": "normal"}, "shared", {}),
]


@pytest.mark.parametrize(("options", "method", "expected"), METHOD_FIELDS)
def test_fields_that_shape_the_method(options, method, expected):
    """D6 to D9 and D15: one option changes exactly what its row says about the method."""
    config = RunConfig(method=method, size="paper")
    before = asdict(config.resolved_method())
    after = asdict(replace(config, recipe_options=options).resolved_method())
    assert {k: v for k, v in after.items() if v != before[k]} == expected


def test_d10_the_global_norm_is_not_clipped_twice(tmp_path, monkeypatch):
    for clip, calls in (("global", 1), ("each tensor", 0)):
        run, seen = make_run(tmp_path, clip=clip), []
        monkeypatch.setattr("palslib.training.loop.clip_gradients", lambda *args, seen=seen: seen.append(args[1]))
        run.train_step()
        assert seen == [1.0] * calls


def test_d11_schedule_by_hand():
    """100 steps, warm-up 10. Paper: 0.1, 0.2, ... 1.0, then (100 - step) / 90 down to 1/90, never above 1, no update
    wasted at 0. Released: 0, 0.1, ... 0.9, then 1 - x: 0.9 at step 10, and 0.01 at the last."""
    paper, jump = ([rate_factor(k, 100, 0.1, decay) for k in range(100)] for decay in ("linear", "jump"))
    assert paper[:10] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
    assert paper[10:] == pytest.approx([(100 - k) / 90 for k in range(10, 100)])
    assert jump[:10] == pytest.approx([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9])
    assert jump[10:] == pytest.approx([1 - k / 100 for k in range(10, 100)])
    late = [rate_factor(k, 1000, 0.1, "jump") for k in (99, 100)]
    assert late == pytest.approx([0.99, 0.9])  # the jump
    constant = [rate_factor(k, 100, 0.04, "constant") for k in range(100)]
    assert constant == pytest.approx([0.25, 0.5, 0.75] + [1.0] * 97) and rate_factor(0, 100, 0.0, "constant") == 1


def test_d11_first_update_does_nothing(tmp_path):
    for decay, none in (("linear", False), ("jump", True)):
        run = make_run(tmp_path, decay=decay)
        before = deepcopy(run.model.state_dict())
        run.train_step()
        assert (changed(before, run.model) == []) == none


def test_d12_a_rare_task_stays_in_warm_up(tmp_path):
    """Three steps: RTE's tensors count 1 update, CoLA's 2, the backbone's 3."""
    run = make_run(tmp_path, tasks=("cola", "rte"), step_counter="per tensor")
    for _ in range(3):
        run.train_step()
    parameters = dict(run.model.named_parameters())
    for name, updates in {"heads.rte.weight": 1, "heads.cola.weight": 2, "backbone.pooler.dense.weight": 3}.items():
        assert run.optimizer.state[parameters[name]]["updates"] == updates
    assert {group["lr"] for group in run.optimizer.param_groups} == {run.config.learning_rate}  # the loop leaves it


@pytest.mark.parametrize("inactive", ["untouched", "drift"])
def test_d12_tasks_that_rest(tmp_path, inactive):
    """RTE, then STS-B: of RTE's tensors, all bits and the optimiser's state stay, or with zero gradients all move."""
    run = make_run(tmp_path, inactive=inactive)
    run.train_step()
    mine = {n: p for n, p in run.model.named_parameters() if n.startswith(("heads.rte", "adaptations.rte"))}
    averages = {n: run.optimizer.state[p]["exp_avg"].clone() for n, p in mine.items()}
    before = deepcopy(run.model.state_dict())
    assert len(mine) == 4 and run.plan.tasks[1] == "stsb"  # two of the head, LHUC's vector in each of two layers
    run.train_step()
    moved = [n for n in changed(before, run.model) if n in mine]
    assert moved == ([] if inactive == "untouched" else list(mine))
    same = [torch.equal(averages[n], run.optimizer.state[p]["exp_avg"]) for n, p in mine.items()]
    assert same == [inactive == "untouched"] * 4


def test_d13_metrics():
    tasks, tokenizer = ("mnli", "mrpc", "qqp", "stsb", "cola"), load_tokenizer("tiny")
    model = MultiTaskModel.from_backbone("tiny", "shared", tasks)
    dev = {t: {s: tokenise_task(t, tokenizer, split=s, max_length=48) for s in TASKS[t].evaluation} for t in tasks}
    with torch.no_grad():
        model.heads["stsb"].bias += 100  # all scores are over 1: clipped they are constant, and the correlation is 0
    ours, theirs = (evaluate(model, dev, get_recipe("paper", metrics=m)) for m in ("glue", "released"))
    names = {task: list(TASKS[task].metrics) for task in tasks} | {"mnli": ["accuracy", "accuracy_mm"]}
    assert {task: list(values) for task, values in ours.items()} == names
    assert {task: list(values) for task, values in theirs.items()} == {task: of[:1] for task, of in names.items()}
    assert theirs["mrpc"]["accuracy"] == ours["mrpc"]["accuracy"]
    assert ours["stsb"]["pearson"] != 0 == theirs["stsb"]["pearson"]


def test_d14_padding(tmp_path):
    """Rows filled up to the limit, or not at all; the losses are the same."""
    lengths, losses = {}, {}
    for padding in ("longest", "max_length"):
        run, seen = make_run(tmp_path, tasks=("rte",), padding=padding), []
        run.model.eval()
        run.model.register_forward_pre_hook(
            lambda module, args, inputs, seen=seen: seen.append(len(inputs["rows"].input_ids) / len(inputs["rows"])),
            with_kwargs=True,
        )
        for _ in range(3):
            run.train_step()
        lengths[padding], losses[padding] = seen, [loss.item() for loss in run.pending]
    assert lengths["max_length"] == [48] * 3 and max(lengths["longest"]) < 48
    assert losses["max_length"] == pytest.approx(losses["longest"], abs=1e-5)


def test_a_recipe_leaves_what_is_not_as_published():
    """Heads and sizes fitted to a budget or of one's own, and a PAL at the second place. Of s = 53 the divisor nearest
    to 6 heads is 1."""
    paper, released = get_recipe("paper"), get_recipe("released")
    six = get_recipe("paper", pal_heads=6)
    assert [six.apply(get_method("pals-204", size=s, heads=1)).heads for s in (60, 53)] == [6, 1]
    assert paper.apply(get_method("pals-204", size=60, heads=6)).heads == 6
    assert released.apply(get_method("houlsby-64", size=32)).size == 32
    assert released.apply(get_method("houlsby-64", second="pal")).second == "pal"
    named = {"heads": 12, "activation": "identity"}  # as published, but said by name
    pal = RunConfig(method="pals-204", size="paper", recipe="released", method_options=named).resolved_method()
    assert (pal.heads, pal.activation, pal.init) == (12, "identity", "normal")
    assert RunConfig(method="houlsby-64", size=64, recipe="released").resolved_method().size == 64
    own = RunConfig(method="mine", own_method={"kind": "pal", "activation": "identity"}, recipe="released")
    assert (own.resolved_method().activation, own.resolved_method().init) == ("identity", "normal")
