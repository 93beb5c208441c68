"""Dropout by 16-bit random numbers: its distribution, its edges, its gradient, and the attention that uses it."""

import pytest
import torch
from shapes import tiny_encoder, tiny_model
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint
from transformers.integrations.sdpa_attention import sdpa_attention_forward

from palslib.bert.dropout import ATTENTION, Dropout, attend, drop, use_fast_dropout
from palslib.model.multi_task import MultiTaskModel


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_rate_scale_and_mean(p):
    """Of n = 10^6 elements n p are zero, to 5 standard deviations √(n p (1 - p)); the others are 1 / (1 - p)."""
    n = 10**6
    torch.manual_seed(0)
    y = drop(torch.ones(n), p)
    zeros = (y == 0).sum().item()
    assert abs(zeros - n * p) < 5 * (n * p * (1 - p)) ** 0.5
    torch.testing.assert_close(y[y != 0].unique(), torch.tensor([1 / (1 - p)]), atol=0, rtol=1e-3)
    kept = 65536 - round(65536 * p)  # p rounded: the mean is exact with this scale
    assert y.max().item() == pytest.approx(65536 / kept, rel=1e-6)


def test_neighbours_are_independent():
    """The four elements of a 64-bit number, and the last of one with the first of the next: all 2^5 patterns of five
    neighbours are as frequent as independent draws make them (half each, so n / 32, to 5 standard deviations)."""
    torch.manual_seed(0)
    n = 400_000
    m = (drop(torch.ones(n + 4), 0.5) != 0).long()
    for first in range(4):  # where in its number the first of the five stands
        patterns = sum(m[first + k : n + k : 4] << k for k in range(5))
        counts = patterns.bincount(minlength=32).double()
        expected = counts.sum() / 32
        assert (counts - expected).abs().max() < 5 * (expected * 31 / 32).sqrt()


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5,), (2, 3, 7), (0,), (4, 0)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_any_size_and_type(shape, dtype):
    y = drop(torch.ones(shape, dtype=dtype), 0.3)
    assert y.shape == shape and y.dtype == dtype
    assert all(v == 0 or v == pytest.approx(1 / 0.7, rel=0.01) for v in y.flatten().tolist())


def test_edges():
    """p = 0 changes nothing, p = 1 leaves nothing, and a p that rounds to one of them is torch's own; outside [0, 1]
    torch's error."""
    x = drawn(50)
    assert torch.equal(drop(x, 0.0), x)
    assert torch.equal(drop(x, 1.0), torch.zeros(50))
    assert torch.equal(drop(x, 1e-9), x)
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match="probability"):
            drop(x, p)
        with pytest.raises(ValueError, match="probability"):
            Dropout(p)


def test_transposed_input():
    """The pattern is by place, whatever the order in memory."""
    x = drawn(6, 10)
    results = []
    for given in (x.t(), x.t().contiguous()):
        torch.manual_seed(3)
        results.append(drop(given, 0.4))
    assert torch.equal(*results)


def test_gradient():
    """d/dx of x m / (1 - p) is m / (1 - p): zero where the output is, else the scale."""
    x = (drawn(1000) + 10).requires_grad_()
    torch.manual_seed(1)
    y = drop(x, 0.2)
    y.backward(torch.ones(1000))
    torch.testing.assert_close(x.grad, (y / x).detach())
    assert 100 < (x.grad == 0).sum() < 300


def test_gradient_when_recomputed():
    """Checkpointing draws the same pattern again: torch's generator holds all that is random."""
    gradients = []
    for recompute in (False, True):
        x = drawn(64, 8).requires_grad_()
        torch.manual_seed(2)

        def layer(x):
            return drop(x.exp(), 0.5).square()

        y = checkpoint(layer, x, use_reentrant=False) if recompute else layer(x)
        y.sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


def test_random_state():
    """A pattern is a function of the generator's state, and moves it on."""
    state = torch.get_rng_state()
    one, two = drop(torch.ones(99), 0.5), drop(torch.ones(99), 0.5)
    torch.set_rng_state(state)
    assert torch.equal(drop(torch.ones(99), 0.5), one) and not torch.equal(one, two)


def test_eval_is_the_identity():
    module, x = Dropout(0.5).eval(), drawn(9)
    assert module(x) is x and drop(x, 0.5, training=False) is x
    assert not torch.equal(module.train()(torch.ones(99)), torch.ones(99))


class Attention(nn.Module):
    is_causal = False


def masks(kind):
    """(2, 1, 5, 5), keys 3 and 4 of the second row hidden."""
    real = torch.ones(2, 1, 5, 5, dtype=torch.bool)
    real[1, ..., 3:] = False
    additive = torch.zeros(2, 1, 5, 5).masked_fill(~real, torch.finfo(torch.float32).min)
    return {"boolean": real, "additive": additive, "all true": torch.ones_like(real), "none": None}[kind]


@pytest.mark.parametrize("kind", ["boolean", "additive", "all true", "none"])
@pytest.mark.parametrize("scaling", [None, 0.3])
def test_attend_is_sdpa(kind, scaling):
    """In single steps (a tiny rate, at which all but never a weight is dropped) as by torch's sdpa, with gradients."""
    gradients, mask = [], masks(kind)
    for way in ("steps", "sdpa"):
        q, k, v = (drawn(2, 3, 5, 4, seed=i).requires_grad_() for i in range(3))
        torch.manual_seed(0)
        if way == "steps":
            y = attend(Attention(), q, k, v, mask, dropout=2**-16, scaling=scaling)[0]
        else:
            y = scaled_dot_product_attention(q, k, v, mask, scale=scaling).transpose(1, 2)
        (y * drawn(2, 5, 3, 4, seed=9)).sum().backward()
        gradients.append((y.detach(), q.grad, k.grad, v.grad))
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_attend_without_dropout_is_transformers_own():
    """Bit for bit in float32; in bf16 to its 8 bits, with a gradient and without."""
    q, k, v = (drawn(2, 3, 5, 4, seed=i) for i in range(3))
    theirs = sdpa_attention_forward(Attention(), q, k, v, masks("boolean"))[0]
    assert torch.equal(attend(Attention(), q, k, v, masks("boolean"))[0], theirs)
    for gradient in (False, True):
        few = [x.bfloat16().requires_grad_(gradient) for x in (q, k, v)]
        steps = attend(Attention(), *few, masks("boolean"))[0]
        assert steps.dtype == torch.bfloat16 and steps.requires_grad == gradient
        torch.testing.assert_close(steps.float(), theirs, atol=0.03, rtol=0.03)


def test_attend_drops_weights():
    """Values 1, so that a query's result is the sum of its weights: with half of them dropped it is 1 on average."""
    q, k, v = drawn(20, 3, 8, 4), drawn(20, 3, 8, 4, seed=1), torch.ones(20, 3, 8, 4)
    torch.manual_seed(0)
    y = attend(Attention(), q, k, v, None, dropout=0.5)[0]
    assert y.shape == (20, 8, 3, 4) and y.std() > 0.1
    assert y.mean().item() == pytest.approx(1, abs=0.1)


def test_a_mask_stays_as_it_is():
    """Layers share one mask: none may change it."""
    q, mask = drawn(2, 3, 5, 4), masks("additive")
    for given in (mask, masks("boolean")):
        before = given.clone()
        attend(Attention(), q, q, q, given, dropout=0.5)
        assert torch.equal(given, before)


@pytest.mark.parametrize("method", ["pals-204", "bert-layer-on-top", "fine-tuned"])
def test_a_model_uses_it_everywhere(method):
    model = tiny_model(method, dropout=0.1)
    assert {type(part) for part in model.modules() if isinstance(part, nn.Dropout)} == {Dropout}
    assert model.config._attn_implementation == ATTENTION
    ids = torch.arange(6).reshape(2, 3) + 10
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    with torch.no_grad():
        mine = model("rte", ids, mask).logits
        for part in model.modules():
            if isinstance(part, Dropout):
                part.__class__ = nn.Dropout
        for part in (*model.modules(), model):
            if hasattr(part, "config"):
                part.config._attn_implementation = "sdpa"
        torch.testing.assert_close(model("rte", ids, mask).logits, mine, atol=1e-6, rtol=1e-6)


def test_eager_and_keys_stay():
    """Only sdpa is replaced; a state dictionary has the same keys as before."""
    encoder = tiny_encoder(attention="eager")
    keys = list(encoder.state_dict())
    use_fast_dropout(encoder)
    assert encoder.config._attn_implementation == "eager" and list(encoder.state_dict()) == keys
    model = MultiTaskModel.from_backbone(tiny_encoder(), "shared", ("rte",))
    assert [k.removeprefix("backbone.") for k in model.state_dict() if k.startswith("backbone.enc")] == [
        k for k in keys if k.startswith("enc")
    ]
