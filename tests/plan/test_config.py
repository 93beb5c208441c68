"""A run as plain data: nonsense is refused by name before anything is loaded, and the key says which runs are one."""

import json
from dataclasses import asdict, fields, replace

import pytest
from pydantic import ValidationError

from palslib.common.places import RECORDS
from palslib.methods.table import METHODS
from palslib.plan.config import PRESETS, RunConfig, as_now
from palslib.records import read_records

NAN, INFINITE, HUGE = float("nan"), float("inf"), 10**9
REFUSED = {
    "method": ["pal-204", 3],
    "task": [("rte", "colla"), "rte", ["rte", 1], (), ("rte", "rte"), ("/tmp/x",)],
    "schedule": ["anneal", 1],
    "precision": ["bf61"],
    "keep": ["all"],
    "recipe": ["released "],
    "recipe_options": [None],
    "method_options": [["heads"]],
    "size": ["bugdet", 120.0, True, 0, HUGE],
    "steps": [0, 10.0, HUGE],
    "seed": [-1, True, 10**400, 2**63],
    "data": ["", "a\0b"],
    "backbone": ["\ud800"],
    "folder": [1],
    "alpha_parts": [10**6],
    "passes": [0],
    "batch_size": [10**6],
    "max_length": [10**6, 7],
    "memory": [10**7],
    "evaluate_every": [-1],
    "warmup": [1.0],
    "learning_rate": [NAN, INFINITE, "2e-5", True],
    "adaptation_rate": [0],
    "clip": [0],
    "gradient_checkpointing": ["no"],
    "progress": [1],
    "stesp": [1],
}
"""Field -> values that it does not take. `tasks` is also called `task`."""
TOGETHER = [
    *(({"recipe_options": {name: value}}, name) for name, value in [("dropuot", "throughout"), ("dropout", "never")]),
    *(({"recipe_options": {name: value}}, name) for name, value in [("pal_heads", 0), ("epsilon", -1)]),
    ({"method_options": {"size": 12}}, "size"),
    ({"method_options": {"haeds": 6}}, "haeds"),
    ({"method_options": {"heads": HUGE}}, "heads"),
    ({"method": "lhuc", "method_options": {"heads": 6}}, "heads"),
    ({"method": "shared", "size": 12}, "size"),
    ({"memory": 4, "tasks": ("rte",)}, "memory"),
    ({"own": {"mood": {"labels": ("bad", "good")}}, "tasks": ("rte", "mod")}, "task"),
    ({"own": ["x"], "tasks": ("f.csv",)}, "own"),
    ({"batch_size": 10, "micro_batches": 3}, "micro_batches"),
    ({"alpha": 0.5}, "alpha"),
    *(({"alpha": value, "schedule": "proportional"}, "alpha") for value in (1e308, -1, "0")),
    ({"recipe": "released", "tasks": ("rte", "sts")}, "sts"),
    ({"recipe_options": {"sizes": "official"}, "tasks": ("sst5",)}, "sst5"),
]
"""Fields that contradict each other, or fields within fields, and what is named."""
ALONE = [({"tasks" if name == "task" else name: value}, name) for name, values in REFUSED.items() for value in values]


@pytest.mark.parametrize(("values", "name"), [*ALONE, *TOGETHER], ids=str)
def test_refused(values, name):
    """In a line of our own, which names the field."""
    with pytest.raises(ValueError, match=rf"(?<!\w){name}") as caught:
        RunConfig(**values)
    assert not isinstance(caught.value, ValidationError) and "\n" not in str(caught.value)


def test_what_is_given_stays_as_it_is():
    """Numbers keep their kind, lists of tasks become tuples, and no options are shared with the caller."""
    options = {"heads": 6}
    config = RunConfig(tasks=["rte"], weight_decay=0, alpha=1, schedule="proportional", method_options=options)
    options["heads"] = 12
    assert (config.tasks, config.method_options) == (("rte",), {"heads": 6})
    assert [type(value) for value in (config.weight_decay, config.alpha, config.warmup)] == [int, int, float]


# -------------------------------------------------------------------------------------------------- from JSON, presets
@pytest.mark.parametrize("preset", PRESETS)
def test_presets(preset):
    config = RunConfig.from_dict({"preset": preset, "seed": 3})
    assert config.seed == 3 and config.checkpoint_every  # so that it can be resumed
    for name, value in PRESETS[preset].items():
        assert getattr(config, name) == value
    assert RunConfig.from_dict({"preset": preset, "steps": 7}).steps == 7  # what is given goes before the preset


@pytest.mark.parametrize(("preset", "rows", "epoch"), [("minbert", 40, 1_950), ("gem", 16, 1_200)])
def test_the_presets_of_papers(preset, rows, epoch):
    """Ledger A20: 60,000 steps are 25 epochs of 2,400; warm-up 6,000. The reports: ten epochs, and so ten values of α,
    each evaluated; s of 204 on three tasks, where the budget allows 348."""
    paper = RunConfig.from_dict({"preset": "paper"})
    assert (paper.backbone, paper.learning_rate) == ("bert-base-uncased", 2e-5)
    assert (paper.batch_size, paper.max_length, paper.resolved_method().size) == (32, 128, 204)
    assert paper.steps / paper.alpha_parts == 2400 == 300 * 8 and paper.steps * paper.warmup == 6000
    config = RunConfig.from_dict({"preset": preset})
    assert (config.batch_size, config.steps, config.evaluate_every) == (rows, 10 * epoch, epoch)
    assert config.steps / config.alpha_parts == epoch and config.resolved_method().size == 204
    assert (config.learning_rate, config.weight_decay, config.head_dropout) == (1e-5, 0.01, 0.3)
    assert config.resolved_recipe().decay == "constant" and config.warmup == 0
    large = RunConfig.from_dict({"preset": preset, "size": 324})
    assert large.resolved_method().size == 324


def test_from_file(tmp_path):
    path = tmp_path / "run.json"
    config = RunConfig(tasks=("rte", "cola"), recipe_options={"pal_heads": 6}, folder="somewhere")
    path.write_text(json.dumps(asdict(config)))
    assert RunConfig.from_file(path) == config
    path.write_text('{"steps": 1000000000000}')
    with pytest.raises(ValueError, match=r"run\.json: steps .* 1000000000000"):
        RunConfig.from_file(path)


# ----------------------------------------------------------------------------------------------------------------- key
@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("ca5b590903", {}),
        ("5631d7d4cb", {"preset": "smoke"}),
        ("f880167948", {"preset": "mini"}),
        ("f7052073e1", {"preset": "paper", "size": "budget"}),
        ("4a33780067", {"preset": "minbert"}),
        ("4bcebc7699", {"method": "shared"}),
        ("f08fd61e80", {"size": 120}),
        ("66843797d2", {"recipe": "released", "size": "budget"}),
        ("d15d1d50f3", {"recipe": "released"}),
        ("4613dbcb8a", {"weight_decay": 0, "learning_rate": 1}),
        ("63f5903dfc", {"alpha": 0, "schedule": "proportional"}),
        ("a6466ce0e5", {"head_dropout": 0.1, "memory": 8, "evaluate_first": True}),
        ("26c7057131", {"method_options": {"heads": 6}, "recipe_options": {"order": "replayed", "epsilon": 1e-6}}),
    ],
)
def test_golden_keys(key, values):
    """By these the runs and records of earlier versions are found."""
    assert RunConfig.from_dict(values).key == key, "a new field's default belongs into _LATER of plan/config.py"


@pytest.mark.parametrize(
    "name", ["precision/bf16-seed1", "gem-300-steps/joint-seed0", "minbert-150-steps/pals-204-annealed-seed0"]
)
def test_records_are_found_by_their_configs(name):
    (record,) = read_records(RECORDS / f"{name}.json")
    assert RunConfig(**record["config"]).key == record["key"]


def test_key_ignores_what_does_not_decide_the_outcome():
    config, same = RunConfig(), {"folder": "x", "progress": False, "keep": "best", "checkpoint_every": 5}
    same |= {"log_with": "tensorboard", "tasks": list(config.tasks)}
    assert replace(config, **same).key == config.key
    options = {"heads": 6, "activation": "gelu", "init": "normal"}
    turned = dict(reversed(options.items()))
    assert replace(config, method_options=options).key == replace(config, method_options=turned).key
    assert config.name == f"pals-204-annealed-seed0-{config.key}"


def test_key_depends_on_everything_else():
    config = RunConfig(schedule="proportional", tasks=("rte", "cola"))
    other = {
        "method": "shared", "size": "paper", "method_options": {"heads": 6}, "backbone": "tiny",
        "tasks": ("cola", "rte"), "data": "glue", "schedule": "annealed", "alpha": 0.3, "alpha_parts": 5, "steps": 61,
        "batch_size": 16, "max_length": 64, "learning_rate": 1e-5, "weight_decay": 0.0, "warmup": 0.2, "clip": 2.0,
        "seed": 1, "recipe": "released", "recipe_options": {"dropout": "until evaluated"}, "precision": "float32",
        "micro_batches": 2, "gradient_checkpointing": True, "evaluate_every": 7,
        "head_dropout": 0.3, "memory": 8, "memory_margin": 0.0, "memory_over": "shared", "start": "earlier",
        "evaluate_first": True, "adaptation_rate": 10.0, "inspect": True, "weights": "random",
        "own": {"m": {"labels": ["a", "b"]}}, "held_out": True, "passes": 2,
    }  # fmt: skip
    left = {f.name for f in fields(RunConfig)} - set(other)
    same = {"folder", "progress", "log_with", "keep", "checkpoint_every", "setting"}
    left.remove("held_out_by")
    assert replace(config, held_out_by="texts").key == config.key  # it decides nothing, unless rows are held out
    by = {replace(config, held_out=True, held_out_by=by).key for by in ("texts", "groups")}
    assert len(by) == 2 and as_now({"held_out": True})["held_out_by"] == "texts"  # of runs recorded without the field
    left.remove("own_method")  # goes with no name of the table: methods/test_own_methods.py
    assert left == same, "a new field that decides the outcome is in `other` here, at a value that is not its default"
    assert len({replace(config, **{name: value}).key for name, value in other.items()} | {config.key}) == len(other) + 1


# --------------------------------------------------------------------------------------------- method, size and recipe
def test_sizes():
    """Ledger A27: the budget gives the paper's 204 on BERT-base (of the backbone's known shape), 120 on MiniLM."""
    assert RunConfig(backbone="bert-base-uncased").resolved_method() == METHODS["pals-204"]
    assert RunConfig().resolved_method().size == 120
    assert RunConfig(size="paper").resolved_method().size == 204
    method = RunConfig(size=60, method_options={"heads": 6}).resolved_method()
    assert (method.size, method.heads) == (60, 6)
    assert RunConfig(method="shared").resolved_method() == METHODS["shared"]
    for size, heads in ((100, {}), ("paper", {"heads": 24})):
        with pytest.raises(ValueError, match=f"size {204 if heads else 100} "):
            RunConfig(size=size, method_options=heads).resolved_method()
    method = RunConfig(method_options={"heads": 24}).resolved_method()  # 24 divide MiniLM's 120, if not BERT-base's 204
    assert (method.size, method.heads) == (120, 24)


def test_size_unsaid_follows_the_recipe():
    """The released code's sizes are part of what it does; everywhere else the paper's budget decides."""
    for options, said in [({}, "budget"), ({"recipe": "released"}, "paper"), ({"preset": "paper"}, "paper")]:
        config = RunConfig.from_dict(options)
        assert config.resolved_size == said and config.key == replace(config, size=said).key
    assert RunConfig(recipe="released").resolved_method().size == 204
    assert replace(RunConfig(recipe="released"), recipe="paper").key == RunConfig().key
    assert RunConfig(recipe="released", size="budget").resolved_method().size == 120


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("size", ["paper", "budget"])
def test_every_method_resolves(method, recipe, size):
    resolved = RunConfig(method=method, recipe=recipe, size=size, backbone="tiny", tasks=("rte",)).resolved_method()
    assert resolved.name == method and (resolved == METHODS[method] or (recipe, size) != ("paper", "paper"))
    if getattr(resolved, "heads", None):
        assert resolved.size % resolved.heads == 0
