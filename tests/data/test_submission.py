"""GLUE's eleven files: written, and read back as the model predicts."""

import zipfile
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest

from palslib.data.submission import GLUE_FILES, glue_predictions, write_submission
from palslib.data.synthetic import synthetic_split
from palslib.data.tasks import TASKS
from palslib.model.multi_task import MultiTaskModel


class Model:
    """Stands for a trained one: its answer depends on a text's length, so that every class occurs. GLUE's number of a
    class is its place in GLUE's list, whatever its place in the model is."""

    tasks = TASKS | {"cola": replace(TASKS["cola"], labels=TASKS["cola"].labels[::-1])}

    def predict(self, texts, name):
        lengths, labels = texts.iloc[:, -1].map(len), self.tasks[name].labels or (None,)
        return pd.DataFrame({"label": [labels[length % len(labels)] for length in lengths], "score": lengths / 7})


def mirror(folder, rows=12):
    """A folder laid out like nyu-mll/glue with test splits of `rows` unlabelled rows, whose `idx` begin at 100 and are
    not in order; AX too."""
    for task, columns in {**{t.name: t.texts for t in TASKS.values()}, "ax": ("premise", "hypothesis")}.items():
        parts = ("_matched", "_mismatched") if task == "mnli" else ("",)
        for part in parts:
            source = ("mnli", "validation_matched") if task == "ax" else (task, f"validation{part}")
            frame = synthetic_split(*source)[:rows][[*columns]].assign(label=-1, idx=range(99 + rows, 99, -1))
            (folder / task).mkdir(parents=True, exist_ok=True)
            frame.to_parquet(folder / task / f"test{part}-0.parquet", index=False)
    return str(folder)


@pytest.fixture(scope="module")
def submission(tmp_path_factory):
    """Folder and table of a submission of a small mirror."""
    folder = tmp_path_factory.mktemp("glue")
    return folder / "out", write_submission(Model(), folder / "out", mirror(folder / "mirror"))


def read(folder, name) -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}.tsv", sep="\t", dtype={"prediction": str}, keep_default_na=False)


def rows_of(count=2):
    """Predictions of class 0, or score 0, for every file."""
    return {name: pd.Series(0, index=range(count)) for name in GLUE_FILES}


def test_the_eleven_files_and_their_zip(submission):
    folder, table = submission
    names = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"]
    names = [f"{name}.tsv" for name in names]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "submission.zip"])
    with zipfile.ZipFile(folder / "submission.zip") as archive:
        assert archive.testzip() is None and archive.namelist() == names
        assert all(archive.read(name) == (folder / name).read_bytes() for name in names)
    assert table["file"].tolist() == names
    assert dict(zip(names, table["rows"], strict=True)) == {name: 12 for name in names} | {"WNLI.tsv": 146}
    assert table["official"].sum() == 426_309
    assert (folder / "RTE.tsv").read_text().startswith("index\tprediction\n100\t")
    assert read(folder, "WNLI").to_numpy().tolist() == [[i, "0"] for i in range(146)]  # the majority
    # AX has here the texts of MNLI's matched rows, and so the same answers.
    pd.testing.assert_frame_equal(read(folder, "AX"), read(folder, "MNLI-m"))


@pytest.mark.parametrize("name", [name for name in GLUE_FILES if name not in ("WNLI", "AX")])
def test_each_row_has_its_own_prediction(submission, name):
    """The data's `idx` fall from 111 to 100. Classes are named in some files, numbered in others."""
    file, written = GLUE_FILES[name], read(submission[0], name)
    task, split = TASKS[file.task], file.split.replace("test", "validation")
    answers = Model().predict(synthetic_split(task.name, split)[:12][[*task.texts]], task.name)[::-1]
    assert written["index"].tolist() == list(range(100, 112))
    if task.is_regression:
        assert written["prediction"].astype(float).tolist() == pytest.approx(answers["score"].clip(0, 5), abs=6e-4)
        return
    labels = written["prediction"] if file.names else written["prediction"].map(lambda x: task.labels[int(x)])
    assert labels.tolist() == answers["label"].tolist() and labels.nunique() > 1


def test_a_whole_rehearsal_on_synthetic_data(tmp_path):
    """MNLI's matched rows stand for AX; there are no test splits."""
    model = MultiTaskModel.from_backbone("tiny", "shared", tuple(TASKS))
    table = write_submission(model, tmp_path, "synthetic", "validation")
    assert table["rows"].tolist() == [120] * 9 + [146, 120]
    assert (tmp_path / "AX.tsv").read_bytes() == (tmp_path / "MNLI-m.tsv").read_bytes()
    with pytest.raises(ValueError, match=r"unknown split of cola 'test'.*Valid: train, validation"):
        write_submission(model, tmp_path / "other", "synthetic")


def test_classes_by_name_or_number_are_the_same_bytes(tmp_path):
    """So are two calls, zip and all. Scores are from 0 to 5, and in order."""
    scores = {"STS-B": pd.Series([-0.2, 7.0, 2.34567], index=[4, 2, 3])}
    named = {"MNLI-m": {0: "neutral", 1: "contradiction"}, "CoLA": {0: "acceptable"}}
    write_submission(rows_of() | scores | {"MNLI-m": {1: 2, 0: 1}, "CoLA": {0: 1}}, tmp_path / "a")
    write_submission(rows_of() | scores | named, tmp_path / "b")
    assert (tmp_path / "a" / "STS-B.tsv").read_text() == "index\tprediction\n2\t5.000\n3\t2.346\n4\t0.000\n"
    assert (tmp_path / "a" / "MNLI-m.tsv").read_text() == "index\tprediction\n0\tneutral\n1\tcontradiction\n"
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_what_is_there_is_never_replaced(tmp_path):
    """Nothing is written before; a link is not followed, wherever it leads."""
    (tmp_path / "QQP.tsv").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"QQP\.tsv exists: give another folder"):
        write_submission(rows_of(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["QQP.tsv"]


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("CoLA", {0: 2}, r"CoLA: 2 is not a class \(valid: unacceptable, acceptable, or their numbers from 0\)"),
        ("STS-B", {0: float("nan")}, "STS-B: nan is not a finite score"),
        ("RTE", pd.Series([0, 1], index=[3, 3]), r"RTE: indices must be row numbers from 0, each once, not \[3, 3\]"),
        ("CoLA", {"a": 0, 2: 1}, "CoLA: indices must be row numbers"),
    ],
)
def test_bad_predictions(tmp_path, name, values, message):
    with pytest.raises(ValueError, match=message):
        write_submission(rows_of() | {name: values}, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ({"sentence": ["a", None], "idx": [0, 1]}, r"row 1 .*, column 'sentence': .* is not a text"),
        ({"sentence": ["a"]}, "no column 'idx' for task 'cola'; it has: "),
    ],
)
def test_what_is_wrong_with_a_test_split_is_named_before_anything_is_predicted(monkeypatch, frame, message):
    monkeypatch.setattr("palslib.data.submission.read_repository", lambda *_: pd.DataFrame(frame))
    with pytest.raises(ValueError, match=f"own cola/test.*{message}"):
        glue_predictions(SimpleNamespace(tasks={"cola": TASKS["cola"]}), "own")
