"""Attention over rows without padding: torch's own, row by row; its gradient, dropout, weights, and other kernels."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import batch, randomised, tiny_encoder
from torch.nn.functional import scaled_dot_product_attention
from transformers.integrations import flash_attention
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from palslib.bert.attention import attend
from palslib.bert.encoders import hidden_states
from palslib.bert.rows import ALIKE, Rows

HEADS, WIDTH = 3, 4
LENGTHS = [5, 1, 3, 4, 2, 5, 5, 6, 1, 3, 2]
"""Eleven rows, so two groups; as they are sorted each has padding."""

pytestmark = pytest.mark.usefixtures("one_thread")


def rows_of(lengths) -> Rows:
    n = sum(lengths)
    return Rows.pack(torch.arange(n), torch.zeros(n, dtype=torch.long), lengths)


def drawn(n: int, dtype=torch.float32, gradient: bool = True) -> list[torch.Tensor]:
    """Query, key and value (n, H·w)."""
    draw = torch.Generator().manual_seed(1)
    made = (torch.randn(n, HEADS * WIDTH, generator=draw, dtype=torch.float64) for _ in range(3))
    return [x.to(dtype).requires_grad_(gradient) for x in made]


def row_by_row(q, k, v, rows: Rows) -> torch.Tensor:
    """Torch's attention on each row alone."""
    parts = []
    for start, length in zip(rows.starts.tolist(), rows.lengths, strict=True):
        of_row = (x[start : start + length].view(1, length, HEADS, WIDTH).transpose(1, 2) for x in (q, k, v))
        parts.append(scaled_dot_product_attention(*of_row).transpose(1, 2).reshape(length, -1))
    return torch.cat(parts)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=2 * ALIKE + 1), st.sampled_from(["sdpa", "eager", None]))
def test_is_torchs_own_on_each_row_alone(lengths, implementation):
    """Context and all three gradients, with one group and several, full ones and such with padding."""
    rows, found = rows_of(lengths), []
    weights = torch.randn(sum(lengths), HEADS * WIDTH, generator=torch.Generator().manual_seed(2))
    for way in (lambda *x: attend(*x, rows, HEADS, implementation=implementation), lambda *x: row_by_row(*x, rows)):
        q, k, v = drawn(sum(lengths))
        y = way(q, k, v)
        (y * weights).sum().backward()
        found.append((y.detach(), q.grad, k.grad, v.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("lengths", [LENGTHS[:4], [3, 3], [2] * (ALIKE + 2)])
def test_gradient_by_finite_differences(lengths):
    """In float64; with padding, without any, and in two groups; with what the same random state drops."""
    rows = rows_of(lengths)

    def seeded(q, k, v):
        torch.manual_seed(3)
        return attend(q, k, v, rows, HEADS, 0.3)

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
    """Before dropout, one tensor a group, none on padding; torch's own, and the context is the same as unseen."""
    rows, seen = rows_of(LENGTHS), []
    q, k, v = drawn(sum(LENGTHS), gradient=False)
    looked = attend(q, k, v, rows, HEADS, 0.0, "sdpa", seen.append)
    assert torch.equal(looked, attend(q, k, v, rows, HEADS))
    attend(q, k, v, rows, HEADS, 0.5, "sdpa", seen.append)
    assert [w.shape for w in seen[:2]] == [(8, HEADS, 6, 6), (3, HEADS, 2, 2)]
    assert all(map(torch.equal, seen[:2], seen[2:]))
    row = 0
    for group, weights in zip(rows.groups, seen, strict=False):
        for of_row in weights:
            start, length = int(rows.starts[row]), rows.lengths[row]
            a, b = (x[start : start + length].view(length, HEADS, WIDTH).transpose(0, 1) for x in (q, k))
            torch.testing.assert_close(of_row[:, :length, :length], (a @ b.mT / WIDTH**0.5).softmax(-1))
            assert not of_row[..., length:].any()
            torch.testing.assert_close(of_row.sum(-1), torch.ones(HEADS, group.width))
            row += 1
    assert row == len(rows)


@pytest.mark.parametrize("odd", [0, 1, 2])
def test_bf16_of_any_mixture(odd):
    """Under autocast a task's own term leaves one of the three in float32 ((IA)³ the value): all are cast, context and
    gradients are float32's to bf16's eight bits."""
    rows, found = rows_of(LENGTHS), []
    alike = [x.detach().bfloat16() for x in drawn(sum(LENGTHS))]  # are summed in float32
    assert torch.equal(attend(*alike, rows, HEADS), attend(*(x.float() for x in alike), rows, HEADS).bfloat16())
    for mixed in (True, False):
        given = drawn(sum(LENGTHS))
        cast = [x.bfloat16() if mixed and i != odd else x for i, x in enumerate(given)]
        with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
            y = attend(*cast, rows, HEADS, 0.0)
        assert y.dtype == (torch.bfloat16 if mixed else torch.float32)
        y.float().square().sum().backward()
        found.append((y.detach().float(), *(x.grad for x in given)))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=0.05, rtol=0.05)


# ------------------------------------------------------------------------------------------------------- other kernels
@pytest.fixture
def calls():
    """What a function that stands under a name of its own among Transformers' is called with."""
    made = []

    def function(module, query, key, value, attention_mask, dropout=0.0, scaling=None, **others):
        made.append({"mask": attention_mask, "training": module.training, "dropout": dropout, **others})
        ends, parts = others["cu_seq_lens_q"].tolist(), []
        for a, b in pairwise(ends):
            of_row = (x[:, :, a:b] for x in (query, key, value))
            parts.append(scaled_dot_product_attention(*of_row, scale=scaling).transpose(1, 2))
        return torch.cat(parts, 1), None  # (1, N, H, w)

    ALL_ATTENTION_FUNCTIONS.register("by-rows", function)
    yield made
    del ALL_ATTENTION_FUNCTIONS._global_mapping["by-rows"]


def test_a_function_by_name(calls):
    """It gets the rows end to end, (1, H, N, w), and where each begins; the context is ours."""
    rows = rows_of(LENGTHS)
    q, k, v = drawn(sum(LENGTHS), gradient=False)
    torch.testing.assert_close(attend(q, k, v, rows, HEADS, 0.1, "by-rows"), attend(q, k, v, rows, HEADS))
    (call,) = calls
    starts = [0, *torch.tensor(rows.lengths).cumsum(0).tolist()]
    assert call["cu_seq_lens_q"].tolist() == call["cu_seq_lens_k"].tolist() == starts
    assert call["cu_seq_lens_q"].dtype == torch.int32
    assert call["max_length_q"] == call["max_length_k"] == 6 and call["mask"] is None
    assert call["training"] and call["dropout"] == 0.1
    attend(q, k, v, rows, HEADS, 0.1, "by-rows", look=lambda weights: None)  # such a function has no weights to show
    wide = rows.with_padding(6)
    attend(*(torch.zeros(6 * len(rows), HEADS * WIDTH) for _ in range(3)), wide, HEADS, 0.0, "by-rows")
    assert len(calls) == 1  # nor does it know of padding


def test_a_model_by_name(calls):
    """BERT's attention and a PAL's go through it, and logits are the same."""
    model = randomised("pals-204")
    with torch.no_grad():
        logits = model("rte", **batch()).logits
        model.backbone.set_attn_implementation("by-rows")
        torch.testing.assert_close(model("rte", **batch()).logits, logits, atol=1e-5, rtol=1e-5)
    assert len(calls) == 3 * 2
    assert {tuple(call["cu_seq_lens_q"].tolist()) for call in calls} == {(0, 7, 13, 18)}


def test_flash_attention_finds_what_it_asks_for(monkeypatch):
    """Transformers' own function around the kernel, with the kernel itself (CUDA only) by rows."""
    asked = []

    def kernel(query, key, value, attention_mask, query_length, cu_seq_lens_q, softmax_scale, **others):
        asked.append({"mask": attention_mask, "causal": others["is_causal"], "name": others["attn_implementation"]})
        parts = []
        for x in zip(*(x[0].split(cu_seq_lens_q.diff().tolist()) for x in (query, key, value)), strict=True):
            a, b, c = (y.transpose(0, 1)[None] for y in x)
            parts.append(scaled_dot_product_attention(a, b, c, scale=softmax_scale)[0].transpose(0, 1))
        return torch.cat(parts)[None]

    monkeypatch.setattr(flash_attention, "_flash_attention_forward", kernel)
    encoder, rows = tiny_encoder(), Rows.from_padded(**batch())
    with torch.no_grad():
        plain = hidden_states(encoder, rows)
        encoder.config._attn_implementation = "flash_attention_2"
        torch.testing.assert_close(hidden_states(encoder, rows), plain, atol=1e-5, rtol=1e-5)
    assert asked == [{"mask": None, "causal": False, "name": "flash_attention_2"}] * 3
