"""Scores against operations: a dot and a name for each method, and no two names at one place."""

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.text import Text

from palslib.study.figures.operations import trade_off


def test_every_method_has_a_dot_and_a_name_of_its_own():
    rows = [("shared", 1.0, 80.7), ("attention-on-top-204", 1.15, 81.5), ("bert-layer-on-top", 1.67, 81.5)]
    rows += [("pals-204", 8.5, 81.7), ("low-rank-100", 8.5, 81.7)]
    frame = pd.DataFrame(rows, columns=["method", "operations", "score"]).assign(error=0.1)
    ax = trade_off(frame, plt.figure().add_subplot())
    ax.figure.canvas.draw()
    names = {text.get_text(): text for text in ax.texts}
    assert set(names) == {"shared", "attention on top", "BERT layer on top", "PALs", "low rank"}
    boxes = [Text.get_window_extent(text) for text in names.values()]  # without the line to the dot
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    assert all(text.get_ha() == ("right" if name in ("PALs", "low rank") else "left") for name, text in names.items())
    assert ax.lines[0].get_xydata().tolist() == frame[["operations", "score"]].to_numpy().tolist()
    plt.close(ax.figure)
