"""Tasks of one's own in a run: files of any columns, beside GLUE's, each from a source of its own."""

import json
from dataclasses import replace

import pandas as pd
import pytest
import torch

from palslib import RunConfig, train
from palslib.data.tasks import TASKS, load_rows, task_from_file, task_from_frame
from palslib.plan.content import run_content

MOODS = [(f"I feel {w} today, number {i}.", m) for i in range(20) for w, m in (("fine", "good"), ("ill", "bad"))]


@pytest.fixture
def moods(tmp_path):
    path = tmp_path / "mood.csv"
    pd.DataFrame(MOODS, columns=["tweet", "feeling"]).to_csv(path, index=False)
    return path


def config(*tasks, folder=None, **changes) -> RunConfig:
    about = {"method": "pals-204", "size": 12, "backbone": "tiny", "steps": 4, "batch_size": 4, "progress": False}
    return RunConfig(**about | {"tasks": tasks, "folder": folder and str(folder)} | changes)


def test_a_file_beside_glues_tasks_in_one_run(moods, tmp_path):
    """RTE from the synthetic GLUE, moods from a CSV file of other columns, likeness from a Parquet file with scores."""
    pairs = pd.DataFrame({"one": ["a b", "c d", "e f"] * 9, "other": ["a", "c d e", "f"] * 9})
    pairs["alike"] = [0.5, 7.25, 10.0] * 9
    pairs["one"] += [f" {i}" for i in range(27)]
    pairs.to_parquet(tmp_path / "pairs.parquet")
    likeness = task_from_file(tmp_path / "pairs.parquet", ("one", "other"), "alike", name="likeness", score=True)
    assert (likeness.labels, likeness.scale, likeness.metrics[0]) == ((), 10.0, "pearson")
    mood = task_from_file(moods, "tweet", "feeling")
    record = train(config("rte", mood, likeness, folder=tmp_path / "run", schedule="round-robin"))
    scores = record["results"]["last"]["scores"]
    assert list(scores) == ["rte", "mood", "likeness"] and set(scores["likeness"]) == {"pearson", "spearman"}
    assert record["data"]["train"]["mood"] == len(load_rows(mood)) and str(tmp_path) not in json.dumps(record)
    said = record.model().predict("I feel fine.", "mood")
    assert set(mood.labels) == {"good", "bad"} and said["label"][0] in mood.labels


def test_a_config_with_own_tasks_is_json_and_has_a_key_of_its_own(moods):
    mood = task_from_file(moods, "tweet", "feeling")
    given = config("rte", mood)
    assert given.tasks == ("rte", "mood") and given.task("mood") == mood and given.task("rte") == TASKS["rte"]
    again = RunConfig.from_dict(json.loads(json.dumps(vars(given))))
    assert again == given and again.key == given.key
    assert config("rte", "cola").key != given.key
    assert config(TASKS["rte"]) == config("rte")
    fields = {"texts": ["tweet"], "label": "feeling", "labels": ["bad", "good"], "data": str(moods)}
    assert config("mood", own={"mood": fields}).task("mood").data == str(moods)


def test_a_file_with_the_usual_columns_needs_its_name_alone(tmp_path):
    frame = pd.DataFrame(MOODS, columns=["text", "label"])
    frame.to_csv(tmp_path / "m.tsv", sep="\t", index=False)
    fields = {"labels": ["bad", "good"], "data": str(tmp_path / "m.tsv")}  # the separator is that of the ending
    assert load_rows(config("mood", own={"mood": fields}).task("mood"), split="all")["label"].nunique() == 2
    found = config("mood", "rte", own={"mood": str(tmp_path / "m.tsv")})
    assert found.task("mood").labels == ("bad", "good") and found.task("mood").name == "mood"
    named = config("rte", str(tmp_path / "m.tsv"))  # as on a command line: --tasks rte m.tsv
    (tmp_path / "new").mkdir()
    frame.to_csv(tmp_path / "new" / "m.tsv", sep="\t", index=False)
    for other in (str(tmp_path / "new" / "m.tsv"), task_from_file(tmp_path / "new" / "m.tsv")):  # of the same name
        anew = replace(named, tasks=("rte", other))
        assert "new" in str(anew.own["m"]) and anew.keys[1] != named.keys[1]
    assert named.tasks == ("rte", "m") and named.own == {"m": str(tmp_path / "m.tsv")}
    assert named.task("m").labels == ("bad", "good")
    (tmp_path / "r.csv.tsv").write_text("text\tlabel\na\tx\nb\ty\n")  # a name like a file's stays this task's
    found = config(str(tmp_path / "r.csv.tsv"))
    assert replace(found, steps=3).own == found.own == {"r.csv": str(tmp_path / "r.csv.tsv")}
    (tmp_path / "c.tsv").write_text("text,label\na,x\nb,y\n")
    assert config(task_from_file(tmp_path / "c.tsv", separator=",")).task("c").separator == ","
    with pytest.raises(ValueError, match="each only once"):
        config(str(tmp_path / "m.tsv"), "m")


def test_tasks_of_one_name_and_file_but_other_columns_have_hashes_of_their_own(tmp_path):
    rows = [(text, text[::-1], label) for text, label in MOODS]
    pd.DataFrame(rows, columns=["a", "b", "label"]).to_csv(tmp_path / "mood.csv", index=False)
    fields = {"labels": ("bad", "good"), "data": str(tmp_path / "mood.csv")}
    runs = [config("mood", own={"mood": {"texts": [column], **fields}}) for column in "ab"]
    known = {}
    first, second = (run_content(run, known) for run in runs)
    assert first["mood/train"] != second["mood/train"] and second == run_content(runs[1], {})
    renamed = {"texts": ["b"], **fields, "labels": ("awful", "good")}  # the class numbers of its rows are the same
    (tmp_path / "mood.csv").write_text((tmp_path / "mood.csv").read_text().replace(",bad", ",awful"))
    assert [
        name for name, value in run_content(config("mood", own={"mood": renamed}), {}).items() if value != second[name]
    ] == ["mood/classes"]


def test_a_table_in_memory_is_written_once(tmp_path, monkeypatch):
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path))
    frame = pd.DataFrame(MOODS, columns=["tweet", "feeling"])
    tasks = [task_from_frame(frame, "mood", "tweet", "feeling") for _ in range(2)]
    assert tasks[0] == tasks[1] and len(list((tmp_path / "data").iterdir())) == 1
    assert len(load_rows(tasks[0])) + len(load_rows(tasks[0], split="validation")) < len(frame)
    assert task_from_frame(frame[:30], "mood", "tweet", "feeling").data != tasks[0].data
    mixed = frame.assign(extra=[["a", "list"] if i % 2 else 3 for i in range(len(frame))])  # any cells, but not columns
    assert task_from_frame(mixed, "mood", "tweet", "feeling") == tasks[0]
    with pytest.raises(ValueError, match="task 'mood': column 'tweet' occurs twice"):
        task_from_frame(frame.set_axis(["tweet", "tweet"], axis=1), "mood", "tweet", "feeling")


def test_a_file_that_no_task_would_read_is_refused():
    with pytest.raises(ValueError, match="own defines mood, but tasks still names GLUE's eight"):
        RunConfig(own={"mood": "mood.csv"})


@pytest.mark.parametrize("shape", ["a file as a task", "fields of a task"])
def test_a_moved_project_resumes(tmp_path, monkeypatch, shape):
    """Its data count by name and content, wherever they lie; a run of an earlier version is found by their path."""

    def settings(home) -> RunConfig:
        monkeypatch.setenv("PALSLIB_RUNS", str(home / "runs"))
        file = str(home / "data" / "mood.csv")
        if shape == "a file as a task":
            return config(file, keep="best")
        return config("mood", own={"mood": {"labels": ["bad", "good"], "data": file}}, keep="best")

    first, second = tmp_path / "first", tmp_path / "second"
    (first / "data").mkdir(parents=True)
    frame = pd.DataFrame(MOODS, columns=["text", "label"])
    frame.to_csv(first / "data" / "mood.csv", index=False)
    monkeypatch.chdir(first)
    record = train(replace(settings(first), folder="runs/mine"))
    monkeypatch.chdir(tmp_path)
    weights = record.model("best").state_dict()
    begun = train(settings(first), on_step=lambda run: run.step < 2)  # in a folder with the key in its name
    first.rename(second)
    again = train(settings(second), on_step=lambda run: run.step > 2)
    assert again == record | {name: again[name] for name in ("seconds", "tokens_per_second", "weights")}
    assert begun["key"] == again["key"] and len(list((second / "runs" / "train").iterdir())) == 1
    assert all(torch.equal(value, weights[name]) for name, value in again.model("best").state_dict().items())
    now, (key, earlier) = settings(second), settings(second).keys
    again.folder.rename(again.folder.with_name(again.folder.name.replace(key, earlier)))
    (now.found_in(second / "runs" / "train") / "record.json").write_text(json.dumps(again | {"key": earlier}))
    assert train(now)["key"] == earlier
    frame[::-1].to_csv(second / "data" / "mood.csv", index=False)
    assert settings(second).key != key  # of other content: another run
    with pytest.raises(ValueError, match="another run, which differs in mood/train"):
        train(replace(settings(second), folder=str(second / "runs" / "mine")))


@pytest.mark.parametrize(
    ("own", "named"),
    [
        ({"rte": "rte.csv"}, "own: 'rte'"),
        ({"mood": 3}, "own must be .* 3"),
        ({"mood": {"text": ["a"]}}, "'mood' 'text'"),
        ({"mood": {"texts": ["tweet"], "data": "mood.csv"}}, r"'mood' needs labels \(its classes\) or metrics"),
        ({"mood": "nothing.csv"}, "'nothing.csv'"),
    ],
)
def test_what_is_no_task_is_refused_by_name(own, named):
    with pytest.raises((ValueError, FileNotFoundError), match=named):
        config(*own, own=own)
