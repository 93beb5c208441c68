"""The expected duration of a grid: operations by closed form, divided by the rate measured in `make benchmark`.

A training step costs three forward passes over the word pieces of its texts, an evaluation one over all dev sets;
start-up and checkpoints are left out. Lengths and sizes are GLUE's (`data/glue.py`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from palslib.common.names import check_name
from palslib.data.glue import SIZES
from palslib.methods.backbone import Backbone
from palslib.methods.operations import count_operations
from palslib.plan.config import RunConfig, make_plan


def operations(config: RunConfig) -> float:
    """The multiply-adds of a run on GLUE's tasks, for training and evaluations."""
    for task in config.tasks:
        check_name("GLUE task (only these have sizes)", task, SIZES)
    method, sizes = config.resolved_method(), {task: SIZES[task].train for task in config.tasks}
    text = {t: count_operations(method, config.backbone, round(SIZES[t].pieces)).total(1) for t in config.tasks}
    if config.resolved_recipe().padding == "max_length":
        text = dict.fromkeys(text, count_operations(method, config.backbone, config.max_length).total(1))
    expected = make_plan(config, sizes).expected_steps()
    trained = sum(steps * config.batch_size * text[task] for task, steps in expected.items())
    evaluations = math.ceil(config.steps / (config.evaluate_every or config.steps)) + config.evaluate_first
    if config.inspect and method.adapted_layers(Backbone.of(config.backbone).num_layers):
        evaluations += 1  # with all that tasks add switched off
    return 3 * trained + evaluations * sum(SIZES[task].dev * text[task] for task in config.tasks)


def attained(benchmark: Mapping, backbone: str = "bert-base-uncased") -> float:
    """The multiply-adds per second of a training step with PALs in bf16, from a record of `make benchmark`, on a
    backbone of the same sizes, whatever its name (it may be a folder).

    Raises ValueError where the record has no such step.
    """
    wanted, shape = {"precision": "bf16", "method": "pals-204"}, replace(Backbone.of(backbone), name="")
    try:
        rows = [row for row in benchmark["parts"]["step"] if wanted.items() <= row.items()]
        row = next(row for row in rows if replace(Backbone.of(row["backbone"]), name="") == shape)
        product = benchmark["rates"]["bf16"]["median"] / 2  # of a matrix product, in multiply-adds
        return product * row["floor"] / row["seconds"]["median"]
    except (StopIteration, LookupError, TypeError, AttributeError, ArithmeticError):
        raise ValueError(f"not a record of `make benchmark` with a step of {backbone} and PALs in bf16") from None


def expected_hours(configs: Sequence[RunConfig], benchmark: Mapping) -> float:
    """The hours of all runs, one after the other, on the machine of a record of `make benchmark`."""
    return sum(operations(config) / attained(benchmark, config.backbone) for config in configs) / 3600
