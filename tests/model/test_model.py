"""The model around the task functions: keys, recording, tasks apart from each other, gradients, training, losses."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch
from shapes import (
    FROZEN,
    LAYERS,
    D,
    batch,
    logits_of,
    randomise,
    randomised,
    tiny_encoder,
    tiny_method,
    tiny_model,
)

from palslib.bert.backbones import load_encoder, load_tokenizer
from palslib.bert.draws import own_draws
from palslib.bert.rows import Rows
from palslib.methods.table import METHODS
from palslib.model.multi_task import MultiTaskModel

LABELS = torch.tensor([0, 1, 0])
SHARED_BY_TASKS = "pals-shared-across-tasks-204"


def loss_of(model, shape="bert"):
    return model("rte", **batch(shape), labels=LABELS).loss


def test_looking_inside():
    """Every named point is passed, in order, with its shapes; what a looker returns takes the value's place, and blocks
    within blocks look in turn."""
    model, seen, rows = randomised("pals-204"), [], Rows.from_padded(**batch())

    def look(point, layer, value):
        seen.append((point, layer, None if point == "task" else tuple(value.shape)))
        return value

    def changed(*changes):
        """The last hidden state where TS(h) goes through some functions."""
        with ExitStack() as blocks, torch.no_grad():
            for change in changes:
                blocks.enter_context(model.watch(lambda point, i, ts, change=change: change(ts), "task function"))
            return model.encode("rte", rows)[-1]

    before = changed()
    with model.watch(look), torch.no_grad():
        assert torch.equal(model.encode("rte", rows)[-1], before)
    one_layer = [
        ("task", None),
        ("hidden", (18, D)),
        ("attention", (3, 4, 7, 7)),
        ("context", (18, D)),
        ("task query", (18, 12)),
        ("task attention", (3, 3, 7, 7)),
        ("task context", (18, 12)),
        ("task function", (18, D)),
    ]
    assert seen == [(point, i, shape) for i in range(LAYERS) for point, shape in one_layer]
    ones = changed(lambda ts: ts * 0, lambda ts: ts + 1)
    assert torch.equal(ones, changed(lambda ts: ts * 0 + 1)) and not torch.equal(ones, before)
    with pytest.raises(TypeError):
        changed(lambda ts: ts())
    assert torch.equal(changed(), before)


def test_looking_at_some_points_of_one_task():
    """Also where several tasks are computed at once."""
    model, seen = randomised("attention-on-top-204"), []

    def look(point, layer, value):
        seen.append((point, layer))
        return value

    with model.watch(look, "task context", "hidden", task="rte"), torch.no_grad():
        model("stsb", **batch())
        model.encode(None, Rows.from_padded(**batch()))
        assert seen == []
        model.forward_many({"stsb": [0], "rte": [1, 2]}, **batch())
        assert seen == [("hidden", i) for i in range(LAYERS)] + [("task context", LAYERS + i) for i in range(6)]
        masked = model.forward_many({"stsb": torch.tensor([True, False, True])}, **batch())  # rows 0 and 2
        assert torch.equal(masked["stsb"], model.forward_many({"stsb": [0, 2]}, **batch())["stsb"])
    with pytest.raises(ValueError, match="unknown point 'contex': did you mean 'context'"), model.watch(look, "contex"):
        pass


# The last layer, of which the pooler reads [CLS].

FORMS = [*((name, {}) for name in METHODS), ("houlsby-64", {"second": "pal", "pal_size": 12, "pal_heads": 3})]
FORMS += [("pals-204", {"scaled": True, "activation": "gelu"}), ("houlsby-64", {"second": "parallel"})]


def alone_and_whole(model, *inputs, **named):
    """Logits, before they are rounded to float32, and gradients, with the last layer for [CLS] alone and whole."""
    found, seen = [], []
    model.heads["rte"].register_forward_hook(lambda head, given, out: seen.append(out))
    for whole in (False, True):
        model.whole_last_layer = whole
        model.zero_grad()
        loss = model("rte", **batch(*inputs, **named), labels=LABELS.repeat(4)[: named["rows"]]).loss
        (seen[-1].square().sum() + loss).backward()
        gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
        found.append({"loss": loss.detach(), "logits": seen[-1].detach(), **gradients})
    return found


@pytest.mark.parametrize(("shape", "attention"), [("bert", "sdpa"), ("roberta", "eager"), ("xlm-roberta", "sdpa")])
@pytest.mark.parametrize(("name", "options"), FORMS)
def test_the_last_layer_for_cls_alone(name, options, shape, attention):
    """Logits and all gradients are the whole layer's, in float64; and no more goes through the feed-forward network."""
    model = randomised(name, shape, attention=attention, **options).double()
    rows, reads_all = 10, "on-top" in name or name == "feature-extraction" or options.get("second") == "pal"
    one, other = alone_and_whole(model, shape, rows=rows, width=12)
    assert one.keys() == other.keys()
    for key, value in one.items():
        torch.testing.assert_close(value, other[key], atol=1e-12, rtol=1e-12, msg=key)
    model.whole_last_layer, seen = False, []
    encoder = getattr(model.adaptations["rte"], "backbone", model.backbone)
    encoder.encoder.layer[-1].intermediate.register_forward_hook(lambda part, given, out: seen.append(len(out)))
    model("rte", **batch(shape, rows=rows, width=12))
    with model.watch(lambda point, layer, value: value, "hidden"):
        model("rte", **batch(shape, rows=rows, width=12))
    pieces = sum(range(3, 13))
    assert seen == [pieces if reads_all else rows, pieces]


def test_predictions_from_threads_are_those_of_one():
    """Of a model in training, with dropout, whose rows are cut at another length by each thread."""
    encoder = load_encoder("tiny").train()
    model = MultiTaskModel.from_backbone(encoder, tiny_method("pals-204"), ["sst2"], tokenizer=load_tokenizer("tiny"))
    texts = ["a b c d e f g h i j k l m n o p", "one more"] * 4

    def scores(length: int) -> list[float]:
        return model.predict(texts, "sst2", max_length=length)["score"].tolist()

    lengths = [8, 10, 12, 14] * 6
    alone = {length: scores(length) for length in lengths[:4]}
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(scores, lengths)) == [alone[length] for length in lengths]
    assert model.training


# Seeds, tasks in any order, tasks added and removed.


@pytest.mark.parametrize("name", METHODS)
def test_draws_depend_on_seed_and_task_alone(name):
    """Not on the order of tasks, on torch's global state, nor on what else was drawn; and the global state stays. So is
    the pooler of a backbone without one."""
    torch.manual_seed(5)
    one = tiny_model(name, "bert-without-pooler", tasks=("rte", "stsb", "cola"))
    torch.manual_seed(6)
    state = torch.get_rng_state()
    other = tiny_model(name, "bert-without-pooler", tasks=("cola", "rte"))
    other.add_task("stsb")
    assert torch.equal(torch.get_rng_state(), state)
    assert {k: v.shape for k, v in one.state_dict().items()} == {k: v.shape for k, v in other.state_dict().items()}
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in one.state_dict().items())


@pytest.mark.parametrize("name", ["shared", "pals-204", SHARED_BY_TASKS, "low-rank-100", "houlsby-64"])
def test_seeds_and_tasks_differ(name):
    one, other = (tiny_model(name, "bert-without-pooler", tasks=("rte", "cola"), seed=seed) for seed in (0, 1))
    drawn = [key for key, p in one.state_dict().items() if p.ndim == 2 and p.any() and not key.startswith("backbone.")]
    assert "new_pooler.dense.weight" in drawn and 0.15 < one.pooler.dense.weight.std() < 0.25  # N(0, 0.2)
    assert not any(torch.equal(one.state_dict()[key], other.state_dict()[key]) for key in drawn)
    for key in drawn:
        if ".rte." in key:
            assert not torch.equal(one.state_dict()[key], one.state_dict()[key.replace(".rte.", ".cola.")])


@pytest.mark.parametrize("name", METHODS)
def test_adding_and_removing_leaves_the_others(name):
    """Neither changes a bit of another task's logits."""
    model = randomised(name, tasks=("rte", "stsb"))
    before = {task: logits_of(model, task=task) for task in ("rte", "stsb")}
    model.add_task("cola")
    assert all(torch.equal(logits_of(model, task=task), before[task]) for task in before)
    for task in ("stsb", "cola"):
        model.remove_task(task)
    assert torch.equal(logits_of(model), before["rte"])
    assert list(model.tasks) == list(model.adaptations) == list(model.heads) == ["rte"]


def test_new_models_and_tasks_are_in_the_encoders_mode():
    """All parts in eval mode on an encoder in eval mode, so that a new model has no dropout in some of its parts."""
    for training in (False, True):
        encoder = tiny_encoder(dropout=0.5).train(training)
        model = MultiTaskModel.from_backbone(encoder, tiny_method("attention-on-top-204"), ["rte"])
        model.add_task("cola")
        assert {module.training for module in model.modules()} == {training}


DROPOUTS = {  # a method, the part of it that drops, and the part's rate
    "embeddings": ("shared", lambda model: model.backbone.embeddings.dropout, "p"),
    "attention weights": ("shared", lambda model: model.backbone.encoder.layer[0].attention.self.dropout, "p"),
    "attention output": ("shared", lambda model: model.backbone.encoder.layer[0].attention.output.dropout, "p"),
    "feed-forward output": ("shared", lambda model: model.backbone.encoder.layer[0].output.dropout, "p"),
    "attention on top": ("attention-on-top-204", lambda model: model.adaptations["rte"].top_layers[0], "dropout"),
    "feed-forward on top": ("ffn-on-top-408", lambda model: model.adaptations["rte"].top_layers[0], "dropout"),
    "attention of a PAL": ("pals-204", lambda model: model.adaptations["rte"].functions["0"], "dropout"),
    "pooled [CLS]": ("shared", lambda model: model, "head_dropout"),
}


@pytest.mark.parametrize("place", DROPOUTS)
def test_each_dropout_acts_in_training_alone(place):
    """All other rates are 0. That of a PAL is the backbone's, on attention weights."""
    name, part_of, rate = DROPOUTS[place]
    model = randomised(name, mode="train")
    calm = logits_of(model)
    setattr(part_of(model), rate, 0.5)
    assert not torch.equal(logits_of(model), calm)
    assert torch.equal(logits_of(model.eval()), calm)


@pytest.mark.parametrize("name", METHODS)
def test_bf16_autocast(name):
    """Under autocast the loss is that of float32 to bf16's 8 bits, and gradients are finite float32."""
    model = tiny_model(name, mode="train")
    plain = loss_of(model)
    with torch.autocast("cpu", torch.bfloat16):
        loss = loss_of(model)
    loss.backward()
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, plain, atol=0.05, rtol=0.05)
    for key, p in model.named_parameters():
        assert p.grad is None or (p.grad.dtype == torch.float32 and p.grad.isfinite().all()), key


# Gradients.


@pytest.mark.parametrize("shape", ["bert", "roberta", "bert-without-pooler"])
@pytest.mark.parametrize("name", METHODS)
def test_gradients_after_one_update(name, shape):
    """They reach every parameter of the task but key biases, and none of another task's."""
    model = tiny_model(name, shape, mode="train")
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        loss_of(model, shape).backward()
        optimizer.step()
    for key, p in [*model.adaptations["rte"].named_parameters(), *model.heads["rte"].named_parameters()]:
        for part, grad in zip("qkv", p.grad.chunk(3), strict=True) if "qkv" in key else [("", p.grad)]:
            if (part == "k" and p.ndim == 1) or "key.bias" in key:  # softmax is the same whatever all keys have more
                assert grad.abs().max() < 1e-6, key
            else:
                assert grad.abs().max() > 1e-8, key
    for part in (model.adaptations["stsb"], model.heads["stsb"]):
        assert all(p.grad is None for p in part.parameters())
    for part in (model.backbone, model.pooler):
        frozen = name in FROZEN or name == "fine-tuned"
        if name in FROZEN and part is model.pooler:
            frozen = model.new_pooler is None  # frozen as it was drawn it would be noise
        for key, p in part.named_parameters():
            assert (p.grad is None) == frozen and p.requires_grad != frozen, key
    if model.shared is not None:
        assert all(p.grad.any() for p in model.shared.parameters())


@pytest.mark.parametrize("name", ["pals-204", "houlsby-64", "lhuc"])
def test_frozen_but_norms(name):
    """Of the backbone exactly the layer norms are trained: two a layer and the embeddings', a gain and a shift each."""
    model = tiny_model(name, freeze="backbone but norms")
    trained = {key for key, p in model.backbone.named_parameters() if p.requires_grad}
    assert trained == {key for key, _ in model.backbone.named_parameters() if "LayerNorm" in key}
    assert len(trained) == 2 * (2 * LAYERS + 1)
    assert not any(p.requires_grad for p in model.pooler.parameters())
    assert all(p.requires_grad for p in model.adaptations.parameters())


@pytest.mark.parametrize("shape", ["bert", "bert-without-pooler"])
@pytest.mark.parametrize("name", [n for n in METHODS if n not in ("fine-tuned",)])
def test_separate_poolers(name, shape):
    """A pooler for each task starts as the shared one and is used and trained in its place, also where that is frozen
    when the task comes."""
    model = tiny_model(name, shape, pooler="per-task", mode="train")
    assert torch.equal(logits_of(model, shape), logits_of(tiny_model(name, shape), shape))
    loss_of(model, shape).backward()
    assert all(p.grad.any() for p in model.adaptations["rte"].pooler.parameters())
    assert not any(p.requires_grad for p in model.pooler.parameters())
    before = {task: logits_of(model, shape, task) for task in model.tasks}
    for part in (model.pooler, model.adaptations["rte"].pooler):
        randomise(part)
        assert torch.equal(logits_of(model, shape), before["rte"]) == (part is model.pooler)
        assert torch.equal(logits_of(model, shape, "stsb"), before["stsb"])
    model.add_task("cola")
    assert all(p.requires_grad for p in model.adaptations["cola"].parameters())


@pytest.mark.parametrize(("shape", "dropout"), [("bert", 0.0), ("bert-without-pooler", 0.3)])
@pytest.mark.parametrize("name", METHODS)
def test_gradient_checkpointing(name, shape, dropout):
    """Layers run twice, in eval mode too; they give the same gradients, also with dropout: its random state is kept."""
    grads, runs = [], []
    for checkpointing in (False, True):
        model = randomised(name, shape, dropout=dropout).train(dropout > 0)
        model.recomputes = checkpointing
        encoder = getattr(model.adaptations["rte"], "backbone", model.backbone)
        encoder.encoder.layer[0].intermediate.register_forward_hook(lambda *_: runs.append(1))
        with own_draws(3, torch.device("cpu")):
            loss_of(model, shape).backward()
        grads.append({key: p.grad for key, p in model.named_parameters() if p.grad is not None})
    assert (len(runs) == 1 + 2 or name in FROZEN) and grads[0].keys() == grads[1].keys()
    for key, grad in grads[0].items():
        torch.testing.assert_close(grads[1][key], grad, atol=1e-6, rtol=1e-5, msg=key)


@pytest.mark.parametrize("decay_lhuc", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_parameter_groups(name, decay_lhuc):
    """Every trained parameter in one group, no frozen one in any; vectors are not decayed, LHUC's where asked; what the
    method adds, and it alone, has a rate of its own."""
    model = tiny_model(name)
    parts = () if name == "fine-tuned" else filter(None, (model.adaptations, model.shared))  # it adds nothing
    added = {id(p) for part in parts for p in part.parameters()}
    groups = model.parameter_groups(0.05, decay_lhuc, adaptation_rate=10)
    of = {id(p): (group["weight_decay"], group["multiple"]) for group in groups for p in group["params"]}
    assert len(of) == sum(len(group["params"]) for group in groups)
    assert set(of) == {id(p) for p in model.parameters() if p.requires_grad}
    for key, p in model.named_parameters():
        decayed = p.ndim == 2 or (decay_lhuc and ".scales." in key)
        if p.requires_grad:
            assert of[id(p)] == (0.05 if decayed else 0, 10 if id(p) in added else 1), key


# Losses, labels and errors.


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m("rtee", **batch()), "'rtee': did you mean 'rte'.*stsb"),
        (lambda m: m.encode("stbs", Rows.from_padded(**batch())), "'stbs': did you mean 'stsb'"),
        (lambda m: m.add_task("rte"), "'rte' is already"),
        (lambda m: MultiTaskModel(m.backbone, m.method, "rte"), "tasks must be a list of names or Tasks, not 'rte'"),
    ],
)
def test_unknown_tasks(call, words):
    model = tiny_model("pals-204")
    with pytest.raises(ValueError, match=words):
        call(model)
    assert list(model.tasks) == list(model.adaptations) == list(model.heads) == ["rte", "stsb"]


@pytest.mark.parametrize(
    ("name", "shape"), [("attention-on-top-204", "bert"), (SHARED_BY_TASKS, "bert-without-pooler")]
)
def test_new_parts_have_the_type_of_the_backbone(name, shape):
    """An encoder that was loaded in bfloat16 computes, and is trained, in bfloat16."""
    model = MultiTaskModel.from_backbone(tiny_encoder(shape).bfloat16(), tiny_method(name), ["rte"]).train()
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    loss_of(model, shape).backward()
