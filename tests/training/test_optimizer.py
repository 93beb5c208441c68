"""The released optimiser against a scalar written by hand, and against torch's AdamW with every quirk off."""

import math
from functools import partial

import pytest
import torch

from palslib.model.multi_task import MultiTaskModel
from palslib.plan.config import RunConfig
from palslib.plan.recipes import get_recipe
from palslib.training.optimizer import ReleasedAdam, RowGradients, clip_gradients, make_optimizer

GRADIENTS = [[3.0, -4.0], [0.1, 0.2], [-2.0, 0.5], [0.0, 0.0], [10.0, -0.01]]
"""Of norms 5, 0.22, 2.06, 0 and 10. With a gradient of zero a tensor goes on by momentum, and decays (ledger D12)."""


def by_hand(start, gradients, bias_correction, clip, rate_factor=lambda t: 1.0, lr=0.1, decay=0.01, eps=1e-6):
    """One number a place, in double precision, from the definition of Adam."""
    p, m, v = list(start), [0.0] * len(start), [0.0] * len(start)
    for t, gradient in enumerate(gradients):
        norm = math.sqrt(sum(g * g for g in gradient))
        scale = min(1.0, clip / (norm + 1e-6)) if clip else 1.0
        for i, g in enumerate(gradient):
            m[i] = 0.9 * m[i] + 0.1 * g * scale
            v[i] = 0.999 * v[i] + 0.001 * (g * scale) ** 2
            first, second = (
                (m[i] / (1 - 0.9 ** (t + 1)), v[i] / (1 - 0.999 ** (t + 1))) if bias_correction else (m[i], v[i])
            )
            p[i] -= lr * rate_factor(t) * (first / (math.sqrt(second) + eps) + decay * p[i])
    return p


@pytest.mark.parametrize("bias_correction", [True, False])
@pytest.mark.parametrize("clip", [1.0, 0.25, None])
def test_against_a_scalar_by_hand(bias_correction, clip):
    """Which, without quirks, is torch's AdamW too."""
    kinds = [partial(ReleasedAdam, bias_correction=bias_correction, clip_each=clip)]
    kinds += [partial(torch.optim.AdamW, eps=1e-6)] if bias_correction and clip is None else []
    for kind in kinds:
        p = torch.tensor([1.0, -2.0], dtype=torch.float64, requires_grad=True)
        optimizer = kind([p], lr=0.1)
        for gradient in GRADIENTS:
            p.grad = torch.tensor(gradient, dtype=torch.float64)
            optimizer.step()
            assert p.grad.tolist() == gradient  # the gradient itself is left alone
        assert p.tolist() == pytest.approx(by_hand([1.0, -2.0], GRADIENTS, bias_correction, clip), rel=1e-12)


def test_own_counters():
    """Ledger D12: a tensor without a gradient is left alone and its schedule waits; its rate follows its own count."""
    busy, rare = (torch.ones(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    optimizer = ReleasedAdam([busy, rare], lr=0.1, rate_factor=lambda t: (t + 1) / 10, weight_decay=0.0, clip_each=None)
    for step in range(4):
        busy.grad = torch.ones(1, dtype=torch.float64)
        rare.grad = torch.ones(1, dtype=torch.float64) if step == 3 else None
        optimizer.step()
        assert (rare.item() == 1.0) == (step < 3)
    assert (optimizer.state[busy]["updates"], optimizer.state[rare]["updates"]) == (4, 1)
    hand = by_hand([1.0], [[1.0]] * 4, False, None, lambda t: (t + 1) / 10, decay=0.0)
    assert busy.tolist() == pytest.approx(hand)
    hand = by_hand([1.0], [[1.0]], False, None, lambda t: (t + 1) / 10, decay=0.0)
    assert rare.tolist() == pytest.approx(hand)  # at its fourth step still the first of its warm-up


# ------------------------------------------------------------------------------------------- the optimiser of a recipe
@pytest.fixture(scope="module")
def model():
    return MultiTaskModel.from_backbone("tiny", "lhuc", ("rte", "cola"))


def made(model, recipe="paper", **options):
    config = RunConfig(method="lhuc", backbone="tiny", steps=100, clip=0.5, weight_decay=0.3)
    return make_optimizer(model, config, get_recipe(recipe, **options))


@pytest.mark.parametrize(
    ("recipe", "options", "bias_correction", "clip_each", "epsilon", "rates"),
    [
        ("paper", {"bias_correction": False}, False, None, 1e-8, None),
        ("paper", {"clip": "each tensor"}, True, 0.5, 1e-8, None),
        ("paper", {"step_counter": "per tensor"}, True, None, 1e-8, [0.1, 0.6, 1.0]),
        ("released", {}, False, 0.5, 1e-6, [0.0, 0.5, 0.9]),
    ],
)
def test_each_quirk_alone_and_all_of_them(model, recipe, options, bias_correction, clip_each, epsilon, rates):
    optimizer = made(model, recipe, **options)
    found = (optimizer.bias_correction, optimizer.clip_each, optimizer.defaults["eps"])
    assert found == (bias_correction, clip_each, epsilon)
    counted = optimizer.rate_factor and [optimizer.rate_factor(t) for t in (0, 5, 10)]
    assert counted == (rates and pytest.approx(rates))


def test_without_quirks_it_is_torchs(model):
    """Whatever its epsilon."""
    for plain, own in (({}, 1e-8), ({"epsilon": 1e-6}, 1e-6)):
        optimizer = made(model, **plain)
        assert type(optimizer) is torch.optim.AdamW and optimizer.defaults["eps"] == own


def test_weight_decay_of_lhuc(model):
    """Ledger D15: 2 tasks of 2 layers have 4 scale vectors, decayed only as released."""
    scales = {id(p) for task in model.adaptations.values() for p in task.parameters()}
    assert len(scales) == 4
    for decay_lhuc in (False, True):
        decayed, rest = made(model, decay_lhuc=decay_lhuc).param_groups
        assert (decayed["weight_decay"], rest["weight_decay"]) == (0.3, 0.0)
        assert scales <= {id(p) for p in (decayed if decay_lhuc else rest)["params"]}


# --- gradients of embeddings, of which a batch reads a few rows
def test_sparse_gradients_train_as_dense_ones():
    """A table of 11 rows of which each step reads some: AdamW on the gradient that is filled where it is in use gives
    what it gives on torch's own dense one, clipped or not, and rows of an earlier step are cleared."""
    tables = [torch.nn.Parameter(torch.randn(11, 3, generator=torch.Generator().manual_seed(0))) for _ in range(2)]
    optimizers = [torch.optim.AdamW([table], lr=0.1, weight_decay=0.1) for table in tables]
    kept, draw = RowGradients(), torch.Generator().manual_seed(1)
    for step, ids in enumerate(([1, 1, 4], [4, 9], [0, 0, 0, 2], [1])):
        ids, weight = torch.tensor(ids), torch.randn(len(ids), 3, generator=draw)
        for table, optimizer, sparse in zip(tables, optimizers, (True, False), strict=True):
            (torch.nn.functional.embedding(ids, table, sparse=sparse) * weight).sum().backward()
            if step % 2:
                clip_gradients([table], 0.1)
            kept.densify([table])
            assert not table.grad.is_sparse
            assert set(table.grad.abs().sum(1).nonzero().flatten().tolist()) == set(ids.tolist())
            optimizer.step()
            optimizer.zero_grad()
        torch.testing.assert_close(*tables, atol=1e-6, rtol=0)


def test_the_global_norm_is_over_all_gradients():
    """3 and 4 make 5, which is clipped to 1; 0.3 and 0.4 make 0.5, which is not. No gradient counts nothing."""
    for scale, expected in ((1.0, (0.6, 0.8)), (0.1, (0.3, 0.4))):
        a, b, none = (torch.nn.Parameter(torch.zeros(2, 1)) for _ in range(3))
        a.grad = torch.sparse_coo_tensor([[1]], torch.tensor([[3.0 * scale]]), (2, 1), check_invariants=True)
        b.grad = torch.tensor([[0.0], [4.0 * scale]])
        clip_gradients([a, b, none], 1.0)
        found = [p.grad.to_dense()[1].item() for p in (a, b)]
        assert found == pytest.approx(expected, rel=1e-5)


def test_query_key_and_value_are_clipped_apart():
    """A PAL's q, k, v lie in one matrix here and in three in the released code: thirds with gradients of norm 10, 1 and
    0.1 are clipped to 1, 1 and 0.1 (ledger D10)."""
    model = MultiTaskModel.from_backbone("tiny", "pals-204", ["rte"], size=12, heads=3)
    config = RunConfig(backbone="tiny", size=12, learning_rate=1e-3, weight_decay=0.0)
    optimizer = make_optimizer(model, config, get_recipe("paper", clip="each tensor"))
    qkv = model.adaptations["rte"].functions["0"].qkv.weight
    assert id(qkv) in optimizer.thirds and id(model.heads["rte"].weight) not in optimizer.thirds
    qkv.grad = torch.cat([torch.full((12, 12), norm / 12) for norm in (10.0, 1.0, 0.1)])
    optimizer.step()
    kept = optimizer.state[qkv]["m"] / 0.1  # of the first step: (1 - 0.9) times the clipped gradient
    assert [third.norm().item() for third in kept.chunk(3)] == pytest.approx([1.0, 1.0, 0.1], rel=1e-4)
