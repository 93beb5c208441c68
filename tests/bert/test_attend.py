"""Attention over rows without padding: torch's own, row by row; its gradient, dropout and weights; [CLS] alone."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional

from palslib.bert.attention import attend, fused
from palslib.bert.rows import Rows

HEADS, WIDTH = 3, 5
LENGTHS = [5, 1, 3, 4, 2, 5, 5, 6, 1, 3, 2]
"""Eleven rows in four groups, three of them with padding."""

pytestmark = pytest.mark.usefixtures("small_groups")


def rows_of(lengths) -> Rows:
    n = sum(lengths)
    return Rows.pack(torch.arange(n), torch.zeros(n, dtype=torch.long), lengths)


def drawn(n: int, dtype=torch.float32) -> list[torch.Tensor]:
    """Query, key and value (n, H·w)."""
    made = torch.randn(3, n, HEADS * WIDTH, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return [x.to(dtype).requires_grad_() for x in made]


def row_by_row(q, k, v, rows: Rows, heads: int) -> torch.Tensor:
    """Torch's attention on each row alone."""
    parts = []
    for start, length in zip(rows.starts.tolist(), rows.lengths, strict=True):
        of_row = (x[start : start + length].view(1, length, heads, -1).transpose(1, 2) for x in (q, k, v))
        parts.append(functional.scaled_dot_product_attention(*of_row).transpose(1, 2).reshape(length, -1))
    return torch.cat(parts)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=17), st.booleans(), st.sampled_from([1, HEADS]))
def test_is_torchs_own_on_each_row_alone(lengths, first_alone, heads):
    """Context and all three gradients, with one group and several, full ones and such with padding, narrow heads and a
    wide one; on a GPU's way all rows are one group. Of [CLS] alone they are those of each row's first query."""
    rows, n = rows_of(lengths), sum(lengths)
    one_group = Rows.pack(rows.input_ids, rows.token_type_ids, rows.lengths, one_group=True)
    weights = torch.randn(n, HEADS * WIDTH, generator=torch.Generator().manual_seed(2))

    def gradients(way, rows):
        q, k, v = drawn(n)
        if first_alone:
            rows = rows.first_alone()
            y = way(rows.wanted(q), k, v, rows, heads)
            assert y.shape == (len(lengths), HEADS * WIDTH)
        else:
            y = way(q, k, v, rows, heads)
        (y * rows.wanted(weights)).sum().backward()
        return y.detach(), q.grad, k.grad, v.grad

    q, k, v = drawn(n)
    y = row_by_row(q, k, v, rows, heads)
    y = y[rows.starts] if first_alone else y
    (y * (weights[rows.starts] if first_alone else weights)).sum().backward()
    for ours in (gradients(attend, rows), gradients(fused, one_group)):
        torch.testing.assert_close(ours, (y.detach(), q.grad, k.grad, v.grad), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("first_alone", [False, True])
@pytest.mark.parametrize("lengths", [LENGTHS[:4], [3, 3], [2] * 10])
def test_gradient_by_finite_differences(lengths, first_alone):
    """In float64; with padding, without any, and in several groups; with what the same random state drops."""
    rows = rows_of(lengths).first_alone() if first_alone else rows_of(lengths)

    def seeded(q, k, v):
        torch.manual_seed(3)
        return attend(rows.wanted(q), k, v, rows, HEADS, 0.3)

    assert torch.autograd.gradcheck(seeded, drawn(sum(lengths), torch.float64))


def test_a_second_derivative_is_refused():
    """The gradient by hand has none; that it is not told would be a wrong number."""
    q, k, v = drawn(4)
    (first,) = torch.autograd.grad(attend(q, k, v, rows_of([4]), HEADS).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()


def test_dropout_is_of_the_weights():
    """With unit vectors as values the context is the weights themselves: each is 0 with probability p, else divided by
    1 - p, to 5 standard deviations; and every draw is another."""
    n, p = 8, 0.25
    rows = rows_of([n] * 200)
    q, k, _ = (torch.randn(n * 200, n, generator=torch.Generator().manual_seed(i)) for i in range(3))
    v = torch.eye(n).repeat(200, 1)
    torch.manual_seed(5)
    whole, dropped, again = (attend(q, k, v, rows, 1, p) for p in (0.0, p, p))
    zero = dropped == 0
    assert abs(zero.sum() - zero.numel() * p) < 5 * (zero.numel() * p * (1 - p)) ** 0.5
    torch.testing.assert_close(dropped[~zero], whole[~zero] / (1 - p))
    assert not torch.equal(dropped, again)
    assert not attend(q, k, v, rows, 1, 1.0).any()  # all of them


def test_what_looks_sees_weights_that_sum_to_one():
    """Before dropout, one tensor a group, none on padding; the context is the same as unseen. Where values are unit
    vectors, it is the weights."""
    rows, seen, most = rows_of(LENGTHS), [], max(LENGTHS)
    q, k = torch.randn(2, sum(LENGTHS), HEADS * most, generator=torch.Generator().manual_seed(1))
    v = torch.eye(most)[rows.positions].repeat(1, HEADS)
    context = attend(q, k, v, rows, HEADS, 0.0, seen.append)
    assert torch.equal(context, attend(q, k, v, rows, HEADS))
    attend(q, k, v, rows, HEADS, 0.5, seen.append)
    sizes = [(2, 6), (3, 5), (4, 3), (2, 1)]  # `small_groups` of 6 5, 5 5 4, 3 3 2 2, 1 1
    assert [w.shape for w in seen[:4]] == [(size, HEADS, width, width) for size, width in sizes]
    assert all(map(torch.equal, seen[:4], seen[4:]))
    for group, weights in zip(rows.groups, seen, strict=False):
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3]))
        of_pieces = group.gather(weights.transpose(1, 2).flatten(0, 1))  # (last - first, H, S_g)
        same = context[group.first : group.last].view(-1, HEADS, most)
        torch.testing.assert_close(functional.pad(of_pieces, (0, most - group.width)), same)


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_bf16_of_any_mixture(odd):
    """Under autocast a task's own term leaves one of the three in float32 ((IA)³ the value): all are cast, context and
    gradients are float32's to bf16's eight bits."""
    rows, results = rows_of(LENGTHS), []
    alike = [x.detach().bfloat16() for x in drawn(sum(LENGTHS))]  # are summed in float32
    assert torch.equal(attend(*alike, rows, HEADS), attend(*(x.float() for x in alike), rows, HEADS).bfloat16())
    for mixed in (True, False):
        inputs = drawn(sum(LENGTHS))
        cast = [x.bfloat16() if mixed and i != odd else x for i, x in enumerate(inputs)]
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            y = attend(*cast, rows, HEADS, 0.0)
        assert y.dtype == (torch.bfloat16 if mixed else torch.float32)
        y.float().square().sum().backward()
        results.append((y.detach().float(), *(x.grad for x in inputs)))
    torch.testing.assert_close(*results, atol=0.05, rtol=0.05)
