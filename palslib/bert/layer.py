"""One layer of BERT, and the places in it where a task can add something.

Stickland & Murray 2019, section 3.3, with BERT's own inner residual written out (https://arxiv.org/abs/1902.02671). MH
is multi-head attention, FFN the feed-forward network, LN a layer norm:

    a = LN( h + A₁(MH(h)) )                 A₁  Houlsby, after attention
    f = A₂(FFN(a))                          A₂  Houlsby, after the feed-forward
    y = scale( LN( a + f + TS(h) ) )        TS  PAL, low rank, FFN;  scale  LHUC;  serial: y + TS(y)

Inside MH a task may change query, key and value; inside FFN the inner activation (LoRA, (IA)³). An unused place is the
identity. All of this runs over rows without padding: h, a, f and y are (N, d). Of the last layer the pooler reads only
[CLS]: there a, f, TS(h) and y are (B, d), unless a task reads more of it (`Adaptation.reads_first_alone`).

To inspect a forward pass, give the rows a function `look(point, layer, value)` (`MultiTaskModel.watch`). It is called
at these points and returns the value or a replacement; attention weights cannot be replaced:

    task           what the task adds to this layer: an `Adaptation`
    hidden         h (N, d)
    context        outputs of BERT's heads, concatenated (N, d)   task context     those of the task's own heads (N, s)
    attention      BERT's weights (B_g, H, S_g, S_g)              task attention   those of the task's own heads
    task query     queries of the task's own heads (N, s)         task function    TS(h) (N, d)
"""

from __future__ import annotations

from palslib.bert.later import Rows, attend, drop, nn

POINTS = ("task", "hidden", "context", "attention", "task query", "task context", "task attention", "task function")


class Places:
    """The places that a task can fill; this base class changes nothing and gives the plain BERT layer.

    `layer` is the layer's number from 0. Tensors are (N, ...), over word pieces; in a last layer of [CLS] alone all but
    keys, values and the h of `parallel` are (B, ...), over rows.
    """

    def query(self, layer: int, q, h):
        """Changes the queries (N, d) that BERT computes from h (N, d)."""
        return q

    def key(self, layer: int, k, h):
        """Changes the keys."""
        return k

    def value(self, layer: int, v, h):
        """Changes the values."""
        return v

    def after_attention(self, layer: int, x):
        """A₁, applied to the attention's output before its residual sum."""
        return x

    def inner(self, layer: int, x, a):
        """Changes the feed-forward network's inner activation (N, d_ff), computed from a (N, d)."""
        return x

    def after_feed_forward(self, layer: int, x, a, rows: Rows):
        """A₂, applied to the feed-forward's output before its residual sum; a is the feed-forward's input."""
        return x

    def parallel(self, layer: int, h, rows: Rows):
        """TS(h), added to the second residual sum; h is the layer's input (N, d). None adds nothing."""
        return None

    def after_layer(self, layer: int, y):
        """Changes the layer's output: LHUC's scale, or a serial task function."""
        return y

    def norms(self, layer: int) -> tuple[nn.Module, nn.Module] | None:
        """The task's own layer norms after attention and feed-forward, in place of the layer's."""
        return None


PLAIN = Places()


def multi_head(attention: nn.Module, x, h, rows: Rows, task: Places, i: int):
    """MH with queries from x (h, or its [CLS]), keys and values from h (N, d); output matrix and dropout. Like x."""
    heads, config = attention.self, attention.self.config
    q = task.query(i, heads.query(x), x)
    k = task.key(i, heads.key(h), h)
    v = task.value(i, heads.value(h), h)
    dropout = heads.dropout.p if heads.training else 0.0
    see = rows.watch("attention", i)
    context = attend(q, k, v, rows, config.num_attention_heads, dropout, see)
    context = rows.look("context", i, context)
    return drop(attention.output.dense(context), attention.output.dropout.p, attention.training)


def feed_forward(layer: nn.Module, a, task: Places, i: int):
    """FFN(a) = W₂ GELU(W₁ a), with its dropout; (N, d) to (N, d)."""
    inner = task.inner(i, layer.intermediate(a), a)  # (N, d_ff)
    return drop(layer.output.dense(inner), layer.output.dropout.p, layer.training)


def adapted_layer(layer: nn.Module, h, rows: Rows, task: Places = PLAIN, i: int = 0):
    """The output y of a layer of a Hugging Face encoder or of minBERT, with what a task adds; (N, d) to (N, d), or to
    (B, d) where the rows want [CLS] alone (`Rows.first_alone`)."""
    task, h = rows.look("task", i, task), rows.look("hidden", i, h)
    norm_a, norm_y = task.norms(i) or (layer.attention.output.LayerNorm, layer.output.LayerNorm)
    x = rows.wanted(h)  # h itself, or [CLS] of the last layer's: a, f, TS(h) and y are like x

    a = norm_a(x + task.after_attention(i, multi_head(layer.attention, x, h, rows, task, i)))
    f = task.after_feed_forward(i, feed_forward(layer, a, task, i), a, rows)
    ts = task.parallel(i, h, rows)
    y = a + f if ts is None else a + f + rows.look("task function", i, ts)
    return task.after_layer(i, norm_y(y))
