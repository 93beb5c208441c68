"""A record of `palslib benchmark` as text and as a figure."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from palslib.study.figures.style import PAGE_WIDTH

NAMES = {"bert-base-uncased": "BERT", "minilm": "MiniLM"}


def machine(record: dict) -> str:
    """A name for a record's file: `cpu-2-cores`, or the GPU's."""
    if record["device"] == "cpu":
        return f"cpu-{record['threads']}-cores"
    return re.sub(r"[^a-z0-9]+", "-", record["device"].lower()).strip("-")


COLUMNS = ["part", "backbone", "precision", "what", "method", "seconds.median", "seconds.low", "seconds.high", "floor"]
COLUMNS += ["texts a second", "ratio.median", "ratio floor"]


def table(record: dict) -> str:
    """A record as text: the machine, and a row for each time with its quartiles, its floor (lower bound) and, where
    programs are compared, texts a second and the ratio to the time and to the floor of the first."""
    parts = {part: pd.json_normalize(rows) for part, rows in record["parts"].items()}
    frame = pd.concat(parts, names=["part"]).reset_index("part")
    frame = frame[[name for name in COLUMNS if name in frame]]
    rates = ", ".join(f"{p} {r['median'] / 1e9:,.0f}" for p, r in record["rates"].items())
    first = f"{_where(record)}; matrix products: {rates} GFLOP/s; lengths of {record['texts']} texts"
    return f"{first}\n{frame.to_string(index=False, na_rep='', float_format='{:.3f}'.format)}"


def _where(record: dict) -> str:
    cpu = f"{record['environment']['cpu']}, {record['threads']} threads"
    return cpu if record["device"] == "cpu" else record["device"]


def ratio_points(
    rows: list[dict], texts: list[str], ax: Axes, title: str, goal: float | None = None, of_times: bool = False
) -> None:
    """(a), (b), (e) Ratios of texts a second, or of times, as points with their texts above, and a dashed line at the
    goal, or else at 1. Those of times have quartiles as whiskers, and the ratio of operations as a black line."""
    places = np.arange(len(rows))
    ratios = [row["ratio"]["median"] if of_times else row["speed-up"] for row in rows]
    tops = [row["ratio"]["high"] for row in rows] if of_times else ratios
    if of_times:
        ax.vlines(places, [row["ratio"]["low"] for row in rows], tops, color="C0")
        ax.hlines([row["ratio floor"] for row in rows], places - 0.3, places + 0.3, color="black", label="operations")
    ax.plot(places, ratios, "o", color="C0")
    ax.axhline(goal or 1, color="C3", linestyle="--", linewidth=1, label=f"goal: {goal}" if goal else "as fast")
    for x, top, text in zip(places, tops, texts, strict=True):
        ax.annotate(text, (x, top), (0, 4), textcoords="offset points", ha="center", fontsize="x-small")
    ax.set_xticks(places, [f"{NAMES.get(row['backbone'], row['backbone'])}\n{row['precision']}" for row in rows])
    ylabel = "ratio of times" if of_times else "ratio of texts a second"
    ax.set(title=title, ylabel=ylabel, xlim=(-0.6, len(rows) - 0.4))
    low, high = ax.get_ylim()
    ax.set_ylim(low, high + 0.6 * (high - low))  # room for the texts and the legend
    ax.grid(axis="x", visible=False)
    ax.legend(fontsize="small", loc="upper left", ncols=2)


def bars_over_floor(rows: list[dict], labels: list[str], ax: Axes, title: str, bound: str | None = None) -> None:
    """(c), (d) Seconds as bars with their quartiles, the floor of each as a line, which the legend calls `bound`."""
    places, middle = np.arange(len(rows)), [row["seconds"]["median"] for row in rows]
    low, high = (np.abs(np.subtract([row["seconds"][k] for row in rows], middle)) for k in ("low", "high"))
    ax.barh(places, middle, xerr=[low, high], height=0.6, color="C0", capsize=2)
    ax.vlines([row["floor"] for row in rows], places - 0.35, places + 0.35, color="black", label=bound)
    ax.set_yticks(places, labels)
    ax.invert_yaxis()
    ax.set(title=title, xlabel="seconds")
    if bound:
        ax.legend(fontsize="small")


def benchmark_figure(record: dict) -> Figure:
    """All parts of a record; black lines are lower bounds, dashed lines goals, or in (e) equal speed."""
    parts = record["parts"]
    figure, axes = plt.subplot_mosaic("ab;cd;ee", figsize=(PAGE_WIDTH, 7.6))
    rows = [row for row in parts["step"] if row["what"] != "shared"]
    texts = [f"{row['ratio']['median']:.2f}" for row in rows]
    ratio_points(rows, texts, axes["a"], "a  Step with PALs / step without", 1.1, of_times=True)
    rows = [row for row in parts["released"] if row["what"] != "released"]
    texts = [f"{row['speed-up']:.1f}×\n{row['texts a second']:.0f}/s" for row in rows]
    ratio_points(rows, texts, axes["b"], "b  Training, over the released way", 5)
    rows = parts["evaluation"]
    title = f"c  Evaluation of {rows[0]['texts']:,} texts"
    bars_over_floor(rows, [row["precision"] for row in rows], axes["c"], title, "lower bound")
    rows = parts["start_up"]
    bars_over_floor(rows, [row["what"] for row in rows], axes["d"], "d  Start of a notebook")
    others, rows = parts["peers"][::2], parts["peers"][1::2]  # another package and ours in turn
    texts = [
        f"{other['what']}\n{row['speed-up']:.1f}×\n{other['texts a second']:.0f} → {row['texts a second']:.0f}/s"
        for other, row in zip(others, rows, strict=True)
    ]
    ratio_points(rows, texts, axes["e"], "e  One task, over others' packages")
    figure.suptitle(_where(record), fontsize="medium")
    return figure
