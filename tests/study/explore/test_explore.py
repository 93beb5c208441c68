"""The explorers without a browser: their controls are driven from Python, and what they show is read back."""

import json
import re
import threading
import time
from dataclasses import dataclass
from html import unescape

import pytest
import torch
from matplotlib.figure import Figure
from safetensors.torch import load_file

from palslib import METHODS, MultiTaskModel, RunConfig, count_parameters, train
from palslib.bert.backbones import load_tokenizer
from palslib.data.metrics import METRICS
from palslib.methods.backbone import BACKBONES
from palslib.methods.low_rank import LowRank
from palslib.methods.method import Box, Method, Part, Term
from palslib.study.analysis.attention_maps import attention_maps
from palslib.study.explore.heads import draw_beside, explore_attention
from palslib.study.explore.methods import (
    explore_architecture,
    explore_parameters,
    explore_schedules,
    parse_sizes,
    parts_frame,
)
from palslib.study.explore.runs import explore_training, main_curves
from palslib.study.figures.heads import head_grid, printable
from palslib.study.ledger.paper import GLUE_TRAIN_SIZES


@dataclass(frozen=True, kw_only=True)
class Shifts(Method):
    """s numbers a unit, in the last layer."""

    size: int = 1

    def terms(self, backbone):
        yield Term("shifts", "sd", self.size * backbone.hidden_size)

    def parts(self, backbone):
        yield Part("inner", (Box("shift"),))


@dataclass(frozen=True, kw_only=True)
class Last(LowRank, kind="last, explored"):
    """Its `layers` are a number, which no control offers."""

    layers: int = 2

    def adapted_layers(self, num_layers):
        return range(num_layers - self.layers, num_layers)


def widgets_in(box) -> list:
    """All widgets in a box, outermost first."""
    return [box, *(w for child in getattr(box, "children", ()) for w in widgets_in(child))]


def words(explorer) -> str:
    """The text of an explorer's results, without marks, with single spaces."""
    values = (w.value for w in widgets_in(explorer.results) if type(w).__name__ == "HTML")
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", " ".join(values))).split())


def pictures(explorer) -> list[bytes]:
    return [w.value for w in widgets_in(explorer.results) if type(w).__name__ == "Picture"]


def message(explorer) -> str:
    return unescape(re.sub(r"<[^>]*>", "", explorer.message.value))


def cells(explorer, first: str) -> list[str]:
    """The cells of the table row that begins with `first`."""
    html = " ".join(w.value for w in widgets_in(explorer.results) if type(w).__name__ == "HTML")
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row) for row in re.findall(r"<tr>(.*?)</tr>", html)]
    (row,) = [row for row in rows if row and re.sub("<sup>(.)</sup>", r"^\1", row[0]) == first]
    return [unescape(re.sub("<sup>(.)</sup>", r"^\1", cell)) for cell in row]


def choose(explorer, values: dict) -> None:
    for name, value in values.items():
        explorer.controls[name].value = value


@pytest.fixture(scope="module")
def tokenizer():
    return load_tokenizer("tiny")


def tiny_model(method="pals-204", **options) -> MultiTaskModel:
    """Two layers, 48 wide, four heads, for 128 tokens."""
    return MultiTaskModel.from_backbone("tiny", method, ("rte", "cola"), **options)


@pytest.fixture(scope="module")
def model():
    """Its PALs have three heads, and V^D is not zero."""
    return tiny_model(size=12, heads=3, init="normal")


# --- what all share


@pytest.mark.parametrize("explore", [explore_architecture, explore_parameters, explore_schedules, explore_training])
def test_what_stands_in_the_page_where_no_widget_can_is_always_the_same(explore, monkeypatch):
    bundle = explore()._repr_mimebundle_()
    name = explore.__name__.removeprefix("explore_")
    assert bundle["text/plain"] == f"Explorer of {name}: run this cell in JupyterLab to use it."
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert f"palslib-explore-{name}" in explore()._dom_classes
    monkeypatch.setenv("PALSLIB_STATIC", "1")
    assert explore()._repr_mimebundle_() == {"text/plain": bundle["text/plain"]}


CHANGES = [
    # 8 · (2·768·204 + 12·3·204²) = 8 · (313,344 + 1,498,176) = 14,492,160; with BERT's 109,482,240 that is 1.132
    (explore_parameters, {}, "V^E and V^D 2ds 313,344 each task 2,506,752"),
    (explore_parameters, {}, "14,492,160 added for 8 tasks: 1.132 times bert-base-uncased"),
    (explore_parameters, {}, "within the budget of 15,000,000 (largest s: 204 )"),
    (explore_parameters, {"size": 900}, "over the budget"),
    (explore_parameters, {"tasks": 3}, f"{count_parameters('pals-204', num_tasks=3).added:,} added for 3 tasks"),
    (explore_parameters, {"size": 276, "layers": "top"}, f"{count_parameters('pals-276-top').added:,} added"),
    (explore_parameters, {"sharing": "none", "size": 84}, f"{count_parameters('pals-no-sharing-84').added:,} added"),
    (explore_parameters, {"backbone": "minilm"}, f"{count_parameters('pals-204', 'minilm').added:,} added"),
    (explore_parameters, {"method": "shared"}, "0 added for 8 tasks"),
    (explore_architecture, {"method": "lhuc"}, "73,728 added for 8 tasks"),  # 8 · 12 · 768
    (explore_architecture, {"backbone": "minilm"}, "times minilm"),
    # In epoch 13 of 25 α = 1 − 0.8 · 12/24 = 0.6; in the last of five 0.2
    (explore_schedules, {"epoch": 13}, "α = 0.600"),
    (explore_schedules, {"epoch": 20, "epochs": 5}, "α = 0.200"),
    (explore_schedules, {"epochs": 5}, "1 12,000 12,000"),
    # Round robin gives 60,000 / 8 = 7,500 steps a task; 7,500 · 32 / 2,490 = 96.39 passes over RTE, 0.61 over MNLI
    (explore_schedules, {"schedule": "round-robin"}, "RTE 2,490 0.1250 7,500 7,500 96.39"),
    (explore_schedules, {"schedule": "proportional", "sizes": "mnli=300 rte=100"}, "MNLI 300 0.7500"),
    (explore_schedules, {"schedule": "proportional", "sizes": "mnli=300 rte=100", "alpha": 0}, "MNLI 300 0.5000"),
    (explore_schedules, {"seed": 1}, "MNLI 392,702"),
]


@pytest.mark.parametrize(("explore", "values", "said"), CHANGES)
def test_a_control_changes_words_and_picture_and_no_other_explorer(explore, values, said):
    explorer, other = explore(), explore()
    before = words(other), pictures(other)
    choose(explorer, values)
    shown = words(explorer).replace("V E", "V^E").replace("V D", "V^D")
    assert message(explorer) == "" and said in shown
    assert not values or (words(explorer), pictures(explorer)) != before
    assert (words(other), pictures(other)) == before
    assert not set(widgets_in(explorer)) & set(widgets_in(other))


WRONG = [
    (explore_parameters, {"size": 205}, "size 205", {"size": 216}),  # twelve heads
    (explore_schedules, {"sizes": ""}, "task=size", {"sizes": "rte=7"}),
    (explore_schedules, {"sizes": "rte"}, "'rte'", {"sizes": "rte=7"}),
    (explore_schedules, {"sizes": "rte=many"}, "'rte=many'", {"sizes": "rte=7"}),
    (explore_schedules, {"sizes": "rte=-3"}, "'rte=-3'", {"sizes": "rte=7"}),
    (explore_schedules, {"sizes": "rtee=100"}, "'rtee'", {"sizes": "rte=7"}),
    (explore_schedules, {"sizes": "rte=0"}, "'rte'", {"sizes": "rte=7"}),
    (explore_schedules, {"sizes": "rte=1 rte=2"}, "'rte'", {"sizes": "rte=7"}),
]


@pytest.mark.parametrize(("explore", "values", "said", "right"), WRONG)
def test_what_makes_no_sense_is_explained_and_no_number_is_shown_for_it(explore, values, said, right):
    explorer = explore()
    choose(explorer, values)
    assert said in message(explorer) and explorer.results.layout.visibility == "hidden"
    choose(explorer, right)
    assert message(explorer) == "" and explorer.results.layout.visibility == "visible"


# --- methods


def test_every_method_is_drawn_and_counted():
    explorer, other = explore_architecture(), explore_parameters()
    other.controls["backbone"].value = "tiny"
    seen = set()
    for method in METHODS:
        explorer.controls["method"].value = other.controls["method"].value = method
        assert message(explorer) == message(other) == ""
        assert f"{count_parameters(method).added:,} added" in words(explorer)
        assert f"{count_parameters(method, 'tiny').added:,}" in words(other)
        seen.add(pictures(explorer)[0])
    assert len(seen) == len(METHODS)
    for backbone in BACKBONES:
        explorer.controls["backbone"].value = backbone
        assert message(explorer) == "" and backbone in words(explorer)


def test_a_method_of_ones_own_is_drawn_and_counted():
    """Two numbers for each of d = 48 units: 96; for eight tasks 768. `Last` adds 2 · 2d · 10 = 30,720."""
    own = Shifts("shifts", size=2)
    for explorer in (explore_architecture(own, "tiny"), explore_parameters(own, "tiny")):
        assert message(explorer) == "" and explorer.controls["method"].value == "shifts"
        assert cells(explorer, "shifts")[1:3] == ["sd", "96"]
        assert "768 added for 8 tasks" in words(explorer)
    explorer = explore_parameters(Last("last", size=10))
    assert explorer.controls["layers"].disabled and "30,720 each task" in words(explorer)


@pytest.mark.parametrize(
    ("method", "slider", "off"),
    [
        ("pals-204", (12, 12, 204, 1_020), set()),  # s goes in steps of the heads
        ("low-rank-100", (1, 1, 100, 1_020), {"sharing"}),
        (LowRank("wide", size=1_500), (1, 1, 1_500, 1_500), {"sharing"}),  # the end moves: nothing is cut in silence
        ("lhuc", (1, 1, 1, 1_020), {"size", "sharing"}),
        ("shared", (1, 1, 1, 1_020), {"size", "layers", "sharing"}),
    ],
)
def test_controls_have_the_methods_own_values_and_are_off_where_it_has_none(method, slider, off):
    explorer = explore_parameters(method)
    for _ in range(2):
        size = explorer.controls["size"]
        assert (size.min, size.step, size.value, size.max) == slider
        assert {name for name, control in explorer.controls.items() if control.disabled} == off
        first = explorer.controls["method"].value
        choose(explorer, {"method": "pals-276-top"})
        assert (size.min, size.step, size.value, size.max) == (12, 12, 276, 1_020)
        choose(explorer, {"method": first})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("pooler", ["shared", "per-task"])
def test_the_parts_sum_to_what_is_added(method, pooler):
    options = {"pooler": pooler} if METHODS[method].takes("pooler") else {}
    count = count_parameters(method, num_tasks=5, **options)
    assert parts_frame(count)["parameters"].sum() == count.added


# --- schedules


def test_a_schedule_shows_its_own_controls_and_tasks():
    explorer = explore_schedules("round-robin")
    assert explorer.controls["alpha"].disabled and explorer.controls["epoch"].disabled
    choose(explorer, {"schedule": "annealed", "epoch": 13, "seed": 1})
    weight = {task: n**0.6 for task, n in GLUE_TRAIN_SIZES.items()}
    assert cells(explorer, "RTE")[2] == f"{weight['rte'] / sum(weight.values()):.4f}"
    drawn = cells(explorer, "MNLI")
    choose(explorer, {"seed": 2})
    assert cells(explorer, "MNLI")[:4] == drawn[:4] and cells(explorer, "MNLI")[4] != drawn[4]
    choose(explorer, {"epoch": 20, "epochs": 5})
    assert (explorer.controls["epoch"].value, explorer.controls["epoch"].max) == (5, 5)
    explorer = explore_schedules(sizes={"mood": 48, "rte": 2490})
    assert cells(explorer, "mood")[1] == "48" and cells(explorer, "RTE")[1] == "2,490"
    choose(explorer, {"sizes": "rte=10 mood=30"})
    assert message(explorer) == "" and cells(explorer, "mood")[1] == "30"


def test_sizes_may_be_written_as_people_write_them():
    expected = {"cola": 8551, "mnli": 392702, "rte": 2490}
    assert parse_sizes(" rte=2,490, cola=8_551\nmnli=392702; ") == expected


# --- training


def tiny_run(folder, **options) -> RunConfig:
    values = {"backbone": "tiny", "size": 12, "tasks": ("rte", "cola"), "steps": 8, "batch_size": 4, "max_length": 16}
    values |= {"evaluate_every": 4, "keep": "last", "folder": str(folder), "progress": False, "precision": "float32"}
    return RunConfig(**values | options)


def wait(explorer) -> None:
    explorer.session.thread.join(60)
    assert not explorer.session.thread.is_alive()


def start_and_wait(explorer) -> None:
    explorer.controls["start"].click()
    wait(explorer)


def stop_after(explorer, step: int) -> None:
    """Presses Stop as soon as a step is done (between that step and the next)."""
    shown = explorer.session._on_step

    def press(run):
        if run.step == step:
            explorer.controls["stop"].click()
        return shown(run)

    explorer.session._on_step = press
    start_and_wait(explorer)
    explorer.session._on_step = shown


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A run that has ended: its folder and record."""
    folder = tmp_path_factory.mktemp("ended")
    return folder, train(tiny_run(folder))


def test_a_run_that_is_stopped_and_started_again_ends_with_the_same_weights(tmp_path, ended):
    folder, whole = ended
    explorer = explore_training(tiny_run(tmp_path))
    stop_after(explorer, 3)
    assert "stopped at step 3 of 8: a checkpoint is kept" in message(explorer)
    assert not (tmp_path / "record.json").exists() and explorer.session.bar.value == 3
    stopped = words(explorer), pictures(explorer)[0]
    assert sum(int(cells(explorer, task)[1]) for task in ("RTE", "CoLA")) == 3
    start_and_wait(explorer)
    assert f"finished: dev average {whole['results']['last']['dev_average']:.1f}" in message(explorer)
    assert (words(explorer), pictures(explorer)[0]) != stopped
    steps = whole["sampling"]["drawn"]
    assert cells(explorer, "RTE")[1:3] == [str(steps["rte"]), str(4 * steps["rte"])]
    assert cells(explorer, "CoLA")[4] == f"{whole['results']['last']['scores']['cola']['matthews']:.1f} (matthews)"
    one, other = (load_file(next((place / "last").glob("*.safetensors"))) for place in (folder, tmp_path))
    assert one.keys() == other.keys() and all(torch.equal(one[k], other[k]) for k in one)


def test_a_finished_run_is_shown_and_not_trained_again(ended):
    folder, record = ended
    before = (folder / "record.json").read_text()
    explorer = explore_training(tiny_run(folder))
    start_and_wait(explorer)
    assert message(explorer).startswith("finished") and explorer.session.bar.value == 8
    assert cells(explorer, "RTE")[1] == str(record["sampling"]["drawn"]["rte"])
    assert (folder / "record.json").read_text() == before


def test_a_task_and_a_method_of_ones_own_are_trained_and_give_way_to_others(tmp_path):
    lines = [f"day {i} was {'good' if i % 2 else 'bad'},{'yes' if i % 2 else 'no'}" for i in range(60)]
    (tmp_path / "mood.csv").write_text("\n".join(["text,label", *lines]))
    own = {"tasks": ("rte", str(tmp_path / "mood.csv")), "method": LowRank("mine", size=4), "size": None}
    explorer = explore_training(tiny_run(tmp_path / "run", **own))
    assert explorer.controls["method"].value == "mine" and "shared" in explorer.controls["method"].options
    assert explorer.session.picture.layout.display == "none"  # there is nothing to be seen yet
    choose(explorer, {"method": "lhuc"})
    start_and_wait(explorer)
    assert message(explorer).startswith("finished") and explorer.session.picture.layout.display is None
    assert cells(explorer, "mood")[4].endswith("(accuracy)") and cells(explorer, "RTE")
    assert json.loads((tmp_path / "run" / "record.json").read_text())["method"]["name"] == "lhuc"


def test_a_score_that_is_undefined_is_said_to_be(tmp_path, monkeypatch):
    """As Pearson's correlation is where one batch of eight gets equal predictions (ledger D3)."""
    monkeypatch.setitem(METRICS, "pearson", lambda labels, predictions: float("nan"))
    explorer = explore_training(tiny_run(tmp_path, tasks=("stsb",), recipe_options={"correlations": "batches of 8"}))
    start_and_wait(explorer)
    assert "dev average undefined after" in message(explorer)
    assert cells(explorer, "STS-B")[4] == "undefined (pearson)"
    assert len(main_curves([])) == 0


def test_what_cannot_be_trained_is_said_and_the_buttons_come_back(tmp_path):
    explorer = explore_training(tiny_run(tmp_path / "a"))
    explorer.controls["method"].value = "pals-no-sharing-84"
    explorer.session.config = tiny_run(tmp_path / "a", data=str(tmp_path / "nothing"))
    start_and_wait(explorer)
    assert str(tmp_path / "nothing") in message(explorer)
    assert not explorer.controls["start"].disabled and explorer.controls["stop"].disabled


def test_of_two_explorers_one_trains_at_a_time(tmp_path):
    first, second = explore_training(tiny_run(tmp_path / "a")), explore_training(tiny_run(tmp_path / "b"))
    go_on, shown = threading.Event(), first.session._on_step
    first.session._on_step = lambda run: go_on.wait(60) and shown(run)
    first.controls["start"].click()
    assert first.controls["start"].disabled and not first.controls["stop"].disabled
    second.controls["start"].click()
    assert message(second)
    assert second.session.thread is None and second.session.bar.value == 0
    first.controls["stop"].click()
    go_on.set()
    wait(first)
    second.controls["start"].click()
    stop = time.monotonic() + 60
    while second.session.bar.value == 0 and time.monotonic() < stop:
        time.sleep(0.01)
    second.controls["stop"].click()
    wait(second)
    assert "stopped" in message(first) and message(second).split(":")[0].split()[0] in ("stopped", "finished")


# --- attention


def test_the_map_is_that_of_the_chosen_task_layer_and_head(model, tokenizer):
    explorer = explore_attention(model, tokenizer, "a b c", "")
    before = pictures(explorer)
    assert (explorer.controls["kind"].value, explorer.controls["layer"].value) == ("pal", 1)  # the last layer of a PAL
    for name, value in {"layer": 0, "head": 2, "kind": "bert", "task": "cola"}.items():
        choose(explorer, {name: value})
        assert pictures(explorer)[0] != before[0]
        before = pictures(explorer)
    choose(explorer, {"layer": 1, "kind": "pal"})
    maps = attention_maps(model, "cola", tokenizer, "a b c")
    to_cls = maps.of("pal")[1, 2][:, 0].mean()
    assert cells(explorer, "attention to [CLS]")[1] == f"{to_cls:.3f}"
    assert cells(explorer, "layer 1, head 2")[1:] == ["CoLA", "CoLA"]
    assert cells(explorer, "Jensen–Shannon divergence (nats)")[1] == "0.000"  # a task beside itself
    choose(explorer, {"other": "rte"})
    assert cells(explorer, "attention to [CLS]")[1] == f"{to_cls:.3f}"
    assert cells(explorer, "layer 1, head 2")[1:] == ["CoLA", "RTE"]


def test_sliders_end_where_the_heads_end(tokenizer):
    """Of two layers the top half is layer 1; BERT has four heads there, the PAL three."""
    explorer = explore_attention(tiny_model("pals-276-top", size=12, heads=3), tokenizer, "a b")
    c = explorer.controls
    choose(explorer, {"kind": "bert", "head": 3})
    choose(explorer, {"kind": "pal"})
    assert (c["layer"].min, c["layer"].max, c["layer"].value) == (1, 1, 1)
    assert (c["head"].max, c["head"].value) == (2, 2) and message(explorer) == ""
    choose(explorer, {"kind": "bert"})
    assert (c["layer"].min, c["layer"].max, c["head"].max) == (0, 1, 3)
    explorer = explore_attention(tiny_model("low-rank-100", size=5), tokenizer, "a b", "")
    choose(explorer, {"kind": "pal"})
    assert "low-rank" in message(explorer) and explorer.results.layout.visibility == "hidden"
    choose(explorer, {"kind": "bert"})
    assert message(explorer) == "" and "4 tokens" in words(explorer)


@pytest.fixture(scope="module")
def attention(model, tokenizer):
    """An explorer, and its picture of `a b`."""
    explorer = explore_attention(model, tokenizer, "a b", "")
    return explorer, pictures(explorer)[0]


@pytest.mark.parametrize(
    ("text", "pair", "said"),
    [
        ("", "", "2 tokens; type a sentence"),
        ("", "only the second", "6 tokens"),
        ("word " * 200, "", "the text has 202 and was cut to the backbone's limit; the maps show the first 32"),
        ("word " * 600, "other " * 700, "the text has 1,303 and was cut"),
        ("I 😀 you 👩‍👩‍👧 $x_1$ and $5 {a} \\alpha", "", "tokens"),
        ("مرحبا بالعالم", "שלום 你好 ไทย", "tokens"),
        ("<script>alert(1)</script> & <b>", "a\tb\nc\x00d\u200b", "tokens"),
    ],
)
def test_no_text_breaks_the_map(attention, text, pair, said):
    """Warnings are errors here, so a glyph that the font lacks would fail."""
    explorer, before = attention
    choose(explorer, {"text": text, "pair": pair})
    assert message(explorer) == "" and said in words(explorer)
    assert "<script>" not in explorer.results.children[0].value
    assert pictures(explorer)[0] != before


def test_tokens_are_written_as_the_font_can():
    face = "😀" if printable("😀") == "😀" else r"\U0001f600"  # as the font at hand has it
    tokens = ["##ing", "中", "😀", "", "x" * 20, "\t", "$x_1$"]
    assert [printable(t) for t in tokens] == ["##ing", r"\u4e2d", face, "''", "x" * 13 + "…", r"\t", r"\$x_1\$"]


def test_the_maps_beside_each_other_share_their_colours_and_every_head_has_its_small_map(model, tokenizer):
    sides = [attention_maps(model, task, tokenizer, "a b", "c", 12) for task in ("rte", "cola")]
    figure = Figure()
    draw_beside(sides, "pal", 1, 2, ["RTE", "CoLA"], figure)
    for ax, maps in zip(figure.axes, sides, strict=False):
        assert (ax.images[0].get_array() == maps.of("pal")[1, 2]).all()  # (6, 6): [CLS] a b [SEP] c [SEP]
        assert ax.images[0].get_clim() == (0, max(2 / 6, *(one.of("pal")[1, 2].max() for one in sides)))
    labels = [label.get_text() for label in figure.axes[0].get_xticklabels()]
    assert labels == ["[CLS]", "a", "b", "[SEP]", "c", "[SEP]"]
    heads = sides[0].layer("bert", 0)
    drawn = [ax for ax in head_grid(heads, "heads", Figure(layout="constrained"), columns=3).axes if ax.get_title()]
    assert [ax.get_title() for ax in drawn] == ["head 0", "head 1", "head 2", "head 3"]
    assert all((ax.images[0].get_array() == one).all() for ax, one in zip(drawn, heads, strict=True))
