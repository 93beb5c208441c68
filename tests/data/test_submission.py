"""GLUE's eleven files: written, read back, and scored as the model itself is."""

import zipfile
from functools import cache
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from shapes import randomise

from palslib.bert.backbones import load_tokenizer
from palslib.data.metrics import METRICS
from palslib.data.submission import GLUE_FILES, glue_predictions, write_submission
from palslib.data.synthetic import synthetic_split
from palslib.data.tasks import TASKS, load_rows
from palslib.data.tokens import tokenise_task
from palslib.model.multi_task import MultiTaskModel
from palslib.training.evaluation import evaluate, predict

tokenizer = cache(lambda: load_tokenizer("tiny"))


@pytest.fixture(scope="module")
def model():
    """A model of the tiny backbone; heads are shifted and scaled so that logits vary and every class occurs."""
    model = MultiTaskModel.from_backbone("tiny", "attention-on-top-204", tuple(TASKS), size=12, heads=3)
    randomise(model.adaptations)
    for task in TASKS.values():
        data = tokenise_task(task, tokenizer(), "synthetic", task.evaluation[0])
        logits = torch.from_numpy(predict(model, task.name, data))
        head, mean, std = model.heads[task.name], logits.mean(0), logits.std(0)
        with torch.no_grad():
            head.weight.div_(std[:, None])
            head.bias.sub_(mean).div_(std)
    return model


def mirror(folder, rows=12):
    """A folder laid out like nyu-mll/glue with test splits of `rows` unlabelled rows, whose `idx` begin at 100 and are
    not in order; AX too."""
    configs = ["---", "configs:"]
    for task, columns in {**{t.name: t.texts for t in TASKS.values()}, "ax": ("premise", "hypothesis")}.items():
        configs += [f"- config_name: {task}", "  data_files:"]
        parts = ("_matched", "_mismatched") if task == "mnli" else ("",)
        for part in parts:
            source = ("mnli", "validation_matched") if task == "ax" else (task, f"validation{part}")
            frame = synthetic_split(*source)[:rows][[*columns]].assign(label=-1, idx=range(99 + rows, 99, -1))
            (folder / task).mkdir(parents=True, exist_ok=True)
            frame.to_parquet(folder / task / f"test{part}-0.parquet", index=False)
            configs.append(f"  - {{split: test{part}, path: {task}/test{part}-*.parquet}}")
    (folder / "README.md").write_text("\n".join([*configs, "---", ""]))
    return str(folder)


@pytest.fixture(scope="module")
def submission(model, tmp_path_factory):
    """Folder and table of a submission of a small mirror."""
    folder = tmp_path_factory.mktemp("glue")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("datasets.config.HF_DATASETS_CACHE", folder / "cache")
        data = mirror(folder / "mirror")
        return folder / "out", write_submission(model, folder / "out", data), data


def read(folder, name) -> pd.DataFrame:
    return pd.read_csv(folder / f"{name}.tsv", sep="\t", dtype={"prediction": str}, keep_default_na=False)


def rows_of(count=2):
    """Predictions of class 0, or score 0, for every file."""
    return {name: pd.Series(0, index=range(count)) for name in GLUE_FILES}


def test_the_eleven_files_and_their_zip(submission):
    folder, table, _ = submission
    names = ["CoLA", "SST-2", "MRPC", "STS-B", "QQP", "MNLI-m", "MNLI-mm", "QNLI", "RTE", "WNLI", "AX"]
    names = [f"{name}.tsv" for name in names]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*names, "submission.zip"])
    with zipfile.ZipFile(folder / "submission.zip") as archive:
        assert archive.testzip() is None and archive.namelist() == names
        assert all(archive.read(name) == (folder / name).read_bytes() for name in names)
    assert table["file"].tolist() == names
    assert dict(zip(names, table["rows"], strict=True)) == {name: 12 for name in names} | {"WNLI.tsv": 146}
    assert table["official"].sum() == 426_309
    assert read(folder, "WNLI").to_numpy().tolist() == [[i, "0"] for i in range(146)]  # the majority
    # AX has here the texts of MNLI's matched rows, and so the same answers.
    pd.testing.assert_frame_equal(read(folder, "AX"), read(folder, "MNLI-m"))


def test_header_indices_and_label_strings(submission):
    """The header is GLUE's; indices are the data set's, in order, whatever the order of its rows."""
    for name in GLUE_FILES.keys() - {"WNLI", "STS-B"}:
        text, frame = (submission[0] / f"{name}.tsv").read_text(), read(submission[0], name)
        assert text.startswith("index\tprediction\n100\t") and text.endswith("\n")
        assert frame["index"].tolist() == list(range(100, 112))
        valid = {"entailment", "not_entailment"} if name in ("QNLI", "RTE") else {"0", "1"}
        valid = {"entailment", "neutral", "contradiction"} if name in ("MNLI-m", "MNLI-mm", "AX") else valid
        assert set(frame["prediction"]) <= valid


def test_each_row_has_its_own_prediction(submission, model):
    """Row 0 of the file read back is the last row of the data, for their `idx` fall."""
    frame = synthetic_split("rte", "validation")[:12]
    texts = list(zip(frame["sentence1"], frame["sentence2"], strict=True))
    labels = model.predict(texts, "rte")["label"].tolist()
    assert read(submission[0], "RTE")["prediction"].tolist() == labels[::-1] and len(set(labels)) == 2


@pytest.mark.parametrize("name", [n for n, f in GLUE_FILES.items() if n not in ("WNLI", "AX")])
def test_a_labelled_sample_read_back_scores_as_the_model_does(model, tmp_path, name):
    """The synthetic validation split: the first metric of what the file says equals what `evaluate` measures. STS-B's
    scores are compared themselves: in the file they are cut to 0-5 and rounded."""
    file, task = GLUE_FILES[name], TASKS[GLUE_FILES[name].task]
    split = file.split.replace("test", "validation")
    write_submission(rows_of() | glue_predictions(model, "synthetic", "validation", [name]), tmp_path)
    frame, data = read(tmp_path, name), tokenise_task(task, tokenizer(), "synthetic", split)
    assert frame["index"].tolist() == synthetic_split(task.name, split)["idx"].tolist()
    assert len(set(frame["prediction"])) >= (len(task.labels) or 6)
    if task.is_regression:
        scores = 5 * predict(model, task.name, data)[:, 0].clip(0, 1)
        assert frame["prediction"].astype(float).to_numpy() == pytest.approx(scores, abs=6e-4)
        return
    said = frame["prediction"].map(task.labels.index) if file.names else frame["prediction"].astype(int)
    value = METRICS[task.metrics[0]](load_rows(task, "synthetic", split)["label"].to_numpy(float), said.to_numpy(float))
    expected = evaluate(model, {task.name: {split: data}})[task.name]
    assert 100 * value == pytest.approx(next(iter(expected.values())), abs=1e-9)


def test_a_whole_rehearsal_on_synthetic_data(model, tmp_path):
    """MNLI's matched rows stand for AX; there are no test splits."""
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


def test_missing_tasks_are_listed_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"no predictions for CoLA \(task cola\), QQP \(task qqp\); given only"):
        write_submission({k: v for k, v in rows_of().items() if k not in ("CoLA", "QQP")}, tmp_path / "out")
    lacking = SimpleNamespace(tasks=[t for t in TASKS if t != "mnli"])
    with pytest.raises(ValueError, match=r"MNLI-m \(task mnli\), MNLI-mm \(task mnli\), AX \(task mnli\); .* WNLI$"):
        write_submission(lacking, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_replaced_only_when_asked(tmp_path):
    """Nothing is written before; a link is never followed."""
    (tmp_path / "QQP.tsv").write_text("mine")
    with pytest.raises(ValueError, match=r"QQP.tsv exists; force=True replaces it"):
        write_submission(rows_of(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["QQP.tsv"]
    write_submission(rows_of(), tmp_path, force=True)
    (tmp_path / "RTE.tsv").unlink()
    (tmp_path / "RTE.tsv").symlink_to(tmp_path / "QQP.tsv")
    with pytest.raises(ValueError, match=r"RTE.tsv exists, and is not a plain file"):
        write_submission(rows_of(), tmp_path, force=True)


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("CoLA", {0: 2}, r"CoLA: 2 is not a class \(valid: unacceptable, acceptable, or their numbers from 0\)"),
        ("STS-B", {0: float("nan")}, "STS-B: nan is not a finite score"),
        ("RTE", pd.Series([0, 1], index=[3, 3]), r"RTE: indices must be row numbers from 0, each once, not \[3, 3\]"),
        ("CoLA", pd.Series([0, 1], index=[1.5, 2]), r"CoLA: indices must be row numbers from 0, each once, not \[1.5"),
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
        ({"sentence": ["a", None], "idx": [0, 1]}, r"cola/test, row 1 .*, column 'sentence': .* is not a text"),
        ({"sentence": ["a"]}, "cola/test: no column 'idx' for task 'cola'; it has: "),
    ],
)
def test_what_is_wrong_with_a_test_split_is_named_before_anything_is_predicted(monkeypatch, frame, message):
    monkeypatch.setattr("palslib.data.submission.read_repository", lambda *_: pd.DataFrame(frame))
    with pytest.raises(ValueError, match=f"own {message}"):
        glue_predictions(SimpleNamespace(tasks=TASKS), "own", files=["CoLA"])


def test_mismatched_and_diagnostic_files_are_read_from_their_own_splits(monkeypatch):
    seen = []

    def read(*place):
        seen.append(place)
        return pd.DataFrame({"premise": [], "hypothesis": [], "idx": []})

    monkeypatch.setattr("palslib.data.submission.read_repository", read)
    answers = SimpleNamespace(tasks=TASKS, predict=lambda texts, task: pd.DataFrame({"label": [], "score": []}))
    glue_predictions(answers, "own", "validation", ["MNLI-mm", "AX"])
    assert seen == [("own", "mnli", "validation_mismatched"), ("own", "ax", "test")]
