"""A run as plain data: nonsense is refused by name before anything is loaded, and the key says which runs are one."""

import json
from dataclasses import asdict, fields, replace

import pytest
from pydantic import ValidationError

from palslib.common.places import RECORDS
from palslib.methods.table import METHODS
from palslib.plan.config import PRESETS, RunConfig, make_plan
from palslib.records import read_records

REFUSED = [
    ({"method": "pal-204"}, r"unknown method 'pal-204': did you mean 'pals-204'\? Valid: shared, "),
    ({"method": 3}, "method must be a string that is not empty and has no control character, not 3"),
    ({"folder": 1}, "folder must be a string that is not empty and has no control character or None, not 1"),
    ({"tasks": ("rte", "colla")}, r"unknown task 'colla': did you mean 'cola'\?"),
    ({"tasks": "rte"}, "tasks must be a list of strings, not 'rte'"),
    ({"tasks": ["rte", 1]}, r"tasks must be a list of strings, not \['rte', 1\]"),
    ({"tasks": ()}, r"tasks must be at least one, each once, not \[\]"),
    ({"tasks": ("rte", "rte")}, r"tasks must be at least one, each once, not \['rte', 'rte'\]"),
    ({"schedule": "anneal"}, r"unknown value of schedule 'anneal': did you mean 'annealed'\? Valid: proportional, "),
    ({"schedule": 1}, "schedule must be 'proportional', 'square-root', .*'round-robin' or '[a-z-]+', not 1"),
    ({"stesp": 1}, r"unknown parameter 'stesp': did you mean 'steps'\? Valid: method, size, "),
    ({"precision": "bf61"}, r"unknown value of precision 'bf61': did you mean 'bf16'\?"),
    ({"keep": "all"}, "unknown value of keep 'all'"),
    ({"recipe": "released "}, r"unknown recipe 'released ': did you mean 'released'\?"),
    ({"recipe_options": {"dropuot": "throughout"}}, r"unknown recipe field 'dropuot': did you mean 'dropout'\?"),
    ({"recipe_options": {"dropout": "never"}}, "unknown value of recipe field 'dropout' 'never'.*Valid: throughout"),
    ({"recipe_options": {"pal_heads": 0}}, "recipe field 'pal_heads' must be an integer of at least 1 .* 4,096, not 0"),
    ({"recipe_options": {"bias_correction": "no"}}, "recipe field 'bias_correction' must be true or false, not 'no'"),
    ({"recipe_options": {"epsilon": -1}}, "recipe field 'epsilon' must be a number above 0 and of at most 1, not -1"),
    ({"recipe_options": None}, "recipe_options must be a dict"),
    ({"method_options": ["heads"]}, "method_options must be a dict"),
    ({"method_options": {"size": 12}}, "give size as RunConfig.size"),
    ({"method_options": {"haeds": 6}}, r"unknown option 'haeds': did you mean 'heads'\?"),
    ({"method": "lhuc", "method_options": {"heads": 6}}, "method 'lhuc' takes no option 'heads'"),
    ({"size": "bugdet"}, r"unknown value of size 'bugdet': did you mean 'budget'\? Valid: budget, paper, an int"),
    ({"size": 120.0}, "size must be 'budget', 'paper', an integer of at least 1 and .* 4,096 or None, not 120.0"),
    ({"size": True}, "size must be 'budget', 'paper', an integer of at least 1 and of at most 4,096 or None, not True"),
    ({"size": 0}, "size must be 'budget', 'paper', an integer of at least 1 and of at most 4,096 or None, not 0"),
    ({"method": "shared", "size": 12}, "size=12 contradicts method 'shared', which has no size"),
    (
        {"memory": 4, "tasks": ("rte",)},
        "memory=4 has no effect on a single task: it keeps examples of the run's other",
    ),
    ({"steps": 0}, "steps must be an integer of at least 1 and of at most 10,000,000, not 0"),
    ({"steps": 10.0}, r"steps must be an integer of at least 1 and of at most 10,000,000, not 10\.0"),
    ({"seed": -1}, "seed must be an integer of at least 0"),
    ({"seed": True}, "seed must be an integer"),
    ({"data": ""}, "data must be a string that is not empty and has no control character, not ''"),
    ({"data": "a\0b"}, r"data must be a string that is not empty and has no control character, not 'a\\x00b'"),
    ({"backbone": "\ud800"}, r"backbone must be a string .*, not '\\ud800'"),
    ({"alpha": 1e308, "schedule": "proportional"}, r"alpha must be a number .* of at most 10 or None, not 1e\+308"),
    ({"size": 10**9}, "size must be .* of at most 4,096 or None, not 1000000000"),
    ({"method_options": {"heads": 10**9}}, "heads of 'pals-204' must be a positive integer of at most 4,096"),
    ({"steps": 10**9}, "steps must be an integer .* of at most 10,000,000, not 1000000000"),
    ({"alpha_parts": 10**6}, "alpha_parts must be an integer .* of at most 10,000, not"),
    ({"batch_size": 10**6}, "batch_size must be an integer .* of at most 65,536, not"),
    ({"max_length": 10**6}, "max_length must be an integer .* of at most 8,192, not"),
    ({"memory": 10**7}, "memory must be an integer .* of at most 1,000,000, not"),
    ({"seed": 10**400}, r"seed must be an integer .*, not 10+\.\.\. \(401 characters\)"),
    ({"seed": 2**63}, "seed must be an integer of at least 0 and below 9,223,372,036,854,775,808, not"),
    ({"tasks": ("/tmp/x",)}, "'/tmp/x' is no name of a task"),
    ({"max_length": 7}, "max_length must be an integer of at least 8"),
    ({"evaluate_every": -1}, "evaluate_every must be an integer of at least 0"),
    ({"warmup": 1.0}, r"warmup must be a number of at least 0 and below 1, not 1\.0"),
    ({"learning_rate": float("nan")}, "learning_rate must be a number of at least 0 and of at most 100, not nan"),
    ({"learning_rate": float("inf")}, "learning_rate must be a number of at least 0 and of at most 100, not inf"),
    ({"learning_rate": "2e-5"}, "learning_rate must be a number of at least 0 and of at most 100, not '2e-5'"),
    ({"learning_rate": True}, "learning_rate must be a number of at least 0 and of at most 100, not True"),
    ({"adaptation_rate": 0}, "adaptation_rate must be a number above 0 and of at most 1,000,000, not 0"),
    ({"clip": 0}, r"clip must be a number above 0 and of at most 1e\+30, not 0"),
    ({"batch_size": 10, "micro_batches": 3}, "batch_size 10 is not divisible by micro_batches 3"),
    ({"alpha": 0.5}, r"alpha=0\.5 contradicts schedule 'annealed'"),
    ({"alpha": -1, "schedule": "proportional"}, "alpha must be a number .* at most 10 or None, not -1"),
    ({"alpha": "0", "schedule": "proportional"}, "alpha must be a number of at least 0 .* at most 10 or None, not '0'"),
    ({"gradient_checkpointing": "no"}, "gradient_checkpointing must be true or false, not 'no'"),
    ({"progress": 1}, "progress must be true or false, not 1"),
    ({"recipe": "released", "tasks": ("rte", "sts")}, r"unknown task for sizes='released' \(.* 'sts': .*'stsb'"),
    ({"recipe_options": {"sizes": "official"}, "tasks": ("sst5",)}, "unknown task for sizes='official' .* 'sst5'"),
]


@pytest.mark.parametrize(("values", "message"), REFUSED, ids=[str(values) for values, _ in REFUSED])
def test_refused(values, message):
    with pytest.raises(ValueError, match=message) as caught:
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
    assert config.seed == 3
    for name, value in PRESETS[preset].items():
        assert getattr(config, name) == value
    assert RunConfig.from_dict({"preset": preset, "steps": 7}).steps == 7  # what is given goes before the preset


def test_paper_preset_is_the_papers():
    """Ledger A20: 60,000 steps are 25 epochs of 2,400; warm-up 6,000."""
    config = RunConfig.from_dict({"preset": "paper"})
    assert (config.backbone, config.learning_rate) == ("bert-base-uncased", 2e-5)
    assert (config.batch_size, config.max_length) == (32, 128)
    assert config.steps / config.alpha_parts == 2400 == 300 * 8 and config.steps * config.warmup == 6000
    assert config.resolved_method().size == 204


@pytest.mark.parametrize(("preset", "rows", "epoch"), [("minbert", 40, 1_950), ("gem", 16, 1_200)])
def test_the_reports_presets(preset, rows, epoch):
    """Ten epochs, and so ten values of α, each evaluated; s of 204 on three tasks, where the budget allows 348."""
    config = RunConfig.from_dict({"preset": preset})
    assert (config.batch_size, config.steps, config.evaluate_every) == (rows, 10 * epoch, epoch)
    assert config.steps / config.alpha_parts == epoch and config.resolved_method().size == 204
    assert (config.learning_rate, config.weight_decay, config.head_dropout) == (1e-5, 0.01, 0.3)
    assert config.resolved_recipe().decay == "constant" and config.warmup == 0
    large = RunConfig.from_dict({"preset": preset, "size": 324})
    assert large.resolved_method().size == 324


def test_a_task_of_ones_own_with_a_slip_of_the_pen():
    with pytest.raises(ValueError, match=r"unknown task 'mod': did you mean 'mood'\? Valid: mood, cola"):
        RunConfig(tasks=("rte", "mod"), own={"mood": {"labels": ("bad", "good")}})


def test_from_file(tmp_path):
    path = tmp_path / "run.json"
    config = RunConfig(tasks=("rte", "cola"), recipe_options={"pal_heads": 6}, folder="somewhere")
    path.write_text(json.dumps(asdict(config)))
    assert RunConfig.from_file(path) == config
    path.write_text('{"steps": 1000000000000}')
    with pytest.raises(ValueError, match=r"run\.json: steps must be an integer .*, not 1000000000000"):
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
    left.remove("own_method")  # goes with no name of the table: methods/test_own_methods.py
    assert left == same, "a new field that decides the outcome is in `other` here, at a value that is not its default"
    assert len({replace(config, **{name: value}).key for name, value in other.items()} | {config.key}) == len(other) + 1


def test_key_does_not_depend_on_the_order_of_options():
    options = {"heads": 6, "activation": "gelu", "init": "normal"}
    turned = dict(reversed(options.items()))
    assert RunConfig(method_options=options).key == RunConfig(method_options=turned).key


# --------------------------------------------------------------------------------------------- method, size and recipe


def test_sizes():
    """Ledger A27: the budget gives the paper's 204 on BERT-base (of the backbone's known shape), 120 on MiniLM."""
    assert RunConfig(backbone="bert-base-uncased").resolved_method() == METHODS["pals-204"]
    assert RunConfig().resolved_method().size == 120
    assert RunConfig(size="paper").resolved_method().size == 204
    method = RunConfig(size=60, method_options={"heads": 6}).resolved_method()
    assert (method.size, method.heads) == (60, 6)
    assert RunConfig(method="shared").resolved_method() == METHODS["shared"]
    with pytest.raises(ValueError, match="size 100 of 'pals-204' is not divisible by its 12 heads"):
        RunConfig(size=100).resolved_method()


def test_size_unsaid_follows_the_recipe():
    """The released code's sizes are part of what it does; everywhere else the paper's budget decides."""
    for options, said in [({}, "budget"), ({"recipe": "released"}, "paper"), ({"preset": "paper"}, "paper")]:
        config = RunConfig.from_dict(options)
        assert config.resolved_size == said and config.key == replace(config, size=said).key
    assert RunConfig(recipe="released").resolved_method().size == 204
    assert replace(RunConfig(recipe="released"), recipe="paper").key == RunConfig().key
    assert RunConfig(recipe="released", size="budget").resolved_method().size == 120


def released(method, size="paper", **options):
    return RunConfig(method=method, size=size, recipe="released", method_options=options).resolved_method()


def test_released_methods():
    """Ledger D6 to D9 and D15 on the rows of METHODS; what is given by name stays."""
    pal = released("pals-204")
    assert (pal.heads, pal.activation, pal.init) == (6, "gelu", "normal")
    assert released("pals-204", heads=12).heads == 12
    assert released("pals-204", activation="identity").activation == "identity"
    houlsby = released("houlsby-64")
    assert (houlsby.size, houlsby.second, houlsby.freeze) == (50, "parallel", "backbone but norms")
    assert released("houlsby-64", size=64).size == 64  # given as a number
    assert released("attention-on-top-204").heads == 12
    assert all(released(name) == METHODS[name] for name in ("shared", "fine-tuned"))
    assert released("feature-extraction").freeze == "backbone but norms"


def test_paper_leaves_methods_alone():
    for name, method in METHODS.items():
        assert RunConfig(method=name, size="paper").resolved_method() == method


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("recipe", ["paper", "released"])
@pytest.mark.parametrize("size", ["paper", "budget"])
def test_every_method_resolves(method, recipe, size):
    resolved = RunConfig(method=method, recipe=recipe, size=size, backbone="tiny", tasks=("rte",)).resolved_method()
    assert resolved.name == method
    if getattr(resolved, "heads", None):
        assert resolved.size % resolved.heads == 0


# ---------------------------------------------------------------------------------------------------------------- plan


def test_plan_follows_the_config():
    config = RunConfig(tasks=("rte", "cola"), schedule="round-robin", steps=5, batch_size=3, seed=4, alpha_parts=2)
    plan = make_plan(config, {"rte": 10, "cola": 30})
    assert (plan.steps, plan.batch_size, plan.seed, plan.epochs) == (5, 3, 4, 2)
    assert plan.tasks == ["rte", "cola", "rte", "cola", "rte"]


def test_heads_that_divide_the_budgets_size_need_not_divide_the_published_one():
    """24 divide MiniLM's 120 (5 wide) and not BERT-base's 204; of a size that is given they must be divisors."""
    method = RunConfig(method_options={"heads": 24}).resolved_method()
    assert (method.size, method.heads) == (120, 24)
    with pytest.raises(ValueError, match="size 204 of 'pals-204' is not divisible by its 24 heads"):
        RunConfig(size="paper", method_options={"heads": 24})
