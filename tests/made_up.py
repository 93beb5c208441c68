"""Records of made-up runs, with the scores that a test needs."""

import json
from dataclasses import asdict

from palslib.plan.config import RunConfig


def record_of(scores: dict[str, dict], average: float, **settings) -> dict:
    """The record of a finished run with these settings, as it is read from its file: lists for tuples.

    Args:
        scores: task -> metric -> score, after the last step.
    """
    config = RunConfig(**settings)
    record = {
        "key": config.key,
        "status": "finished",
        "config": asdict(config),
        "method": config.resolved_method().to_dict(),
        "precision": "float32",
        "data": {"train": dict.fromkeys(config.tasks, 2_490)},
        "results": {"last": {"step": config.steps, "scores": scores, "dev_average": average}},
    }
    return json.loads(json.dumps(record))
