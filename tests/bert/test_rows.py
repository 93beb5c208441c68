"""Batches without padding: nothing is lost or mixed up on the way in, apart, and back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from shapes import randomised

from palslib.bert.rows import Rows

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=19)

pytestmark = pytest.mark.usefixtures("small_groups")


def pieces_of(lengths) -> tuple[torch.Tensor, torch.Tensor]:
    """Word pieces that tell their row and place, 100 · row + place, and token types, 1 in the second half of a row."""
    ids = [torch.arange(100 * i + 100, 100 * i + 100 + n) for i, n in enumerate(lengths)]
    types = [torch.arange(n) * 2 // n for n in lengths]
    return torch.cat(ids), torch.cat(types)


def padded_batch(lengths, pads, fill: int = 7) -> dict[str, torch.Tensor]:
    """The same pieces in a padded batch, row i with `pads[i]` columns of padding before it; there stands `fill`."""
    ids, types = (x.split(lengths) for x in pieces_of(lengths))
    width = max(n + pad for n, pad in zip(lengths, pads, strict=True))
    grid = {
        "input_ids": torch.full((len(lengths), width), fill),
        "attention_mask": torch.zeros(len(lengths), width, dtype=torch.long),
        "token_type_ids": torch.ones(len(lengths), width, dtype=torch.long),
    }
    for i, (n, pad) in enumerate(zip(lengths, pads, strict=True)):
        there = slice(pad, pad + n)
        grid["input_ids"][i, there], grid["token_type_ids"][i, there] = ids[i], types[i]
        grid["attention_mask"][i, there] = 1
    return grid


def given_rows(rows: Rows, values: torch.Tensor) -> list[list]:
    """Values of the word pieces, row by row in the caller's order."""
    places = zip(rows.order.tolist(), rows.starts.tolist(), rows.lengths, strict=True)
    return [values[start : start + length].tolist() for _, start, length in sorted(places)]


def check_groups(rows: Rows) -> None:
    """The groups cut the word pieces without gaps, and spread to a grid a mask shows just each row's own pieces."""
    ends, row = [0], 0
    for group in rows.groups:
        assert group.first == ends[-1]
        ends.append(group.last)
        lengths = rows.lengths[row : row + group.size]
        row += group.size
        assert group.width == max(lengths) and group.last - group.first == sum(lengths)
        if group.places is None:
            assert group.mask is None and set(lengths) == {group.width}
            continue
        grid = torch.zeros(group.size * group.width, dtype=torch.long)
        grid[group.places] = rows.input_ids[group.first : group.last]
        seen = (grid.view(group.size, 1, 1, group.width) > 0).expand(-1, 1, group.width, -1)
        assert torch.equal(group.mask == 0, seen) and torch.equal(group.mask == -torch.inf, ~seen)
        assert [line[line > 0].tolist() for line in grid.view(group.size, -1)] == [
            rows.input_ids[start : start + n].tolist()
            for start, n in zip(rows.starts[row - group.size : row].tolist(), lengths, strict=True)
        ]
    assert ends[-1] == len(rows.input_ids) and row == len(rows)


@settings(deadline=None)
@given(LENGTHS)
def test_pack(lengths):
    """Longest first, equal ones in the order given; every piece is in its row, at its place, with its type."""
    ids, types = pieces_of(lengths)
    rows = Rows.pack(ids, types, lengths)
    assert list(rows.lengths) == sorted(lengths, reverse=True) and rows.width == rows.reach == max(lengths)
    assert rows.order.tolist() == sorted(range(len(lengths)), key=lambda i: -lengths[i])
    for packed, whole in ((rows.input_ids, ids), (rows.token_type_ids, types)):
        assert given_rows(rows, packed) == [row.tolist() for row in whole.split(lengths)]
    assert given_rows(rows, rows.positions) == [list(range(n)) for n in lengths]
    check_groups(rows)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=1, max_size=11))
def test_from_padded(rows_and_pads):
    """Padding on either side is left out; a piece's position is its column."""
    lengths, pads = map(list, zip(*rows_and_pads, strict=True))
    rows = Rows.from_padded(**padded_batch(lengths, pads))
    ids, types = pieces_of(lengths)
    assert given_rows(rows, rows.input_ids) == [row.tolist() for row in ids.split(lengths)]
    assert given_rows(rows, rows.token_type_ids) == [row.tolist() for row in types.split(lengths)]
    assert given_rows(rows, rows.positions) == [list(range(p, p + n)) for n, p in rows_and_pads]
    assert rows.reach == max(n + p for n, p in rows_and_pads) and rows.width == max(lengths)
    check_groups(rows)


ONES = torch.ones(2, 3, dtype=torch.long)


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ((ONES, None, ONES[0]), r"token_type_ids .* \(B, S\), not \(2, 3\) and \(3,\)"),
        ((ONES[0],), r"input_ids .* \(B, S\), not \(3,\)"),
        ((ONES[:0],), "at least one row"),
        ((ONES, torch.tensor([[1, 1, 0], [0, 0, 0]])), r"at least one word piece, not 2 .* \[2, 0\]"),
    ],
)
def test_what_is_no_batch(inputs, words):
    with pytest.raises(ValueError, match=words):
        Rows.from_padded(*inputs)


@settings(deadline=None)
@given(LENGTHS, st.data())
def test_take(lengths, data):
    """Some rows, in any order: their own batch, as if no other had been there, and which word pieces are theirs."""
    some = data.draw(st.lists(st.sampled_from(range(len(lengths))), min_size=1, unique=True))
    pads = data.draw(st.lists(st.integers(0, 2), min_size=len(lengths), max_size=len(lengths)))
    grid = padded_batch(lengths, pads)
    rows = Rows.from_padded(**grid)
    taken, pieces = rows.take(some)
    alone = Rows.from_padded(**{name: value[some] for name, value in grid.items()})
    for name in ("input_ids", "token_type_ids", "positions", "starts", "order"):
        assert torch.equal(getattr(taken, name), getattr(alone, name)), name
    assert (taken.lengths, taken.reach) == (alone.lengths, alone.reach)
    assert torch.equal(rows.input_ids[pieces], taken.input_ids)
    check_groups(taken)
    again, pieces = rows.with_padding(12).take(some)  # out of rows that were padded all the same
    assert torch.equal(again.input_ids, taken.input_ids) and torch.equal(again.positions, taken.positions)
    assert torch.equal(rows.with_padding(12).input_ids[pieces], taken.input_ids)


@settings(deadline=None)
@given(LENGTHS, st.integers(1, 12))
def test_with_padding(lengths, width):
    """One group, as wide as asked for but never narrower than a row; what is read of it is the same as without."""
    rows = Rows.pack(*pieces_of(lengths), lengths)
    wide, width = rows.with_padding(width, pad_token_id=3), max(width, *lengths)
    (group,) = wide.groups
    assert (group.first, group.last, group.size, group.width) == (0, len(lengths) * width, len(lengths), width)
    there = torch.arange(width) < torch.tensor(wide.lengths)[:, None]
    assert torch.equal(group.mask == 0, there[:, None, None].expand(-1, 1, width, -1))
    for name, fill in (("input_ids", 3), ("token_type_ids", 0), ("positions", 0)):
        assert (getattr(wide, name).view(-1, width)[~there] == fill).all()
        assert torch.equal(wide.padded(getattr(wide, name)), rows.padded(getattr(rows, name)))


def test_filled_rows_have_the_same_logits_and_gradients():
    """73 word pieces become 80, one of eight round numbers from 64 to 128; 5 stay 5, 800 become 832, 1,024 stay."""
    model = randomised("pals-204").double()
    lengths = (20, 3, 9, 14, 1, 8, 11, 5, 2)
    ids = torch.arange(sum(lengths)) % 90 + 3
    rows = Rows.pack(ids, ids % 2, lengths)
    filled = rows.filled(0)
    assert (len(rows.input_ids), len(filled.input_ids), filled.lengths) == (73, 80, rows.lengths)
    for n, more in ((5, 5), (800, 832), (1024, 1024)):
        assert len(Rows.pack(*[torch.ones(n).long()] * 2, [n]).filled().input_ids) == more
    results = []
    for batch in (rows, filled):
        model.zero_grad()
        logits = model(task="rte", rows=batch).logits
        logits.square().sum().backward()
        results.append([logits, *(p.grad for p in model.parameters() if p.grad is not None)])
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-9)
