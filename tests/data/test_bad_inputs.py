"""Bad inputs, drawn by hypothesis. Whatever a file holds, it is either read right, which something independent of
palslib says, or refused by an error that names it. What was in memory and on the disk stays as it was. PALSLIB_SLOW=1
draws ten times as many.
"""

import csv
import io
import math
import os
import tempfile
import warnings
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from safetensors import SafetensorError
from shapes import randomise
from training.small_runs import full_disk

from palslib import MultiTaskModel, Task, load_rows
from palslib.bert.backbones import load_tokenizer
from palslib.data.tasks import task_from_file
from palslib.data.tokens import tokenise_task
from palslib.records import write_record

REFUSED = object()
MOOD = Task("mood", ("text",), ("bad", "good"))
LINES = ["text,label", *(f'"Text {i}, of some words, ä.",{MOOD.labels[i % 2]}' for i in range(12))]


def examples(few: int):
    """Settings of a property: the same examples in every run, ten times as many in the slow tests."""
    many = few * (10 if os.environ.get("PALSLIB_SLOW") else 1)
    options = {"derandomize": True, "deadline": None, "suppress_health_check": list(HealthCheck)}
    return settings(max_examples=many, phases=[Phase.explicit, Phase.generate], **options)  # no shrinking: minutes


@contextmanager
def new_folder():
    """A folder of its own for an example, inside of one where caches go."""
    with tempfile.TemporaryDirectory() as box, pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        patch.setenv("PALSLIB_RUNS", f"{box}/runs")
        (inside := Path(box, "inside")).mkdir()
        yield inside


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tried(act, folder: Path, *names: str):
    """What `act()` returns; or `REFUSED`, if it raises an error that has one of the names. Neither changes or leaves a
    file in the folder or beside it, other than caches."""
    before, runs = files(folder.parent), folder.parent / "runs"
    try:
        result = act()
    except (ValueError, OSError, SafetensorError) as error:  # any other error fails
        words = "\n".join([str(error), *getattr(error, "__notes__", ())])
        assert any(name in words for name in names), repr(error)
        result = REFUSED
    after = files(folder.parent)
    assert {p: b for p, b in after.items() if not p.is_relative_to(runs)} == before
    assert not [path for path in after if path.name.endswith("-tmp")]
    return result


# ------------------------------------------------------------------------------------------------------ kinds of damage
OTHERS = [b"", b"PK\x03\x04", b"<html>", b"\xff\xfe{\0}\0"]


@st.composite
def damaged(draw, content: bytes) -> bytes:
    """Bytes as a disk, a transfer or an editor may leave them: a part is lost, zeros, twice there, or noise; or the
    whole has a byte order mark, another encoding, or is something else."""
    at = draw(st.integers(0, len(content) - 1))
    end = draw(st.integers(at, len(content)))
    part = content[at:end]
    instead = draw(st.sampled_from([b"", bytes(len(part)), part * 2]) | st.binary(min_size=1, max_size=20))
    others = [b"\xef\xbb\xbf" + content, content.decode("latin-1").encode("utf-16"), *OTHERS]
    return draw(st.sampled_from([content[:at] + instead + content[end:]] * 3 * len(others) + others))


# ------------------------------------------------------------------------------------------------------ delimited files
def rows_in(path: Path):
    """The rows of a file as the one split that it is."""
    return load_rows(MOOD, str(path.with_name("{split}.csv")), path.stem)


def pairs(frame) -> list:
    return frame[["text", "label"]].to_numpy().tolist()


def by_csv(content: bytes) -> list:
    """The rows of a file as Python's csv reads them."""
    header, *rows = filter(None, csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True))
    return [[row[header.index("text")], MOOD.labels.index(row[header.index("label")])] for row in rows]


TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)


@examples(50)
@given(
    st.lists(st.tuples(TEXT, st.sampled_from(MOOD.labels)), min_size=1),
    st.sampled_from(["", "\ufeff"]),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([0, 1, 3]),
)
def test_a_delimited_file_holds_what_was_written(rows, mark, end, ends):
    """Texts with quotation marks, separators, line breaks and control characters; with a byte order mark or none."""
    quoted = ['"{}",{}'.format(text.replace('"', '""'), label) for text, label in rows]
    with new_folder() as folder:
        (folder / "x.csv").write_bytes((mark + end.join(["text,label", *quoted]) + end * ends).encode())
        frame = tried(lambda: rows_in(folder / "x.csv"), folder)
    assert pairs(frame) == [[text, MOOD.labels.index(label)] for text, label in rows]


@examples(100)
@given(damaged("\n".join(LINES).encode()))
def test_a_damaged_delimited_file_is_what_csv_says_or_refused(content):
    with new_folder() as folder:
        (folder / "x.csv").write_bytes(content)
        frame = tried(lambda: rows_in(folder / "x.csv"), folder, "x.csv", "{split}.csv: the split 'x'")
    assert frame is REFUSED or pairs(frame) == by_csv(content)


# -------------------------------------------------------------------------------------------------------- Parquet files

ROWS = [["It rains.", "It is wet.", 0], ["It rains.", "It is dry.", 1], ["Ä cat.", "", 1], ["A dog.", "An animal.", 0]]
FIRST, SECOND, LABEL = (list(column) for column in zip(*ROWS, strict=True))
NAMES = pa.array([("entailment", "not_entailment")[label] for label in LABEL])
GOOD = [
    ("sentence1", pa.array(FIRST, pa.large_string())),
    ("sentence1", pa.array(FIRST).dictionary_encode()),
    ("label", pa.array(LABEL, pa.int8())),
    ("label", pa.array(LABEL, pa.float64())),
    ("label", NAMES),
    ("label", NAMES.dictionary_encode()),
]
BAD = [
    *(("sentence1", pa.array(values)) for values in (range(4), [None, *FIRST[1:]], [[x] for x in FIRST])),
    *(("sentence2", pa.array(values)) for values in ([b"a"] * 4, [{"a": x} for x in FIRST], ["a\0", *FIRST[1:]])),
    *(("sentence1", values) for values in (pa.nulls(4), pa.array(range(4), pa.timestamp("s")))),
    *(("label", pa.array([x] * 4)) for x in (0.5, 7, -1, math.nan, math.inf, [0], {"a": 0}, b"0", 2**63 - 1, "a")),
    *(("label", pa.array(LABEL, kind)) for kind in (pa.timestamp("ns"), pa.duration("ns"))),
    *(("label", pa.array([None, *LABEL[1:]])), ("label", None), ("sentence2", None)),
]


@pytest.mark.parametrize("which", range(len(GOOD) + len(BAD)))
def test_a_column_of_another_type_means_the_same_or_is_named(which):
    name, values = [*GOOD, *BAD][which]
    columns = {"sentence1": pa.array(FIRST), "sentence2": pa.array(SECOND), "label": pa.array(LABEL), name: values}
    with new_folder() as folder:
        (folder / "rte").mkdir()  # as in GLUE's repository
        table = pa.table({name: values for name, values in columns.items() if values is not None})
        pq.write_table(table, folder / "rte" / "train-0.parquet")
        frame = tried(lambda: load_rows("rte", folder), folder, f"column {name!r}")
    assert frame is REFUSED if which >= len(GOOD) else frame.to_numpy().tolist() == ROWS


# ------------------------------------------------------------------------------------------- pipes, disks that are full


@cache
def model() -> MultiTaskModel:
    """A small one in which nothing is as it was drawn."""
    made = MultiTaskModel.from_backbone("tiny", "pals-204", ["rte", "stsb"], size=12, heads=3)
    randomise(made)
    return made


def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "mine.csv")
    with pytest.raises(FileNotFoundError, match=r"mine\.csv is a folder, a pipe"):
        task_from_file(tmp_path / "mine.csv")


@examples(10)
@example("record", 100, True)
@given(st.sampled_from(["model", "task", "record", "tokens"]), st.integers(0, 2000), st.booleans())
def test_what_cannot_be_written_leaves_what_was_there(kind, size, old):
    """On a disk that is full."""
    with new_folder() as folder, pytest.MonkeyPatch.context() as patch:
        place = folder / "out"
        save = {
            "model": lambda: model().save_pretrained(place),
            "task": lambda: model().save_task("rte", place),
            "record": lambda: write_record(place / "record.json", {"long": list(range(3000))}),
            "tokens": lambda: tokenise_task("cola", load_tokenizer("tiny"), split="validation"),
        }[kind]
        if old and kind != "tokens":
            save()
        patch.setenv("PALSLIB_RUNS", str(place))
        with full_disk(size):
            assert tried(save, folder, "") is REFUSED
