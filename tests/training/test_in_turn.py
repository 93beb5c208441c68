"""Tasks one after another on a backbone that stays as it is."""

import numpy as np
import pytest
import torch
from small_runs import TURN, check_same, two_classes, weights

from palslib.bert.backbones import load_tokenizer
from palslib.data.tokens import some_rows, tokenise_task
from palslib.grid.clean import finished_runs, remove_weights
from palslib.model.multi_task import MultiTaskModel
from palslib.training.evaluation import predict
from palslib.training.in_turn import REPORT, best_weights, train_in_turn


def state_of(model, task):
    return {k: v for k, v in model.state_dict().items() if f".{task}." in k}


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    """CoLA, then RTE, then STS-B, of the form with own norms: their records, and the folder."""
    folder = tmp_path_factory.mktemp("in-turn")
    return train_in_turn(["cola", "rte", "stsb"], folder, "houlsby-64-not-shared", learning_rate=1e-2, **TURN), folder


def test_a_further_task_changes_no_bit_of_an_earlier_one(in_turn):
    """Outputs on CoLA's dev rows after each of the three runs; the second run did train something."""
    _, folder = in_turn
    after = [MultiTaskModel.from_pretrained(best_weights(folder / run)) for run in ("1-cola", "2-rte", "3-stsb")]
    assert [list(model.tasks) for model in after] == [["cola"], ["cola", "rte"], ["cola", "rte", "stsb"]]
    data = some_rows(tokenise_task("cola", load_tokenizer("tiny"), "synthetic", "validation"), 20)
    outputs = [predict(model, "cola", data) for model in after]
    assert all(np.array_equal(outputs[0], other) for other in outputs[1:])
    assert len({model.fingerprint() for model in after}) == 1  # all that tasks share
    fresh = MultiTaskModel.from_backbone("tiny", after[0].method, ["cola", "rte", "stsb"])
    for task in fresh.tasks:
        start, end = state_of(fresh, task), state_of(after[2], task)
        assert start.keys() == end.keys() and not any(torch.equal(start[name], end[name]) for name in start)


def test_the_settings_are_the_reports(in_turn):
    """2 epochs of 2 steps, evaluated after each; Adam with a rate that rises for 10 % of the steps, then falls to 0."""
    for record, task in zip(in_turn[0], ["cola", "rte", "stsb"], strict=True):
        config = record["config"]
        assert (config["tasks"], config["steps"]) == ([task], 4)
        assert [point["step"] for point in record["history"]] == [2, 4]
        assert (config["size"], config["weight_decay"], config["warmup"]) == ("paper", 0.0, 0.1)
        assert record["method"]["size"] == 64 and record["recipe"]["decay"] == "linear"
    assert REPORT["learning_rate"] == 3e-4


def test_a_run_that_was_killed_goes_on(in_turn, tmp_path):
    """Stopped in the second task's third step; called again, it ends with the weights of the run in one go. Finished
    tasks are found by their records, also where their weights were cleaned away."""
    about = TURN | {"learning_rate": 1e-2}
    tasks, method = ["cola", "rte"], "houlsby-64-not-shared"

    def on_step(run):
        return (run.config.tasks, run.step) != (("rte",), 3)

    stopped = train_in_turn(tasks, tmp_path, method, on_step=on_step, **about)
    assert [record["status"] for record in stopped] == ["finished", "stopped"]
    first = (tmp_path / "1-cola" / "record.json").read_bytes()
    records = train_in_turn(tasks, tmp_path, method, **about)
    assert (tmp_path / "1-cola" / "record.json").read_bytes() == first  # not trained anew
    check_same(weights(tmp_path / "2-rte", "best"), weights(in_turn[1] / "2-rte", "best"))
    remove_weights(finished_runs(tmp_path))
    assert train_in_turn(tasks, tmp_path, method, **about) == records


def test_an_epoch_is_once_through_the_data(tmp_path):
    """40 lines, 80 % to train on, some of these held out: of `n` rows in batches of 16, ceil(n / 16) steps, also
    if more are given."""
    two_classes(tmp_path / "mood.csv", rows=40)
    for run, (steps, held_out) in enumerate([(1_000, False), (None, True)]):
        about = TURN | {"epoch_steps": steps, "batch_size": 16, "held_out": held_out}
        (record,) = train_in_turn(["mood"], tmp_path / str(run), data=str(tmp_path), **about)
        rows, found = record["data"]["train"]["mood"], record["config"]
        once = -(-rows // 16)
        assert 16 < rows < 40 and (found["steps"], found["evaluate_every"]) == (2 * once, once)


def test_what_follows_from_the_epochs_is_not_given_beside_them(tmp_path):
    """Else it would be overridden without a word, or what the next task starts from would not be kept."""
    for options, message in (
        ({"steps": 5}, "leave out steps: epochs and epoch_steps decide"),
        ({"keep": "none"}, "leave out keep: epochs and epoch_steps decide"),
        ({"epoch_steps": 0}, "epoch_steps must be at least 1, not 0"),
        ({"tasks": ["rte", "rte"]}, r"tasks must name at least one task, each only once, not \['rte', 'rte'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            train_in_turn(**{"tasks": ["rte"], "folder": tmp_path} | TURN | options)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("method", "freeze"), [("houlsby-64", "backbone but norms"), ("pals-shared-across-tasks-204", "backbone")]
)
def test_a_method_that_trains_what_tasks_share_is_refused(method, freeze, tmp_path):
    options = {"size": 12, "method_options": {"freeze": freeze}} | TURN
    with pytest.raises(ValueError, match=r"trains parameters that all tasks read .*freeze='backbone'"):
        train_in_turn(["rte"], tmp_path, method, **options)


def test_more_tasks_after_earlier_ones(in_turn, tmp_path):
    """A run that starts from another one's weights, also of feature extraction, which trains a mix and a head."""
    start = best_weights(in_turn[1] / "1-cola")
    train_in_turn(["sst2"], tmp_path / "a", "houlsby-64-not-shared", start=start, **TURN)
    assert list(MultiTaskModel.from_pretrained(best_weights(tmp_path / "a" / "1-sst2")).tasks) == ["cola", "sst2"]
    # Weights are drawn before the first task, not again before the next; another task's factor is no concern of one.
    random = {"weights": "random", "patience": 2, "task_weights": {"rte": 2.0}, **TURN}
    train_in_turn(["sst2", "rte"], tmp_path / "b", "feature-extraction", **random)
    both = [weights(tmp_path / "b" / run, "best") for run in ("1-sst2", "2-rte")]
    check_same(*({k: v for k, v in of.items() if k.startswith("bert")} for of in both))
