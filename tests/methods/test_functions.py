"""The task functions against the equations written out in plain matrix products, and how they start."""

import math

import pytest
import torch
from shapes import (
    EVERY,
    HEADS,
    LAYERS,
    ON_TOP,
    SHAPES,
    D,
    batch,
    equal_states,
    logits_of,
    moved,
    randomise,
    randomised,
    states,
    tiny_encoder,
    tiny_method,
    tiny_model,
)
from torch import nn
from torch.nn.functional import gelu
from transformers import BertConfig, BertModel

from palslib.bert.rows import Rows
from palslib.methods.counting import count_parameters
from palslib.methods.ia3 import IA3
from palslib.methods.lora import LoRA
from palslib.methods.table import METHODS
from palslib.model.multi_task import MultiTaskModel

S = 12  # the projected size of `tiny_method`


# The layer by hand: nothing below calls a forward of palslib or, but for the embeddings, of transformers.


def linear(part, x):
    return x @ part.weight.T + part.bias


def norm(part, x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.pow(2).mean(-1, keepdim=True) + part.eps).sqrt() * part.weight + part.bias


def attend(q, k, v, heads, mask):
    """Softmax of scaled dot products, one head at a time; (B, S, n) each, mask (B, S)."""
    width, outputs = q.shape[-1] // heads, []
    for head in range(heads):
        part = slice(head * width, (head + 1) * width)
        scores = q[..., part] @ k[..., part].transpose(1, 2) / math.sqrt(width)
        scores = scores.masked_fill(mask[:, None, :] == 0, -math.inf)
        outputs.append(scores.softmax(-1) @ v[..., part])
    return torch.cat(outputs, -1)


def attend_fused(part, z, heads, mask):
    """The projected attention: query, key and value are thirds of one matrix."""
    q, k, v = linear(part.qkv, z).chunk(3, -1)
    return attend(q, k, v, heads, mask)


def network(part, z):
    """Linear maps with GELU between them."""
    *first, last = [linear_map for linear_map in part.children() if hasattr(linear_map, "weight")]
    for linear_map in first:
        z = gelu(linear(linear_map, z))
    return linear(last, z)


class Places:
    """What stands at the places of a layer; each is the identity unless it is given."""

    query = key = value = inner = staticmethod(lambda i, x, h: x)
    a1 = staticmethod(lambda i, x: x)
    a2 = staticmethod(lambda i, f, a: f)
    ts = staticmethod(lambda i, h, mask: 0.0)
    last = staticmethod(lambda i, y: y)
    norms = staticmethod(lambda i, layer: (layer.attention.output.LayerNorm, layer.output.LayerNorm))

    def __init__(self, **given):
        vars(self).update(given)


def states_by_hand(encoder, inputs, places):
    """All hidden states, the embeddings first, of BERT's layers with something in their places."""
    types = inputs["token_type_ids"] if encoder.config.type_vocab_size > 1 else None
    h, mask = encoder.embeddings(input_ids=inputs["input_ids"], token_type_ids=types), inputs["attention_mask"]
    states = [h]
    for i, layer in enumerate(encoder.encoder.layer):
        h, att = states[-1], layer.attention.self
        norm_a, norm_y = places.norms(i, layer)
        q, k, v = (linear(getattr(att, name), h) for name in ("query", "key", "value"))
        mh = attend(places.query(i, q, h), places.key(i, k, h), places.value(i, v, h), HEADS, mask)
        a = norm(norm_a, places.a1(i, linear(layer.attention.output.dense, mh)) + h)
        f = linear(layer.output.dense, places.inner(i, gelu(linear(layer.intermediate.dense, a)), a))
        y = norm(norm_y, places.a2(i, f, a) + a + places.ts(i, h, mask))
        states.append(places.last(i, y))
    return states


def assert_close(a, b, tolerance=2e-5):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance)


def check_equation(model, places, inputs=None):
    """The hidden states under a task's adaptation equal those by hand, and are not the plain backbone's."""
    inputs = inputs or batch()
    with torch.no_grad():
        expected = states_by_hand(model.backbone, inputs, places)
    found, plain = states(model, "rte", inputs), states(model, None, inputs)[-1]
    for state, wanted in zip(found, expected, strict=True):
        assert_close(state, wanted * inputs["attention_mask"][..., None])
    assert (found[-1] - plain).abs().max() > 0.1


WITHIN = [
    ("pals-204", {}),
    ("pals-204", {"activation": "gelu", "scaled": True}),
    ("pals-204", {"activation": "gelu", "sharing": "tasks"}),
    ("pals-no-sharing-84", {"scaled": True}),
    ("pals-276-top", {}),
    ("pals-276-bottom", {"activation": "gelu"}),
    ("pals-shared-across-tasks-204", {"scaled": True}),
    ("pal-common", {"scaled": True}),
    *(("ffn-306", {"inner": inner}) for inner in ((18,), (7, 9))),
    *(("ffn-306", {"sharing": sharing}) for sharing in ("none", "tasks", "everything")),
    *((name, {"activation": a}) for name in ("low-rank-100", "serial-100") for a in ("identity", "gelu")),
    ("lhuc", {}),
]
ADAPTED = {"pals-276-top": [2], "pals-276-bottom": [0]}


@pytest.mark.parametrize("shape", ["bert", "roberta"])
@pytest.mark.parametrize(("name", "options"), WITHIN)
def test_within_layers(name, options, shape):
    """TS(h) = V^D g(V^E h), g attention or W_2 GELU(W_1 z), GELU after V^D if released (ledger D6), LHUC's scale where
    asked; V^D V^E h, or y + V^D V^E y in series, GELU between if released (D7); LHUC: y · 2σ(w), w a vector a layer."""
    model = randomised(name, shape, **options)
    one, is_gelu = model.adaptations["rte"], options.get("activation") == "gelu"

    def scaled(i, x):
        return x * 2 / (1 + torch.exp(-one.scales.get_parameter(str(i))))

    def low_rank(i, x):
        v = one.projections[str(i)]
        z = linear(v.encoder, x)
        return linear(v.decoder, gelu(z) if is_gelu else z)

    def ts(i, h, mask):
        if i not in ADAPTED.get(name, range(LAYERS)):
            return 0.0
        if name == "low-rank-100":
            return low_rank(i, h)
        pairs, functions = one.projections or model.shared.projections, one.functions or model.shared.functions
        v, g = pairs[i if len(pairs) > 1 else 0], functions[str(i)]
        z = linear(v.encoder, h)
        y = linear(v.decoder, network(g, z) if "ffn" in name else attend_fused(g, z, 3, mask))
        y = gelu(y) if is_gelu else y
        return scaled(i, y) if options.get("scaled") else y

    last = {"serial-100": lambda i, y: y + low_rank(i, y), "lhuc": scaled}.get(name)
    check_equation(model, Places(last=last) if last else Places(ts=ts), batch(shape))


@pytest.mark.parametrize(("layers", "adapted"), [("all", [0, 1, 2]), ("top", [2])])
@pytest.mark.parametrize("method", [LoRA("lora"), IA3("ia3")])
def test_inside_attention_and_feed_forward(method, layers, adapted):
    """q + B A h and v + B A h (Hu et al. 2021); keys, values and inner activation times a vector (Liu et al. 2022)."""
    model = randomised(method, layers=layers)
    one = model.adaptations["rte"]

    def changed(name):
        def change(i, x, h):
            if i not in adapted:
                return x
            if method.kind == "ia3":
                return x * one.scales[f"{name}{i}"]
            a, b = one.pairs[f"{name}{i}"]
            return x + h @ a.weight.T @ b.weight.T

        return change

    names = {"lora": {"query": "q", "value": "v"}, "ia3": {"key": "k", "value": "v", "inner": "ff"}}[method.kind]
    check_equation(model, Places(**{place: changed(name) for place, name in names.items()}))


PLACES_OF = {  # the adapter of (layer, place)
    "houlsby-64": lambda i, place: i,
    "houlsby-64-not-shared": lambda i, place: 2 * i + place,
    "houlsby-64-3-shared": lambda i, place: 0,
}


@pytest.mark.parametrize(
    ("name", "second"), [*((n, way) for n in PLACES_OF for way in ("serial", "parallel")), ("houlsby-64", "pal")]
)
def test_houlsby(name, second):
    """x + V^D GELU(V^E x) at both places; as released the second reads the attention's output (ledger D9), or is a PAL,
    with one pair V^E, V^D for all layers: y = LN(f + PAL(a) + a)."""
    model = randomised(name, second=second, **({"pal_size": 12, "pal_heads": 3} if second == "pal" else {}))
    one, places_of, mask = model.adaptations["rte"], PLACES_OF[name], batch()["attention_mask"]

    def adapter(i, place, x):
        v = one.adapters[places_of(i, place)]
        return linear(v.decoder, gelu(linear(v.encoder, x)))

    def a2(i, f, a):
        if second == "pal":
            v = one.projection
            return f + linear(v.decoder, attend_fused(one.pal[i], linear(v.encoder, a), 3, mask))
        return f + adapter(i, 1, a if second == "parallel" else f)

    own = {} if one.own_norms is None else {"norms": lambda i, layer: one.own_norms[i]}
    check_equation(model, Places(a1=lambda i, x: x + adapter(i, 0, x), a2=a2, **own))


def test_houlsby_own_norms_start_as_copies():
    """Whatever else is drawn."""
    model = tiny_model("houlsby-64-not-shared", init="normal")
    for pair, layer in zip(model.adaptations["rte"].own_norms, model.backbone.encoder.layer, strict=True):
        for own, theirs in zip(pair, (layer.attention.output.LayerNorm, layer.output.LayerNorm), strict=True):
            assert equal_states(own, theirs) and own.eps == theirs.eps


def pooled_by_hand(model, state):
    return torch.tanh(linear(model.pooler.dense, state[:, 0]))


def test_houlsby_two_layer_classifier():
    """The hidden layer of the classifier, tanh, stands between the pooler and the head (ledger A15)."""
    model, inputs = randomised("houlsby-64-not-shared"), batch()
    hidden = model.adaptations["rte"].hidden[0]
    with torch.no_grad():
        state = states(model, "rte", inputs)[-1]
        logits = linear(model.heads["rte"], torch.tanh(linear(hidden, pooled_by_hand(model, state))))
        assert_close(model("rte", **inputs).logits, logits)


@pytest.mark.parametrize(
    ("residual", "layer_norm", "layers"), [(True, True, 6), (False, True, 3), (True, False, 3), (False, False, 12)]
)
@pytest.mark.parametrize("name", ["attention-on-top-204", "ffn-on-top-408", "ffn-on-top-252x2"])
def test_on_top(name, residual, layer_norm, layers):
    """h = V^D z after layers z = LN(g(z) + z) on V^E h_L; residual and norm can be left out (ledger C20)."""
    model, inputs = tiny_model(name, residual=residual, layer_norm=layer_norm, on_top=layers), batch()
    one = model.adaptations["rte"]
    randomise(one, std=0.1)
    assert len(one.top_layers) == layers
    with torch.no_grad():
        last = states(model, None, inputs)[-1]
        z = linear(one.projection.encoder, last)
        for layer in one.top_layers:
            if "attention" in name:
                g = linear(layer.output, attend_fused(layer.attention, z, 3, inputs["attention_mask"]))
            else:
                g = network(layer.feed_forward, z)
            z = g + z if residual else g
            z = norm(layer.norm, z) if layer_norm else z
        logits = linear(model.heads["rte"], pooled_by_hand(model, linear(one.projection.decoder, z)))
        assert_close(model("rte", **inputs).logits, logits, 1e-4)


@pytest.mark.parametrize("shape", SHAPES)
def test_bert_layer_on_top_is_a_plain_layer(shape):
    """An encoder with one layer more, which has the task's weights, gives the same last state."""
    model, inputs = randomised("bert-layer-on-top", shape), batch(shape)
    top = model.adaptations["rte"].top_layer
    assert type(top) is type(model.backbone.encoder.layer[0])
    longer = tiny_encoder(shape)
    longer.encoder.layer.append(type(longer.encoder.layer[0])(longer.config, layer_idx=LAYERS))
    longer.encoder.layer[-1].load_state_dict(top.state_dict())
    plain = {k: v for k, v in inputs.items() if k != "token_type_ids" or "roberta" not in shape}
    with torch.no_grad():
        state = longer.eval()(**plain).last_hidden_state
        logits = linear(model.heads["rte"], pooled_by_hand(model, state))
        assert_close(model("rte", **inputs).logits, logits)


@pytest.mark.parametrize("shape", SHAPES)
def test_feature_extraction(shape):
    """γ Σ softmax(w)_l h_l over embeddings and layers (Peters et al. 2019)."""
    model, inputs = randomised("feature-extraction", shape), batch(shape)
    one = model.adaptations["rte"]
    assert one.mix.shape == (LAYERS + 1,)
    weights = torch.exp(one.mix) / torch.exp(one.mix).sum()
    with torch.no_grad():
        every = states_by_hand(model.backbone, inputs, Places())
        mixed = one.gamma * sum(w * h for w, h in zip(weights, every, strict=True))
        assert_close(model("rte", **inputs).logits, linear(model.heads["rte"], pooled_by_hand(model, mixed)))


# How a model starts.


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", EVERY)
def test_starts_as_backbone_which_off_on_off_leaves_as_it_is(name, shape):
    """Within layers and with V^D at zero every hidden state is the plain path's, bit for bit (eval mode), and the
    encoder's own to rounding; after another task's pass too, and after every parameter of the task has moved."""
    inputs, model = batch(shape), tiny_model(name, shape)
    before, adapted, after = (states(model, task, inputs) for task in (None, "rte", None))
    start = logits_of(model, shape)
    on, off = logits_of(moved(model), shape), states(model, None, inputs)
    taken = {k: v for k, v in inputs.items() if k != "token_type_ids" or "roberta" not in shape}
    with torch.no_grad():
        own = tiny_encoder(shape)(**taken, output_hidden_states=True).hidden_states
    for plain, h, again, later, theirs in zip(before, adapted, after, off, own, strict=True):
        assert torch.equal(h, plain) and torch.equal(again, plain) and torch.equal(later, plain)
        assert_close(plain, theirs * inputs["attention_mask"][..., None], 1e-5)
    assert torch.equal(start, on) == (name == "shared")


@pytest.mark.parametrize("name", [*(n for n in METHODS if n not in ("shared", "fine-tuned", "lhuc")), LoRA("lora")])
def test_initial_draws(name):
    """Matrices N(0, 0.2), here; biases 0, norms 1 and 0; V^D zero within layers and drawn on top (ledger D8). Of LoRA's
    A and B, the second of a pair is zero, as published."""
    model = tiny_model(name)
    for part in [model.adaptations, model.shared]:
        for key, p in part.named_parameters() if part is not None else []:
            if "own_norms" in key:
                continue
            if ("decoder" in key and name not in ON_TOP) or key.endswith(".1.weight"):
                assert not p.any(), key
            elif p.ndim == 2:
                assert 0.15 < p.std() < 0.25, key
                assert abs(p.mean()) < 0.05, key
            elif key.endswith("bias") or key.endswith("mix"):
                assert not p.any(), key
            else:
                said = f"{key}: a vector is a bias or mix, 0, or a gain, 1; else its method is left out above"
                assert torch.equal(p, torch.ones_like(p)), said


@pytest.mark.parametrize("name", ["pals-204", "low-rank-100", "houlsby-64", *ON_TOP])
def test_released_draws(name):
    """`normal` draws V^D too, and gains and shifts of added norms around 0 (ledger D8)."""
    drawn = dict(tiny_model(name, init="normal").adaptations["rte"].named_parameters())
    norms = {key: p for key, p in drawn.items() if p.ndim == 1 and "norm" in key.lower()}
    assert bool(norms) == (name in ON_TOP)
    kinds = [torch.cat([p for key, p in norms.items() if key.endswith(end)]) for end in ("weight", "bias") if norms]
    for values in [*kinds, *(p for p in drawn.values() if p.ndim == 2)]:
        assert 0.15 < values.std() < 0.25
        assert abs(values.mean()) < 0.1
    assert not any(p.any() for key, p in drawn.items() if p.ndim == 1 and key not in norms)


# Masks, padding and attention implementations, with a V^D that is not zero.


@pytest.mark.parametrize("name", METHODS)
def test_padding_and_company_change_nothing(name):
    """A batch padded to a greater width, on purpose or by its tensors, gives the same logits; so do its rows in another
    order and each of them alone."""
    for shape in ("bert", "roberta"):
        model, inputs = randomised(name, shape), batch(shape)
        with torch.no_grad():
            logits = model("rte", **inputs).logits
            assert torch.equal(model("rte", **batch(shape, pad=5)).logits, logits)
            padded = Rows.from_padded(**inputs).with_padding(11, model.config.pad_token_id)
            assert_close(model("rte", rows=padded).logits, logits, 1e-5)
            turned = {key: value.flip(0) for key, value in inputs.items()}
            assert_close(model("rte", **turned).logits.flip(0), logits, 1e-5)
            alone = {key: value[2:, :5] for key, value in inputs.items()}  # row 2 has 5 tokens
            assert_close(model("rte", **alone).logits, logits[2:], 1e-5)


# What owns which parameters.


@pytest.mark.parametrize(
    ("sharing", "per_task", "shared"),
    [
        # 2ds + s + d = 2 · 24 · 12 + 36 = 612 a pair; 3s² + 3s = 468 a layer's attention, 1404 for three layers
        ("layers", 612 + 1404, 0),
        ("none", 3 * 612 + 1404, 0),
        ("tasks", 1404, 3 * 612),
        ("layers and tasks", 1404, 612),
        ("everything", 0, 612 + 1404),
    ],
)
def test_sharings(sharing, per_task, shared):
    """Who owns V^E and V^D: one pair a task, one a layer and task, one a layer, or one in all. Tasks that share
    everything compute the same."""
    model, inputs = randomised("pals-204", sharing=sharing), batch()
    counted = count_parameters(model.method, model.config, 2, exact=True)
    assert (counted.per_task, counted.shared_by_tasks) == (per_task, shared)
    assert [sum(p.numel() for p in one.parameters()) for one in model.adaptations.values()] == [per_task] * 2
    same = torch.equal(states(model, "rte", inputs)[-1], states(model, "stsb", inputs)[-1])
    assert same == (sharing == "everything")


def test_adapters_of_five_layers():
    """Three layers share an adapter, then two."""
    model = MultiTaskModel.from_backbone(tiny_encoder(layers=5), tiny_method("houlsby-64-3-shared"), ["rte"])
    one, x = model.adaptations["rte"], torch.randn(1, 2, D, generator=torch.Generator().manual_seed(1))
    randomise(one)
    assert len(one.adapters) == 2
    with torch.no_grad():
        moved = [one.after_attention(i, x) for i in range(5)]
    assert [[torch.equal(a, b) for b in moved] for a in moved] == [[1, 1, 1, 0, 0]] * 3 + [[0, 0, 0, 1, 1]] * 2


@pytest.mark.parametrize("name", ["ffn-306", "ffn-on-top-408"])
def test_feed_forward_has_the_backbones_activation_and_norms_its_epsilon(name):
    config = BertConfig(**tiny_encoder().config.to_dict() | {"hidden_act": "relu"})
    one = MultiTaskModel.from_backbone(BertModel(config), tiny_method(name), ["rte"]).adaptations["rte"]
    assert any(isinstance(part, nn.ReLU) for part in one.modules())
    assert {part.eps for part in one.modules() if isinstance(part, nn.LayerNorm)} <= {config.layer_norm_eps} != {1e-5}
