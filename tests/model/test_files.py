"""Predictions and scores for files, from Python and as `palslib predict` and `palslib evaluate`."""

import io
from dataclasses import replace

import pandas as pd
import pytest
from shapes import randomise

from palslib import MultiTaskModel, RunConfig, Task, load_rows, train
from palslib.__main__ import main

MOOD = Task("mood", ("tweet",), ("bad", "good", "so-so"), label="feeling", files="mood.csv")
ROWS = pd.DataFrame({"id": [f"0{i}" for i in range(30)], "tweet": [f"It rains, {'x' * i}." for i in range(30)]})
LABELLED = ROWS.assign(feeling=[MOOD.labels[i % 3] for i in range(30)])


@pytest.fixture(scope="module")
def model():
    made = MultiTaskModel.from_backbone("tiny", "pals-204", [MOOD, "stsb"], size=12, heads=3)
    randomise(made)
    return made


@pytest.fixture(scope="module")
def saved(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    model.save_pretrained(folder / "model")
    return folder


def called(capsys, *words) -> pd.DataFrame:
    """What a command prints as CSV."""
    assert main([*map(str, words)]) == 0
    return pd.read_csv(io.StringIO(capsys.readouterr().out), dtype={"id": str}, keep_default_na=False)


def test_a_file_is_predicted(model, saved, tmp_path, capsys):
    """All its columns, the label by name and the probability of each class; labels are not needed. A score has none."""
    ROWS.to_csv(tmp_path / "new.csv", index=False)
    found = called(capsys, "predict", saved / "model", tmp_path / "new.csv", "--task", "mood")
    answers = model.predict(ROWS["tweet"].tolist(), "mood")
    assert found[["id", "tweet"]].equals(ROWS) and found["predicted"].tolist() == answers["label"].tolist()
    assert list(found)[2:] == ["predicted", "p(bad)", "p(good)", "p(so-so)"]
    assert found.iloc[:, 3:].to_numpy() == pytest.approx(pd.DataFrame(answers["probabilities"].tolist()).to_numpy())
    pairs = ROWS.assign(other="It is wet.")
    pairs.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    found = model.predict_file(tmp_path / "new.jsonl", "stsb", text=("tweet", "other"))
    expected = model.predict(list(zip(pairs["tweet"], pairs["other"], strict=True)), "stsb")["score"]
    assert list(found) == [*pairs, "predicted"] and found["predicted"].tolist() == pytest.approx(expected.tolist())


def test_a_task_s_file_and_a_run_s_folder_are_models(model, saved, tmp_path, capsys):
    """In the latter, balanced class weights are numbers by now."""
    LABELLED.to_csv(tmp_path / "mood.csv", index=False)
    path = model.save_task("mood", tmp_path)
    alone = called(capsys, "predict", path, tmp_path / "mood.csv", "--backbone", saved / "model")
    assert alone["predicted"].tolist() == model.predict_file(tmp_path / "mood.csv", "mood")["predicted"].tolist()
    about = {"backbone": "tiny", "steps": 2, "progress": False, "folder": str(tmp_path / "run"), "keep": "last"}
    task = replace(MOOD, data=str(tmp_path / "mood.csv"), class_weights="balanced")
    expected = train(RunConfig(tasks=(task,), **about)).model().predict_file(tmp_path / "mood.csv")["p(bad)"]
    weights = MultiTaskModel.from_pretrained(tmp_path / "run" / "last").tasks["mood"].loss_weights  # of its 80 %
    assert weights == pytest.approx(task.balanced(load_rows(task)["label"].to_numpy()).loss_weights)
    for folder in (tmp_path / "run", tmp_path / "run" / "last"):
        found = called(capsys, "predict", folder, tmp_path / "mood.csv")
        assert found["p(bad)"].tolist() == pytest.approx(expected.tolist())


def test_an_output_file_is_new(saved, tmp_path, capsys):
    files = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    for name, table in zip(files, [ROWS, ROWS.assign(more=1)], strict=True):
        table.to_csv(name, index=False)
    (out := tmp_path / "out.csv").write_text("mine")
    call = ["predict", str(saved / "model"), *files, "--task", "mood", "--output", str(out)]
    assert main(call) == 2 and "does not exist yet" in capsys.readouterr().err and out.read_text() == "mine"
    out.unlink()
    assert main(call) == 0 and capsys.readouterr().out == ""
    assert pd.read_csv(out)["file"].tolist() == [name for name in files for _ in range(30)]
    assert list(pd.read_csv(out))[:6] == ["file", "id", "tweet", "more", "predicted", "p(bad)"]


def test_files_are_scored_side_by_side(model, saved, tmp_path, capsys, monkeypatch):
    """Or splits of one, divided as in training; on screen, rows without a label are an error, or left out."""
    files = tmp_path / "mood-validation.csv", tmp_path / "mood-test.csv"
    LABELLED.to_csv(files[0], index=False)
    LABELLED[:20].to_csv(files[1], index=False)
    found = model.evaluate_file(*files, task="mood")
    right = model.predict_file(files[0], "mood")["predicted"].to_numpy() == LABELLED["feeling"].to_numpy()
    assert found.loc["rows"].tolist() == [30, 20]
    assert found.loc["accuracy"].iloc[0] == pytest.approx(100 * right.mean())
    assert {"macro_f1", "precision (bad)", "recall (so-so)"} < {*found.index}
    splits = model.evaluate_file(tmp_path / "mood-{split}.csv", task="mood", splits=("validation", "test"))
    assert splits.to_numpy().tolist() == found.to_numpy().tolist()
    call = ["evaluate", str(saved / "model"), str(files[0]), "--task", "mood"]
    (tmp_path / "test").mkdir()
    monkeypatch.chdir(tmp_path)  # where a split's name is a folder's, too
    assert main([*call, "--splits", "train", "test"]) == 0
    head, rows, *_ = capsys.readouterr().out.splitlines()
    assert "(train)" in head and "(test)" in head and sum(map(int, rows.split()[1:])) < 30
    LABELLED.assign(feeling=["", *LABELLED["feeling"][1:]]).to_csv(files[0], index=False)
    assert main(call) == 1 and "mood-validation.csv, line 2, column 'feeling': ''" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="line"):
        assert main([*call, "--skip-unlabelled"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split() == ["rows", "29"]


@pytest.mark.parametrize(
    ("content", "task", "message"),
    [
        ("text\na\n", "mood", "x.csv: no column 'tweet'"),
        ("tweet\na\n", None, r"the model has 2 tasks: name one \(task\). Valid: mood, stsb"),
        ("tweet,predicted\na,b\n", "mood", "x.csv already has a column 'predicted'"),
        ("tweet\n", "mood", "x.csv: there are no rows"),
    ],
)
def test_what_is_refused(model, tmp_path, content, task, message):
    (tmp_path / "x.csv").write_text(content)
    with pytest.raises(ValueError, match=message):
        model.predict_file(tmp_path / "x.csv", task)


def test_a_file_is_read_as_in_training_where_its_ending_is_the_same(model, tmp_path):
    """With the separator, quotation marks and encoding of the task's files; another kind of file with its own. A task
    that a config describes knows its file's ending, too, and so does a saved one."""
    own = replace(MOOD, separator=";", encoding="cp1252", files="", data="mood.csv")
    task = RunConfig(tasks=(own,)).task("mood")
    other, plain = (MultiTaskModel(model.backbone, model.method, [t], tokenizer=model.tokenizer) for t in (task, own))
    plain.save_pretrained(tmp_path / "plain")
    (tmp_path / "a.csv").write_bytes("id;tweet\n1;für\n".encode("cp1252"))
    (tmp_path / "b.tsv").write_text("id\ttweet\n1\tfür\n")
    (tmp_path / "c.csv").write_text("tweet|id\n“für|1\n")
    for name, reading in (("a.csv", {}), ("b.tsv", {}), ("c.csv", {"separator": "|", "encoding": "utf-8"})):
        for one in (other, MultiTaskModel.from_pretrained(tmp_path / "plain")):
            assert one.predict_file(tmp_path / name, **reading)["tweet"][2].endswith("für")
    with pytest.raises(ValueError, match="unknown option 'seperator': did you mean 'separator'"):
        other.predict_file(tmp_path / "a.csv", seperator=",")
