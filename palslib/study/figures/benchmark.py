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


def _label(row: dict) -> str:
    return f"{NAMES.get(row['backbone'], row['backbone'])}\n{row['precision']}"


def step_ratios(rows: list[dict], ax: Axes) -> None:
    """(a) Steps with PALs over steps without, quartiles as whiskers, the ratio of operations as a line."""
    rows = [row for row in rows if row["what"] != "shared"]
    places = np.arange(len(rows))
    low, middle, high = (np.array([row["ratio"][key] for row in rows]) for key in ("low", "median", "high"))
    ends = np.clip([middle - low, high - middle], 0, None)
    ax.errorbar(places, middle, ends, fmt="o", color="C0", capsize=3, label="measured")
    ax.hlines([row["ratio floor"] for row in rows], places - 0.3, places + 0.3, color="black", label="operations")
    ax.axhline(1.1, color="C3", linestyle="--", linewidth=1, label="goal: 1.1")
    ax.set_xticks(places, map(_label, rows))
    ax.set(title="a  Step with PALs / step without", ylabel="ratio", xlim=(-0.6, len(rows) - 0.4))
    low, high = ax.get_ylim()
    ax.set_ylim(min(1.0, low), high + 0.4 * (high - low))  # room for the legend
    ax.grid(axis="x", visible=False)
    ax.legend(fontsize="small", loc="upper left", ncols=2)


def speed_bars(rows: list[dict], ax: Axes) -> None:
    """(b) Texts per second divided by those of the released code's way."""
    rows = [row for row in rows if row["what"] != "released"]
    places = np.arange(len(rows))
    bars = ax.bar(places, [row["speed-up"] for row in rows], width=0.6)
    ax.axhline(5, color="C3", linestyle="--", linewidth=1, label="goal: 5")
    ax.legend(fontsize="small", loc="upper left")
    texts = [f"{row['speed-up']:.1f}×\n{row['texts a second']:.0f}/s" for row in rows]
    ax.bar_label(bars, texts, padding=1, fontsize="small", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5})
    ax.set_xticks(places, map(_label, rows))
    ax.set(title="b  Training, over the released way", ylabel="ratio of texts a second")
    ax.margins(y=0.45)  # room for the labels and the legend
    ax.grid(axis="x", visible=False)


def bars_beside(rows: list[dict], ax: Axes) -> None:
    """(e) Our texts per second divided by another package's; rows come in pairs (theirs, ours)."""
    pairs = list(zip(rows[::2], rows[1::2], strict=True))
    names = [f"{other['what']} ({ours['method']})" for other, ours in pairs]
    ways, groups = list(dict.fromkeys(names)), list(dict.fromkeys(_label(ours) for _, ours in pairs))
    for way, (other, ours) in zip(names, pairs, strict=True):
        place = groups.index(_label(ours)) + (ways.index(way) - (len(ways) - 1) / 2) * 0.8 / len(ways)
        bar = ax.bar(place, ours["speed-up"], 0.75 / len(ways), color=f"C{ways.index(way)}", label=way)
        rates = f"{other['texts a second']:.0f} → {ours['texts a second']:.0f}/s"
        ax.bar_label(bar, [f"{ours['speed-up']:.1f}×\n{rates}"], fontsize="x-small")
    ax.axhline(1, color="black", linewidth=1)
    ax.set_xticks(range(len(groups)), groups)
    ax.set(title="e  One task, over others' packages", ylabel="ratio of texts a second")
    ax.margins(y=0.45)  # room for the labels and the legend
    ax.grid(axis="x", visible=False)
    handles = dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True))
    ax.legend(handles.values(), handles, fontsize="small", loc="upper left", ncols=2)


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
    """All parts of a record; black lines are lower bounds, dashed lines goals."""
    parts = record["parts"]
    figure, axes = plt.subplot_mosaic("ab;cd;ee", figsize=(PAGE_WIDTH, 7.6))
    step_ratios(parts["step"], axes["a"])
    speed_bars(parts["released"], axes["b"])
    rows = parts["evaluation"]
    title = f"c  Evaluation of {rows[0]['texts']:,} texts"
    bars_over_floor(rows, [row["precision"] for row in rows], axes["c"], title, "lower bound")
    rows = parts["start_up"]
    bars_over_floor(rows, [row["what"] for row in rows], axes["d"], "d  Start of a notebook")
    bars_beside(parts["peers"], axes["e"])
    figure.suptitle(_where(record), fontsize="medium")
    return figure
