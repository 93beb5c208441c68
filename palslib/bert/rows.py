"""A batch without padding: the word pieces of its rows end to end, and where each row begins.

GLUE's rows are 22 word pieces long on average and its batches of 32 are 50 wide, so more than half of a padded batch is
padding. Here every product, norm and dropout of a layer is over (N, d), the N real word pieces; only attention, which
relates the pieces of a row, spreads them over (B, S), in groups of rows of similar length.

Letters of the whole package: `B` rows of a batch, `S` word pieces of its longest row, `N` of all its rows, `d` hidden
size (768), `d_ff` inner size (3072), `L` layers (12), `H` heads (12), `w` width of a head, `s` projected size, `m`
adapter bottleneck, `T` tasks (8), `E` epochs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from palslib.common.names import shown

WASTE, AREA = 2_000, 33_000
"""A group of rows on a CPU has S_g² places of attention for each row: how many of them may be padding, and how many
there may be in all (two rows of 128). One more group costs as much time as about 1,500 places; too large a one leaves
the processor's cache."""


def _alike(lengths: Sequence[int]) -> list[int]:
    """The numbers of rows in groups of similar length, for rows in this order; on a GPU all rows form one group."""
    sizes, longest, waste = [], 0, 0
    for n in lengths:
        waste += longest**2 - n**2
        if n > longest or waste > WASTE or (sizes[-1] + 1) * longest**2 > AREA:
            sizes, longest, waste = [*sizes, 0], n, 0
        sizes[-1] += 1
    return sizes


def check_integers(name: str, value) -> None:
    """Raises ValueError where something given to a model is not a tensor of whole numbers."""
    if not isinstance(value, torch.Tensor) or value.is_floating_point():
        raise ValueError(f"{name} must be a tensor of whole numbers, not {getattr(value, 'dtype', shown(value))}")


@dataclass(frozen=True)
class Group:
    """Rows of similar length whose word pieces are adjacent."""

    first: int
    """The group's word pieces are `first:last` of all."""
    last: int
    size: int
    """Number of rows, B_g."""
    width: int
    """Word pieces of the longest row, S_g."""
    places: torch.Tensor | None
    """(last - first,) the index of each piece in the grid (B_g · S_g); None where all rows fill the grid."""
    back: torch.Tensor | None
    """(B_g · S_g,) For each place of the grid, the index of its piece among the N; places after a row's end hold an
    arbitrary one, which the mask hides. Used only on a CPU; None where all rows fill the grid."""
    mask: torch.Tensor | None
    """0 at a word piece and -inf after a row's end; None where all rows fill the grid. On a GPU (B_g, 1, 1, S_g). On a
    CPU (B_g, 1, S_g, S_g): it is the same for all queries, but adding a broadcast would take as long as the softmax."""

    def spread(self, x: torch.Tensor) -> torch.Tensor:
        """(last - first, d) to (B_g · S_g, d), with zeros after a row's end."""
        if self.places is None:
            return x
        return x.new_zeros(self.size * self.width, x.shape[-1]).index_put((self.places,), x)

    def gather(self, x: torch.Tensor) -> torch.Tensor:
        """(B_g · S_g, d) to (last - first, d)."""
        return x if self.places is None else x.index_select(0, self.places)

    def split(self, x: torch.Tensor, heads: int) -> torch.Tensor:
        """(B_g · S_g, H·w) to (B_g, H, S_g, w)."""
        return x.view(self.size, self.width, heads, -1).transpose(1, 2)


def _group(start: torch.Tensor, lengths: torch.Tensor, one_group: bool) -> Group:
    """The group of the rows of these lengths, whose word pieces begin at `start`."""
    size, width, first, last = len(lengths), int(lengths.max()), int(start), int(start + lengths.sum())
    width = width + -width % 8 if one_group else width  # a GPU's fused kernels take multiples of 8
    there = torch.arange(width, device="cpu") < lengths[:, None]  # (B_g, S_g)
    if there.all():
        return Group(first, last, size, width, None, None, None)
    places = there.flatten().nonzero()[:, 0]
    mask = torch.zeros(size, 1, 1 if one_group else width, width, device="cpu")
    mask.masked_fill_(~there[:, None, None], -torch.inf)
    back = None
    if not one_group:
        back = torch.full((size * width,), first, device="cpu")
        back[places] = torch.arange(first, last, device="cpu")
    return Group(first, last, size, width, places, back, mask)


def to(device: torch.device, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Tensors by name, on a device. From a CPU they go to a GPU in one transfer, which is not waited for."""
    far = {name: x for name, x in tensors.items() if x.device.type != device.type}
    if device.type == "cpu" or not far:
        return {name: x.to(device) for name, x in tensors.items()}
    far = dict(sorted(far.items(), key=lambda item: -item[1].element_size()))  # the widest types first
    as_bytes = [x.contiguous().flatten().view(torch.uint8) for x in far.values()]
    whole = torch.cat(as_bytes)
    whole = (whole.pin_memory() if device.type == "cuda" else whole).to(device, non_blocking=device.type == "cuda")
    parts = zip(far.items(), whole.split(list(map(len, as_bytes))), strict=True)
    return dict(tensors) | {name: part.view(x.dtype).view(x.shape) for (name, x), part in parts}


@dataclass(frozen=True)
class Rows:
    """The rows of a batch, longest first; after `joined`, part by part."""

    input_ids: torch.Tensor
    """(N,) word pieces, row after row."""
    token_type_ids: torch.Tensor
    """(N,) 0 in the first text, 1 in the second."""
    positions: torch.Tensor
    """(N,) the position of each piece in its row, from 0."""
    starts: torch.Tensor
    """(B,) the index of each row's [CLS] among the N. Rows lie end to end, except after `with_padding` and `filled`."""
    order: torch.Tensor
    """(B,) the index of each row in the caller's batch."""
    lengths: tuple[int, ...]
    """Word pieces of each row, without padding."""
    groups: tuple[Group, ...]
    reach: int
    """One more than the largest of `positions`: S, or more where the caller padded on the left."""
    lookers: tuple[tuple[Callable, tuple[str, ...]], ...] = ()
    """Functions, each with the points (named in `layer.py`) at which it is called; an empty tuple means all."""
    of_first: tuple[Group, ...] = ()
    """If a layer is computed for [CLS] alone (`first_alone`): its queries, one of each row, group by group."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def width(self) -> int:
        """S, the word pieces of the longest row."""
        return max(self.lengths)

    @property
    def queries(self) -> tuple[Group, ...]:
        """The queries of each group: its word pieces, or [CLS] alone."""
        return self.of_first or self.groups

    @classmethod
    def pack(cls, input_ids, token_type_ids, lengths, device=None, positions=None, one_group=None, sort=True) -> "Rows":
        """The rows of a batch whose word pieces are given end to end, in any order.

        Args:
            input_ids, token_type_ids: (N,) tensors.
            lengths: (B,) word pieces of each row, at least one.
            device: where the rows are needed; by default that of `input_ids`.
            positions: (N,) positions of the pieces, if not their index in the row.
            one_group: whether all rows form one group, as they do on a GPU.
            sort: whether the longest row comes first; else rows stay in the order given.
        """
        lengths = torch.as_tensor(lengths, device="cpu")
        if len(lengths) == 0 or lengths.min() < 1 or lengths.sum() != len(input_ids):
            has = f"{len(input_ids)} word pieces in rows of {lengths.tolist()}"
            raise ValueError(f"a batch needs at least one row, and each row at least one word piece, not {has}")
        device = torch.device(device or input_ids.device)
        one_group = device.type != "cpu" if one_group is None else one_group
        order = lengths.argsort(descending=True, stable=True) if sort else torch.arange(len(lengths), device="cpu")
        ends, lengths = lengths.cumsum(0), lengths[order]
        starts, sizes = lengths.cumsum(0) - lengths, tuple(lengths.tolist())
        row = torch.repeat_interleave(torch.arange(len(lengths), device="cpu"), lengths)  # (N,)
        in_row = torch.arange(len(row), device="cpu") - starts[row]
        source = ((ends[order] - lengths)[row] + in_row).to(input_ids.device)  # index of each piece in the input
        ids, types = input_ids.index_select(0, source), token_type_ids.index_select(0, source)
        reach = max(sizes) if positions is None else int(positions.max()) + 1
        positions = in_row if positions is None else positions.index_select(0, source)
        alike = [len(sizes)] if one_group else _alike(sizes)
        parts = zip(starts.split(alike), lengths.split(alike), strict=True)
        groups = [_group(first[0], some, one_group) for first, some in parts]
        rows = cls(ids, types, positions, starts, order, sizes, tuple(groups), reach)
        return rows if device.type == "cpu" else rows.with_tensors(to(device, rows.tensors()))

    def tensors(self) -> dict[str, torch.Tensor]:
        """All its tensors, by name and number: 0 for its own, then those of its groups."""
        parts = enumerate([self, *self.groups])
        named = {f"{name} {i}": value for i, part in parts for name, value in vars(part).items()}
        return {name: value for name, value in named.items() if isinstance(value, torch.Tensor)}

    def with_tensors(self, tensors: Mapping[str, torch.Tensor]) -> "Rows":
        """The same rows with these tensors in place of its own, as they are on another device."""
        parts = []
        for i, part in enumerate([self, *self.groups]):
            own = {name: tensors[f"{name} {i}"] for name in vars(part) if f"{name} {i}" in tensors}
            parts.append(replace(part, **own))
        return replace(parts[0], groups=tuple(parts[1:]))

    @classmethod
    def joined(cls, parts: Sequence["Rows"]) -> "Rows":
        """Batches without padding as one, end to end: the rows of each part are adjacent, in the part's order."""
        names = ("input_ids", "token_type_ids", "positions")
        joined = {name: torch.cat([getattr(part, name) for part in parts]) for name in names}
        return cls.pack(**joined, lengths=[n for part in parts for n in part.lengths], sort=False)

    @classmethod
    def from_padded(cls, input_ids, attention_mask=None, token_type_ids=None) -> "Rows":
        """The rows of a padded batch (B, S); the mask is 0 at padding, and without a mask there is no padding.

        Positions are those of the padded batch, so padding on the left shifts them, as it does in Transformers.
        Raises ValueError for inputs of other shapes, a batch without rows, and a row of padding alone.
        """
        check_integers("input_ids", input_ids)
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        for name, value in (("attention_mask", mask), ("token_type_ids", types)):
            if input_ids.ndim != 2 or value.shape != input_ids.shape:
                shapes = f"{tuple(input_ids.shape)} and {tuple(value.shape)}"
                raise ValueError(f"input_ids and {name} must both have the shape (B, S), not {shapes}")
        there = mask.bool()
        return cls.pack(input_ids[there], types[there], there.sum(1), positions=there.nonzero()[:, 1])

    @classmethod
    def grid(cls, input_ids, attention_mask=None, token_type_ids=None) -> "Rows":
        """The rows of a padded batch (B, S) with their padding: all shapes depend on B and S alone, as `torch.export`
        needs. Results are those of `from_padded`; no row may be padding alone."""
        (size, width), device = input_ids.shape, input_ids.device
        types = torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        hidden = torch.zeros(size, 1, width, width, device=device).masked_fill((mask == 0)[:, None, None], -torch.inf)
        places = torch.arange(width, device=device).expand(size, width).flatten()
        rows = torch.arange(size, device=device)
        groups = (Group(0, size * width, size, width, None, None, hidden),)
        starts = rows * width + (mask != 0).float().argmax(1)  # padding may be on the left
        return cls(input_ids.flatten(), types.flatten(), places, starts, rows, (width,), groups, width)

    def with_padding(self, width: int, pad_token_id: int = 0) -> "Rows":
        """The same rows, each padded to `width` word pieces (S if that is more); nothing attends to the padding.

        This is what the released code computes, at the same cost (ledger D14); only what dropout draws depends on it.
        """
        device = self.input_ids.device
        there = torch.arange(max(width, self.width)) < torch.tensor(self.lengths)[:, None]  # (B, width)
        places = there.flatten().nonzero()[:, 0].to(device)  # (N,) the new index of each word piece

        def spread(x, fill: int = 0):
            return x.new_full((there.numel(),), fill).index_copy_(0, places, x)

        ids, types = spread(self.input_ids, pad_token_id), spread(self.token_type_ids)
        grid = Rows.grid(ids.view(there.shape), there.to(device), types.view(there.shape))
        return replace(grid, positions=spread(self.positions), order=self.order, lengths=self.lengths, reach=self.reach)

    def filled(self, pad_token_id: int = 0) -> "Rows":
        """The same rows, with padding after the last one up to a round number of word pieces; from each power of two to
        the next there are eight of these (512, 576, 640, ...).

        On a CPU oneDNN builds its bf16 kernels for one N: 20 for a step of MiniLM, 0.3 to 2 ms each, which it keeps.
        Without round numbers almost every batch would need new ones. Nothing attends to the padding, or reads it.
        """
        n = len(self.input_ids)
        more = -n % (1 << max(0, n.bit_length() - 4))
        fills = {"input_ids": pad_token_id, "token_type_ids": 0, "positions": 0}
        padded = {name: functional.pad(getattr(self, name), (0, more), value=fill) for name, fill in fills.items()}
        return replace(self, **padded)

    def take(self, rows) -> tuple["Rows", torch.Tensor]:
        """Some rows of the caller's batch as a batch of their own, and the indices (n,) of their pieces among the N."""
        row_of, starts, device = self.order.argsort().numpy(force=True), self.starts.tolist(), self.input_ids.device
        chosen = row_of[rows.tolist() if hasattr(rows, "tolist") else list(rows)].tolist()  # numbers, or a mask
        of_row = [torch.arange(starts[i], starts[i] + self.lengths[i]) for i in chosen]
        pieces = torch.cat([torch.arange(0), *of_row]).to(device)
        own = {name: getattr(self, name)[pieces] for name in ("input_ids", "token_type_ids", "positions")}
        packed = Rows.pack(**own, lengths=[self.lengths[i] for i in chosen])
        return packed, torch.cat([of_row[k] for k in packed.order.tolist()]).to(device)

    def first_alone(self) -> "Rows":
        """The same rows, for a layer of which only the first word piece of each row, [CLS], is read: the last one. It
        computes keys and values (N, d) of all word pieces, and everything else of [CLS] alone, (B, d)."""
        queries, top = [], 0
        for group in self.groups:
            mask = None if group.mask is None else group.mask[:, :, :1]
            queries.append(Group(top, top + group.size, group.size, 1, None, None, mask))
            top += group.size
        return replace(self, of_first=tuple(queries))

    def wanted(self, h: torch.Tensor) -> torch.Tensor:
        """What a layer computes of h (N, d): all of it, or [CLS] alone, (B, d)."""
        return h.index_select(0, self.starts) if self.of_first else h

    def look(self, point: str, layer: int, value):
        """The value at a named point, or the one that the lookers, one after the other, put in its place."""
        for looker, points in self.lookers:
            value = looker(point, layer, value) if not points or point in points else value
        return value

    def watch(self, point: str, layer: int):
        """A function that shows the lookers a value that they cannot change; None if no looker watches this point."""
        wanted = any(not points or point in points for _, points in self.lookers)
        return partial(self.look, point, layer) if wanted else None

    def padded(self, h: torch.Tensor) -> torch.Tensor:
        """Values (N, ...) of the word pieces as (B, S, ...), in the order of the caller's batch, with zeros after a
        row's end."""
        rows = [h[start : start + n] for start, n in zip(self.starts.tolist(), self.lengths, strict=True)]
        return pad_sequence([rows[i] for i in self.order.argsort().tolist()], batch_first=True)
