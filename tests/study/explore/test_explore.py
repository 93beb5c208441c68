"""The explorers without a browser: their controls are driven from Python, and what they show is read back."""

import json
import re
from html import unescape

import pytest
from matplotlib.figure import Figure
from training.small_runs import small, two_classes

from palslib import METHODS, MultiTaskModel, RunConfig, count_parameters, train
from palslib.methods.lora import LoRA
from palslib.methods.low_rank import LowRank
from palslib.study.analysis.attention_maps import attention_maps
from palslib.study.explore.heads import draw_beside, explore_attention
from palslib.study.explore.methods import explore_architecture, explore_parameters, explore_schedules, parts_frame
from palslib.study.explore.runs import explore_training


def widgets_in(box) -> list:
    """All widgets in a box, outermost first."""
    return [box, *(w for child in getattr(box, "children", ()) for w in widgets_in(child))]


def plain(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", html)).split())


def words(explorer) -> str:
    """The text of an explorer's results, without marks, with single spaces: a row of a table is its cells in turn."""
    return plain(" ".join(w.value for w in widgets_in(explorer.results) if type(w).__name__ == "HTML"))


def message(explorer) -> str:
    return plain(explorer.message.value)


def pictures(explorer) -> list[bytes]:
    return [w.value for w in widgets_in(explorer.results) if type(w).__name__ == "Picture"]


def choose(explorer, values: dict) -> None:
    for name, value in values.items():
        explorer.controls[name].value = value


# --- what all share


CHANGES = [
    # 8 · (2·768·204 + 12·3·204²) = 8 · (313,344 + 1,498,176) = 14,492,160; with BERT's 109,482,240 that is 1.132
    (explore_parameters, {}, "V E and V D 2ds 313,344 each task 2,506,752"),
    (explore_parameters, {}, "14,492,160 added for 8 tasks: 1.132 times bert-base-uncased"),
    (explore_parameters, {}, "within the budget of 15,000,000 (largest s: 204 )"),
    (explore_parameters, {"size": 900}, "over the budget"),
    (explore_parameters, {"tasks": 3}, f"{count_parameters('pals-204', num_tasks=3).added:,} added for 3 tasks"),
    (explore_parameters, {"size": 276, "layers": "top"}, f"{count_parameters('pals-276-top').added:,} added"),
    (explore_parameters, {"sharing": "none", "size": 84}, f"{count_parameters('pals-no-sharing-84').added:,} added"),
    (explore_architecture, {"method": "lhuc", "backbone": "minilm"}, "18,432 added for 8 tasks"),  # 8 · 6 · 384
    # In epoch 13 of 25 α = 1 − 0.8 · 12/24 = 0.6, and RTE has 2490^0.6 of Σ n^0.6 = 0.0158; in the last of five α = 0.2
    (explore_schedules, {"epoch": 13}, "α = 0.600"),
    (explore_schedules, {"epoch": 13}, "RTE 2,490 0.0158"),
    (explore_schedules, {"epoch": 20, "epochs": 5}, "α = 0.200"),
    # Round robin gives 60,000 / 8 = 7,500 steps a task; 7,500 · 32 / 2,490 = 96.39 passes over RTE, 0.61 over MNLI
    (explore_schedules, {"schedule": "round-robin"}, "RTE 2,490 0.1250 7,500 7,500 96.39"),
    (explore_schedules, {"schedule": "proportional", "sizes": "mnli=300 rte=100"}, "MNLI 300 0.7500"),
    (explore_schedules, {"schedule": "proportional", "sizes": "mnli=300 rte=100", "alpha": 0}, "p ∝ N^0 task"),
    (explore_schedules, {"schedule": "proportional", "sizes": "mnli=300 rte=100", "alpha": 0}, "MNLI 300 0.5000"),
    (explore_schedules, {"sizes": " rte=2,490, cola=8_551\nmnli=392702; "}, "CoLA 8,551"),  # as people write them
]


@pytest.mark.parametrize(("explore", "values", "said"), CHANGES)
def test_a_control_changes_words_and_picture_and_no_other_explorer(explore, values, said):
    explorer, other = explore(), explore()
    before = words(other), pictures(other)
    choose(explorer, values)
    assert message(explorer) == "" and said in words(explorer)
    assert not values or (words(explorer), pictures(explorer)) != before
    assert (words(other), pictures(other)) == before


WRONG = [
    (explore_parameters, {"size": 205}, "size 205", {"size": 216}),  # twelve heads
    (explore_schedules, {"sizes": ""}, "task=size", {"sizes": "rte=7"}),
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


# --- methods and schedules


def test_every_method_is_counted():
    """Part by part. Also one's own: LoRA has 12 · 2 · 2 · 768 · 4 for each of eight tasks."""
    explorer = explore_parameters(LoRA("lora", size=4))
    assert f"{8 * 147_456:,} added" in words(explorer)
    for method in METHODS:
        choose(explorer, {"method": method})
        count = count_parameters(method)
        assert message(explorer) == "" and f"{count.added:,} added" in words(explorer)
        assert parts_frame(count)["parameters"].sum() == count.added
    count = count_parameters("pals-204", num_tasks=5, pooler="per-task")
    assert parts_frame(count)["parameters"].sum() == count.added


@pytest.mark.parametrize(
    ("method", "slider", "off"),
    [
        ("pals-204", (12, 12, 204, 1_020), set()),  # s goes in steps of the heads
        (LowRank("wide", size=1_500), (1, 1, 1_500, 1_500), {"sharing"}),  # the end moves: nothing is cut in silence
        ("shared", (1, 1, 1, 1_020), {"size", "layers", "sharing"}),
    ],
    ids=["pals", "wide", "shared"],
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


def test_a_schedule_has_its_own_controls_and_tasks():
    explorer = explore_schedules("round-robin", sizes={"mood": 48, "rte": 2490})
    assert explorer.controls["alpha"].disabled and explorer.controls["epoch"].disabled
    assert "mood 48" in words(explorer) and "RTE 2,490" in words(explorer)
    choose(explorer, {"schedule": "annealed", "epoch": 20, "epochs": 5})
    assert (explorer.controls["epoch"].value, explorer.controls["epoch"].max) == (5, 5)
    choose(explorer, {"sizes": "rte=10 mood=30"})
    assert message(explorer) == "" and "mood 30" in words(explorer)


# --- training


def tiny_run(folder, **options) -> RunConfig:
    return small(folder, **{"tasks": ("rte", "cola"), "steps": 8, "evaluate_every": 4, "keep": "last"} | options)


def start_and_wait(explorer, stop_after: int = 0) -> None:
    """Presses Start, and Stop between that step and the next."""
    shown = explorer.on_step

    def press(run):
        if run.step == stop_after:
            explorer.controls["stop"].click()
        return shown(run)

    explorer.on_step = press
    explorer.controls["start"].click()
    assert explorer.controls["start"].disabled
    explorer.thread.join(60)
    assert not explorer.thread.is_alive()
    explorer.on_step = shown
    assert not explorer.controls["start"].disabled and explorer.controls["stop"].disabled


def test_a_run_that_is_stopped_and_started_again_ends_as_if_it_had_not_been(tmp_path):
    """And once it has finished, it is shown and not trained again."""
    whole = train(tiny_run(tmp_path / "whole"))
    explorer = explore_training(tiny_run(tmp_path / "run"))
    start_and_wait(explorer, stop_after=3)
    assert "stopped at step 3 of 8: a checkpoint is kept" in message(explorer)
    assert not (tmp_path / "run" / "record.json").exists() and explorer.bar.value == 3
    steps = re.search(r"RTE (\d) .* CoLA (\d)", words(explorer)).groups()
    assert sum(map(int, steps)) == 3
    stopped = words(explorer), pictures(explorer)[0]
    start_and_wait(explorer)
    assert (words(explorer), pictures(explorer)[0]) != stopped
    last, drawn = whole["results"]["last"], whole["sampling"]["drawn"]
    said = [f"RTE {drawn['rte']} {4 * drawn['rte']}", f"{last['scores']['cola']['matthews']:.1f} (matthews)"]
    saved = (tmp_path / "run" / "record.json").read_bytes()
    again = explore_training(tiny_run(tmp_path / "run"))
    start_and_wait(again)
    for one in (explorer, again):
        assert f"finished: dev average {last['dev_average']:.1f}" in message(one) and one.bar.value == 8
        assert all(each in words(one) for each in said)
    assert (tmp_path / "run" / "record.json").read_bytes() == saved


def test_a_task_and_a_method_of_ones_own_are_trained_and_give_way_to_others(tmp_path):
    two_classes(tmp_path / "mood.csv")
    own = {"tasks": ("rte", str(tmp_path / "mood.csv")), "method": LowRank("mine", size=4), "size": None}
    explorer = explore_training(tiny_run(tmp_path / "run", **own))
    assert explorer.controls["method"].value == "mine" and "shared" in explorer.controls["method"].options
    assert explorer.picture.layout.display == "none"  # there is nothing to be seen yet
    choose(explorer, {"method": "lhuc"})
    start_and_wait(explorer)
    assert message(explorer).startswith("finished") and explorer.picture.layout.display is None
    assert re.search(r"RTE .* mood .* \(accuracy\)", words(explorer))
    assert json.loads((tmp_path / "run" / "record.json").read_text())["method"]["name"] == "lhuc"


def test_what_cannot_be_trained_is_said(tmp_path):
    explorer = explore_training(tiny_run(tmp_path / "a"))
    explorer.config = tiny_run(tmp_path / "a", data=str(tmp_path / "nothing"))
    start_and_wait(explorer)
    assert str(tmp_path / "nothing") in message(explorer)


# --- attention


def tiny_model(method="pals-204", **options) -> MultiTaskModel:
    """Two layers, 48 wide, four heads, for 128 tokens."""
    return MultiTaskModel.from_backbone("tiny", method, ("rte", "cola"), **options)


@pytest.fixture(scope="module")
def model():
    """Its PALs have three heads, and V^D is not zero."""
    return tiny_model(size=12, heads=3, init="normal")


def test_the_map_is_that_of_the_chosen_task_layer_and_head(model, tokenizer):
    explorer = explore_attention(model, tokenizer, "a b c", "")
    before = pictures(explorer)
    assert (explorer.controls["kind"].value, explorer.controls["layer"].value) == ("pal", 1)  # the last layer of a PAL
    for name, value in {"layer": 0, "head": 2, "kind": "bert", "task": "cola"}.items():
        choose(explorer, {name: value})
        assert pictures(explorer)[0] != before[0]
        before = pictures(explorer)
    choose(explorer, {"layer": 1, "kind": "pal"})
    to_cls = attention_maps(model, "cola", tokenizer, "a b c").of("pal")[1, 2][:, 0].mean()
    assert f"attention to [CLS] {to_cls:.3f}" in words(explorer) and "layer 1, head 2 CoLA CoLA" in words(explorer)
    assert "Jensen–Shannon divergence (nats) 0.000" in words(explorer)  # a task beside itself


def test_sliders_end_where_the_heads_end(tokenizer):
    """Of two layers the top half is layer 1; BERT has four heads there, the PAL three; low rank has none."""
    explorer = explore_attention(tiny_model("pals-276-top", size=12, heads=3), tokenizer, "a b")
    c = explorer.controls
    choose(explorer, {"kind": "bert", "head": 3})
    assert (c["layer"].min, c["layer"].max, c["head"].max) == (0, 1, 3)
    choose(explorer, {"kind": "pal"})
    assert (c["layer"].min, c["layer"].max, c["layer"].value) == (1, 1, 1)
    assert (c["head"].max, c["head"].value) == (2, 2) and message(explorer) == ""
    explorer = explore_attention(tiny_model("low-rank-100", size=5), tokenizer, "a b", "")
    choose(explorer, {"kind": "pal"})
    assert "no projected attention" in message(explorer) and explorer.results.layout.visibility == "hidden"


def test_no_text_breaks_the_map(model, tokenizer):
    """Warnings are errors here, so a glyph that the font lacks would fail."""
    explorer = explore_attention(model, tokenizer, "a b", "")
    for text, pair, said in (
        ("", "", "2 tokens; type a sentence"),
        ("", "only the second", "6 tokens"),
        ("word " * 600, "other " * 700, "the text has 1,303 and was cut"),
        ("I 😀 you 👩‍👩‍👧 $x_1$ and $5 {a} \\alpha", "مرحبا بالعالم שלום 你好", "tokens"),
        ("<script>alert(1)</script> & <b>", "a\tb\nc\x00d\u200b", "tokens"),
    ):
        before = pictures(explorer)[0]
        choose(explorer, {"text": text, "pair": pair})
        assert message(explorer) == "" and said in words(explorer), text
        assert "<script>" not in explorer.results.children[0].value and pictures(explorer)[0] != before


def test_the_maps_beside_each_other_share_their_colours(model, tokenizer):
    sides = [attention_maps(model, task, tokenizer, "a b", "c", 12) for task in ("rte", "cola")]
    figure = Figure()
    draw_beside(sides, "pal", 1, 2, ["RTE", "CoLA"], figure)
    for ax, maps in zip(figure.axes, sides, strict=False):
        assert (ax.images[0].get_array() == maps.of("pal")[1, 2]).all()  # (6, 6): [CLS] a b [SEP] c [SEP]
        assert ax.images[0].get_clim() == (0, max(2 / 6, *(one.of("pal")[1, 2].max() for one in sides)))
