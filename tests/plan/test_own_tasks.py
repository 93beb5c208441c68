"""Tasks of one's own in a run: files of any columns, beside GLUE's, each from a source of its own."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from palslib import RunConfig, train
from palslib.data.tasks import TASKS, load_rows, task_from_file
from palslib.plan.content import run_content
from tests.training.small_runs import save_tiny

MOODS = [(f"I feel {w} today, number {i}.", m) for i in range(20) for w, m in (("fine", "good"), ("ill", "bad"))]


def config(*tasks, folder=None, **changes) -> RunConfig:
    about = {"method": "pals-204", "size": 12, "backbone": "tiny", "steps": 4, "batch_size": 4, "progress": False}
    return RunConfig(**about | {"tasks": tasks, "folder": folder and str(folder)} | changes)


@pytest.fixture
def moods(tmp_path):
    path = tmp_path / "mood.csv"
    pd.DataFrame(MOODS, columns=["tweet", "feeling"]).to_csv(path, index=False)
    return path


def test_a_file_beside_glues_tasks_in_one_run(moods, tmp_path):
    """RTE from the synthetic GLUE, moods from a CSV file of other columns, likeness from a Parquet file with scores."""
    pairs = pd.DataFrame({"one": [f"a b {i}" for i in range(27)], "other": ["a", "c d e", "f"] * 9})
    pairs.assign(alike=[0.5, 7.25, 10.0] * 9).to_parquet(tmp_path / "pairs.parquet")
    likeness = task_from_file(tmp_path / "pairs.parquet", ("one", "other"), "alike", name="likeness", score=True)
    mood = task_from_file(moods, "tweet", "feeling")
    record = train(config("rte", mood, likeness, folder=tmp_path / "run", schedule="round-robin"))
    scores = record["results"]["last"]["scores"]
    assert list(scores) == ["rte", "mood", "likeness"] and set(scores["likeness"]) == {"pearson", "spearman"}
    assert record["data"]["train"]["mood"] == len(load_rows(mood)) and str(tmp_path) not in json.dumps(record)
    assert record.model().predict("I feel fine.", "mood")["label"][0] in ("good", "bad")


def test_a_config_with_own_tasks_is_json_and_has_a_key_of_its_own(moods):
    mood = task_from_file(moods, "tweet", "feeling")
    given = config("rte", mood)
    assert given.tasks == ("rte", "mood") and given.task("mood") == mood and given.task("rte") == TASKS["rte"]
    again = RunConfig.from_dict(json.loads(json.dumps(vars(given))))
    assert again == given and again.key == given.key
    assert config("rte", "cola").key != given.key
    assert config(TASKS["rte"]) == config("rte")


def test_a_file_with_the_usual_columns_needs_its_name_alone(tmp_path):
    """As on a command line: --tasks rte m.tsv; another file of that name is another task."""
    for folder in ("old", "new"):
        (tmp_path / folder).mkdir()
        pd.DataFrame(MOODS, columns=["text", "label"]).to_csv(tmp_path / folder / "m.tsv", sep="\t", index=False)
    old, new = (str(tmp_path / folder / "m.tsv") for folder in ("old", "new"))
    named = config("rte", old)
    assert (named.tasks, named.own, named.task("m").labels) == (("rte", "m"), {"m": old}, ("bad", "good"))
    fields = {"labels": ["bad", "good"], "data": old}  # the separator is that of the ending
    assert load_rows(config("mood", own={"mood": fields}).task("mood"), split="all")["label"].nunique() == 2
    for other in (new, task_from_file(new)):
        anew = replace(named, tasks=("rte", other))
        assert "new" in str(anew.own["m"])
    with pytest.raises(ValueError, match="each only once"):
        config(old, "m")


def test_tasks_of_one_name_and_file_but_other_columns_have_hashes_of_their_own(tmp_path):
    rows = [(text, text[::-1], label) for text, label in MOODS]
    path = tmp_path / "mood.csv"
    pd.DataFrame(rows, columns=["a", "b", "label"]).to_csv(path, index=False)

    def content(column, known, **changes):
        fields = {"texts": [column], "labels": ("bad", "good"), "data": str(path)} | changes
        return run_content(config("mood", own={"mood": fields}), known)

    known = {}
    first, second = content("a", known), content("b", known)
    assert first["mood/train"] != second["mood/train"] and second == content("b", {})
    path.write_text(path.read_text().replace(",bad", ",awful"))  # the class numbers of its rows are the same
    renamed = content("b", {}, labels=("awful", "good"))
    assert [name for name, value in renamed.items() if value != second[name]] == ["mood/classes"]
    pd.DataFrame(MOODS, columns=["text", "label"]).to_csv(path, index=False)  # found in a folder, named by nobody
    found = [run_content(config("mood", data=str(tmp_path)), {})]
    path.write_text(path.read_text().replace(",bad", ",awful"))
    found += [run_content(config("mood", data=str(tmp_path)), {})]
    assert [name for name, value in found[0].items() if value != found[1][name]] == ["mood/classes"]


@pytest.mark.parametrize("shape", ["a file as a task", "fields of a task", "folders of data and weights"])
def test_a_moved_project_resumes(tmp_path, monkeypatch, shape):
    """Its data and weights count by name and content, wherever they lie, and a note beside the weights does not."""

    def settings(home) -> RunConfig:
        monkeypatch.setenv("PALSLIB_RUNS", str(home / "runs"))
        data, file = str(home / "data"), str(home / "data" / "mood.csv")
        if shape == "a file as a task":
            return config(file, keep="last")
        if shape == "fields of a task":
            return config("mood", own={"mood": {"labels": ["bad", "good"], "data": file}}, keep="last")
        return config("mood", data=data, backbone=f"minbert:{home}/bert", keep="last")

    first, second = tmp_path / "first", tmp_path / "second"
    (first / "data").mkdir(parents=True)
    frame = pd.DataFrame(MOODS, columns=["text", "label"])
    frame.to_csv(first / "data" / "mood.csv", index=False)
    save_tiny(first / "bert")
    begun = train(settings(first), on_step=lambda run: run.step < 2)  # in a folder with the key in its name
    first.rename(second)
    (second / "bert" / "note.md").write_text("mine")
    for name in ("palslib.lock", "model.safetensors"):  # another run, whose folder lies among the data
        (second / "data" / "run").mkdir(exist_ok=True)
        (second / "data" / "run" / name).touch()
    again = train(settings(second))
    assert begun["key"] == again["key"] and len(list((second / "runs" / "train").iterdir())) == 1
    frame[::-1].to_csv(second / "data" / "mood.csv", index=False)
    assert settings(second).key != again["key"]  # of other content: another run


@pytest.mark.parametrize(
    ("tasks", "own", "named"),
    [
        (["rte"], {"rte": "rte.csv"}, "own: 'rte'"),
        (["mood"], {"mood": 3}, "own must be .* 3"),
        (["mood"], {"mood": {"text": ["a"]}}, "'mood' 'text'"),
        (["mood"], {"mood": {"texts": ["tweet"]}}, r"'mood' needs labels \(its classes\) or metrics"),
        (["mood"], {"mood": "nothing.csv"}, "'nothing.csv'"),
        (["mood.csv"], {"mood": {"labels": ["good", "bad"], "data": "mood.csv"}}, "own says how 'mood' is read: in ta"),
        (TASKS, {"mood": "mood.csv"}, "own defines mood, but tasks still names GLUE's eight"),
    ],
)
def test_what_is_no_task_is_refused_by_name(tasks, own, named):
    with pytest.raises((ValueError, FileNotFoundError), match=named):
        config(*tasks, own=own)


def test_what_runs_write_below_a_data_folder_is_no_part_of_their_key(tmp_path, monkeypatch):
    monkeypatch.setenv("PALSLIB_RUNS", str(tmp_path / "runs"))
    pd.DataFrame(MOODS, columns=["text", "label"]).to_csv(tmp_path / "mood.csv", index=False)
    keys = []
    for name in ("runs/a/last/model.safetensors", "runs/b/answers.csv", "other.csv"):
        keys.append(config("mood", data=str(tmp_path)).key)
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text,label\n")
    assert keys[0] == keys[1] == keys[2] != config("mood", data=str(tmp_path)).key
