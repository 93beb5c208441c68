"""Transfer and forgetting among tasks that are trained one after another: the matrix R, and three measures of it.

R[i, j] is the score on task j, in percent, after training on tasks 1 to i; b[j] is the score before any training
(Lopez-Paz & Ranzato 2017, section 2, equations 2 to 4).
"""

import numpy as np
import pandas as pd

from palslib.data.metrics import dev_average, main_scores


def accuracy_matrix(record: dict) -> pd.DataFrame:
    """R of a run with the schedule `sequential`, (T, T): a row for each task trained, a column for each evaluated.

    The score is each task's first metric. Raises ValueError for a run of another schedule, and for one that was not
    evaluated at the end of every task (`steps` a multiple of the number of tasks, and `evaluate_every` = steps /
    tasks), naming the steps that are missing.
    """
    tasks, steps = list(record["config"]["tasks"]), record["config"]["steps"]
    if (schedule := record["config"]["schedule"]) != "sequential":
        raise ValueError(f"the run must train its tasks one after another (schedule 'sequential'), not {schedule!r}")
    ends = [-(-(i + 1) * steps // len(tasks)) for i in range(len(tasks))]
    points = {point["step"]: main_scores(point["scores"]) for point in record["history"]}
    if missing := [end for end in ends if end not in points]:
        where = f"at steps {missing}, where tasks end, only at {[*points]} (set evaluate_every)"
        raise ValueError(f"{record.get('file', 'the run')}: no evaluation {where}")
    return pd.DataFrame([points[end] for end in ends], index=pd.Index(tasks, name="after"))[tasks]


def transfer_measures(record: dict) -> dict[str, float]:
    """Three measures of a run:

        average    1/T Σ_j R[T, j]                        the mean score on all tasks at the end, for any schedule
        backward   1/(T-1) Σ_{j<T} (R[T, j] - R[j, j])    effect of later tasks on earlier ones; below 0: forgetting
        forward    1/(T-1) Σ_{j>1} (R[j-1, j] - b[j])     effect of earlier tasks on later ones, not yet trained

    The last two are NaN if tasks are mixed or there is only one, and `forward` is also NaN without `evaluate_first`.
    """
    tasks, last = list(record["config"]["tasks"]), record["results"]["last"]
    measures = {"average": dev_average(last["scores"]), "backward": np.nan, "forward": np.nan}
    if record["config"]["schedule"] == "sequential" and len(tasks) > 1:
        R, first = accuracy_matrix(record).to_numpy(), record["history"][0]
        measures["backward"] = float((R[-1] - R.diagonal())[:-1].mean())
        if first["step"] == 0:
            b = pd.Series(main_scores(first["scores"]))[tasks].to_numpy()
            measures["forward"] = float((R.diagonal(1) - b[1:]).mean())
    return measures
