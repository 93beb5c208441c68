"""Dropout by 16-bit random numbers: its distribution, its edges, its gradient."""

import pytest
import torch

from palslib.bert.dropout import drop, kept


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_rate_scale_and_mean(p):
    """Of n = 10^6 elements n p are zero, to 5 standard deviations √(n p (1 - p)); the others are 1 / (1 - p), and so is
    the gradient."""
    n = 10**6
    torch.manual_seed(0)
    x = torch.ones(n, requires_grad=True)
    y = drop(x, p)
    y.sum().backward()
    assert torch.equal(x.grad, y)
    zeros = (y == 0).sum().item()
    assert abs(zeros - n * p) < 5 * (n * p * (1 - p)) ** 0.5
    scale = 65536 / (65536 - round(65536 * p))  # p rounded: the mean is exact with this scale
    torch.testing.assert_close(y[y != 0].unique(), torch.tensor([scale]), atol=0, rtol=1e-6)


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
    """Eval mode and p = 0 change nothing, p = 1 leaves nothing, and a p that rounds to one of them is torch's own;
    outside [0, 1] torch's error."""
    x = torch.arange(50.0)
    assert drop(x, 0.5, training=False) is x
    for p, left in ((0.0, x), (1e-9, x), (1.0, 0 * x)):
        ones, scale = kept(x, p)
        assert torch.equal(drop(x, p), left) and torch.equal(x * ones * scale, left)
    for p in (-0.1, 1.1):
        with pytest.raises(ValueError, match="probability"):
            drop(x, p)
