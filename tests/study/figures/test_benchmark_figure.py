"""The benchmark's figure: of records with and without what is measured beside others."""

import json

from palslib.common.places import RECORDS
from palslib.study.figures.benchmark import benchmark_figure
from palslib.study.figures.style import use_style

RECORD = RECORDS / "benchmark" / "cpu-2-cores.json"


def rows(*ways) -> list[dict]:
    """In pairs: another's way at 10 texts a second, and ours at 25."""
    return [
        {"what": what, "method": method, "backbone": "minilm", "precision": precision, "speed-up": ratio}
        | {"texts a second": 10 * ratio}
        for precision in ("float32", "bf16")
        for way, method in ways
        for what, ratio in ((way, 1.0), ("palslib", 2.5))
    ]


def test_other_packages_have_a_panel_of_their_own():
    use_style()  # titles stand on the left
    record = json.loads(RECORD.read_text())
    ways = [("transformers", "shared"), ("adapters", "houlsby-64")]
    figure = benchmark_figure(record | {"parts": record["parts"] | {"peers": rows(*ways)}})
    figure.canvas.draw()
    beside = [ax for ax in figure.axes if ax.get_title(loc="left").startswith("e ")]
    assert len(beside) == 1
    for ax in beside:
        assert [bar.get_height() for bar in ax.patches] == [2.5] * 4
        assert {text.get_text() for text in ax.texts} == {"2.5×\n10 → 25/s"}
        assert [text.get_text() for text in ax.get_legend().get_texts()] == [
            f"{way} ({method})" for way, method in ways
        ]
        assert [label.get_text() for label in ax.get_xticklabels()] == ["MiniLM\nfloat32", "MiniLM\nbf16"]
