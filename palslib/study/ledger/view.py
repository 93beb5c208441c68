"""The ledger as shown in notebook 06: its rows as tables, and a search for numbers and words."""

import re
from html import escape

import pandas as pd
from IPython.display import HTML, display

from palslib.methods.counting import count_parameters
from palslib.methods.table import METHODS
from palslib.study.ledger import paper
from palslib.study.ledger.derivations import derive, near, numbers, places

TABLES = {
    "GLUE's training examples": paper.GLUE_TRAIN_SIZES,
    "paper T2": paper.TABLE_2,
    "paper, beside T2": {"rte": paper.RTE_ELSEWHERE},
    "paper T3": paper.TABLE_3,
    "minbert T1": paper.MINBERT_TABLE_1,
    "minbert's training examples": paper.MINBERT_TRAIN_SIZES,
    "gem T1": paper.GEM_TABLE_1,
    "adapters T2": paper.ADAPTERS_TABLE_2,
    "adapters T3": paper.ADAPTERS_TABLE_3,
    "adapters, figure 6": paper.ADAPTERS_FIGURE_6,
}
"""Source -> a table of `ledger.paper`, nested to any depth."""

_NUMBER = re.compile(r"(?<!\w)((?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:\s*(million\b|M\b))?")


def _read(match: re.Match) -> tuple[float, float]:
    """A number as written, and the unit of its last place: `1.8M` is 1,800,000 to the nearest 100,000."""
    digits, scale = match[1].replace(",", ""), 10**6 if match[2] else 1
    places = len(digits.partition(".")[2])
    unit = 10.0**-places if places else (1 if match[2] else 0)  # an integer means itself, not a rounded number
    return float(digits) * scale, unit * scale


def _cells(table, *path: str):
    """Yields (path as text, number) for every number of a table."""
    if isinstance(table, dict):
        for key, value in table.items():
            yield from _cells(value, *path, " ".join(key) if isinstance(key, tuple) else key)
    else:
        yield from ((" · ".join(path), number) for number in numbers(table) if number is not None)


_DERIVATION = {"A": "derivation", "B": "derivation", "C": "what decides", "D": "the paper, or good practice"}
PAGES = {row.id: row.page for row in paper.load_ledger().values()}
"""Row -> the notebook that derives, shows or tests its statement."""


def show_part(frame: pd.DataFrame, kind: str) -> None:
    """Displays one part of `verdict_frame` as a table: row (a link to its notebook), verdict, statement, and `_seen`; a
    click opens the source, the published value, the derivation and the note, with links to the records."""
    lines = []
    for row in frame[frame["kind"] == kind].to_dict("records"):
        texts = {"source": row["source"], "published": row["published"]}
        texts |= {_DERIVATION[kind]: row["derivation"], "note": row["note"]}
        more = [f"<b>{name}</b> {escape(text)}" for name, text in texts.items() if text]
        links = [f"<a href='../figures/records/{file}'>{i}</a>" for i, file in enumerate(row["files"], 1)]
        more = "<br>".join(more + ([f"<b>records</b> {' '.join(links)}"] if links else []))
        cells = (
            f"<a href='{PAGES[row['id']]}.ipynb'>{row['id']}</a>",
            escape(row["verdict"]),
            f"<details><summary>{escape(row['statement'])}</summary>{more}</details>{_seen(row)}",
        )
        lines.append("".join(f"<td style='text-align: left; vertical-align: top'>{cell}</td>" for cell in cells))
    display(HTML(f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"))


def _seen(row: dict) -> str:
    """What is visible before a click: published numbers and ours; for a claim a line for each comparison, and how many
    of them are reproduced; for a difference of the released code a line for each field."""
    if row["kind"] in "AB":
        printed = [f"published: {row['published']}"] if row["published"] != "–" else []
        lines = [*printed, f"ours: {row['ours']}"]
    else:
        counts = [part for part in row["note"].split("; ") if " comparisons reproduced" in part]
        lines = row["ours"].split("; ") + counts
    return "".join(f"<div style='color: #666'>{escape(line)}</div>" for line in lines if line != "–")


def averages_of_table_2() -> pd.DataFrame:
    """The paper's table 2 as printed; the mean of the nine scores (`ours`) beside its "Av." (ledger A21); our count of
    parameters over BERT-base's (`ratio`); and a row of the tasks' training examples (A17)."""
    rows = [{"method": "training examples", **{c: paper.GLUE_TRAIN_SIZES.get(c.partition("_")[0]) for c in _SCORES}}]
    for (method, scores), ours in zip(paper.TABLE_2.items(), derive("A21").values(), strict=True):
        rows.append({"method": method, "ratio": count_parameters(method).ratio, **scores, "ours": ours})
    return pd.DataFrame(rows, columns=["method", "ratio", *_SCORES, "average", "ours"])


_SCORES = [column for column in paper.TABLE_2["shared"] if column != "average"]


def ratios_of_table_3() -> pd.DataFrame:
    """The paper's table 3 as printed, mean ± standard error, with our ratio beside its own (ledger A4-A10, B1), and the
    number of layers that a task adds, or adds to."""
    rows = []
    for method, cells in paper.TABLE_3.items():
        ours, built = count_parameters(method), METHODS[method]
        layers = len(built.adapted_layers(ours.backbone.num_layers)) or getattr(built, "on_top", int(ours.added > 0))
        row = {"method": method, "new layers": layers, "printed": cells["ratio"], "ours": ours.ratio}
        for schedule in ("proportional", "square-root", "annealed"):
            row[schedule] = "–"
            if schedule in cells:
                mean, error = cells[schedule]
                digits = 2 if error is None else places(error)
                row[schedule] = f"{mean:.{digits}f} ± {'< 0.005' if error is None else f'{error:g}'}"
        rows.append(row)
    return pd.DataFrame(rows)


def find(term: str, frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of the ledger's rows and the tables' cells that mention a number or a word: where, what, verdict.

    Args:
        term: `"1.13"` finds all that rounds to it, `"1.8M"` also 1,811,520, `"158"` only 158; others are found as text.
        frame: the result of `verdict_frame`, or some of its rows.
    """
    if not (term := str(term)).strip():
        raise ValueError("nothing to look up: the term is empty")
    number = _NUMBER.fullmatch(term.partition("±")[0].strip().lstrip("+-−").rstrip("%×x "))

    word = re.compile(r"(?<!\w)" + re.escape(term.strip()), re.IGNORECASE)  # "NER" is no part of "inner"

    def mentioned(*texts) -> bool:
        text = " ".join(map(str, texts))
        if not number:
            return word.search(text) is not None
        return any(near(_read(match)[0], *_read(number)) for match in _NUMBER.finditer(text))

    lines = []
    for shown in frame.to_dict("records"):
        row = paper.load_ledger()[shown["id"]]
        texts = [shown[name] for name in ("id", "source", "statement", "derivation", "published", "ours", "verdict")]
        if mentioned(*texts, *row.needs, row.scale, *row.fields, row.published, row.derived):
            lines.append((row.id, row.statement, shown["verdict"]))
    for where, table in TABLES.items():
        cells = [f"{path} {value:,}" for path, value in _cells(table)]
        lines += [(where, cell, "") for cell in cells if mentioned(cell)]
    return pd.DataFrame(lines, columns=["where", "what", "verdict"])
