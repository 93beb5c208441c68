"""Writes the computed parts of README.md and of the book's pages, from the records: `make numbers`.

In a page, each stands between `<!-- computed: NAME -->` and `<!-- end -->`, where NAME is one of `BLOCKS`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial

import pandas as pd

from palslib import METHODS, TASKS
from palslib.common.names import check_name
from palslib.common.places import PROJECT, RECORDS
from palslib.grid.sweep import Grid
from palslib.records import load_records, read_records, summarise
from palslib.study.ledger.verdicts import evidence, verdict_frame
from palslib.study.results import answer as answers
from palslib.study.results import tables
from palslib.study.results.tables import cell

PAGES = [PROJECT / "README.md", *sorted((PROJECT / ".book").glob("*.md"))]
BENCHMARK = RECORDS / "benchmark" / "cpu-2-cores-amd.json"
PROFILE = RECORDS / "benchmark" / "cpu-2-cores.json"
GPU_METHODS = {"a step, shared": "shared", "a step with PALs": "pals-204"}
TITLES = ["BERT-base, float32", "bf16", "MiniLM, float32", "bf16"]
COLUMNS = [(backbone, p) for backbone in ("bert-base-uncased", "minilm") for p in ("float32", "bf16")]


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (header, ["---"] * len(header), *rows))


def answer() -> str:
    """The five numbered sentences with which notebook 11 answers the paper's question, and notes on their words."""
    return answers.numbered(answers.answer(pd.read_csv(RECORDS / "answers.csv"))) + f"\n\n{answers.NOTES}"


def questions() -> str:
    """The picture of the answers, and the table of the second study's questions; nothing before it decides one."""
    found = answers.questions_table(pd.read_csv(RECORDS / "questions.csv"))
    picture = "![Each answer's difference with its interval, and without RTE](../figures/11_questions.png)"
    return f"{picture}\n\n{table(list(found), found.itertuples(index=False))}" if len(found) else ""


def methods() -> str:
    """Every method minus the shared model, with simultaneous intervals."""
    found = answers.differences_table(tables.against(tables.of_study(evidence(), "first study")))
    return table(list(found), found.itertuples(index=False))


def progress() -> str:
    """What has been run, and what is missing."""
    found = tables.progress()
    return table(list(found), found.itertuples(index=False))


def pilot() -> str:
    """A row for each setting: means over seeds ± standard errors, and the number of seeds."""
    names = ["dev average", "without CoLA", "CoLA", "switched off"]
    rows = []
    for row in pd.read_csv(RECORDS / "pilot.csv").to_dict("records"):
        about = [row["method"], f"{row['rate']:g}", f"{row['steps']:,}", row["setting"].replace("$V^D$", "Vᴰ")]
        rows.append([*about, *(cell(row[n], row[f"{n} error"]) for n in names), row["seeds"]])
    header = ["method", "BERT's rate", "steps", "adaptations", *names[:3], "change when switched off", "seeds"]
    return table(header, rows)


def verdicts() -> str:
    """The number of rows of the ledger with each verdict."""
    counts = verdict_frame()["verdict"].value_counts()
    return f"{counts.sum()} rows: " + ", ".join(f"{verdict} {n}" for verdict, n in counts.items()) + "."


def speed() -> str:
    """The ratios of the benchmark; in its record each other program comes before ours on the same batches."""
    parts = json.loads(BENCHMARK.read_text())["parts"]
    steps = {(r["backbone"], r["precision"]): r for r in parts["step"] if r["what"] == "pals-204"}
    shown = [f"{steps[c]['ratio']['median']:.2f} ({steps[c]['ratio floor']:.2f})" for c in COLUMNS]
    rows = [["a step with PALs, over one without (by operations)", *shown]]
    released = {(r["backbone"], r["what"]): r["speed-up"] for r in parts["released"]}
    rows.append(["PALs, compared with the released code's way, in float32", *(f"{released[c]:.1f}×" for c in COLUMNS)])
    for value, name in (
        ("transformers", "fine-tuning all of BERT, compared with plain Transformers"),
        ("adapters", "adapters on a frozen BERT, compared with `adapters` 1.3"),
    ):
        pairs = zip(parts["peers"][::2], parts["peers"][1::2], strict=True)
        found = {(other["backbone"], other["precision"]): ours for other, ours in pairs if other["what"] == value}
        rows.append([name, *(f"{found[c]['speed-up']:.2f}×" for c in COLUMNS)])
    return table(["two cores", *TITLES], rows)


def profile() -> str:
    """The share of each kind of operation in a step with PALs, sorted by the last column, largest first."""
    rows = json.loads(PROFILE.read_text())["parts"]["profile"]
    shares = {(r["backbone"], r["precision"]): r["shares"] for r in rows}
    kinds = sorted(shares[COLUMNS[-1]], key=lambda kind: -shares[COLUMNS[-1]][kind])
    cells = [[kind, *(f"{shares[c][kind]:.0%}" for c in COLUMNS)] for kind in kinds]
    return table(["a step with PALs", *TITLES], cells)


def mixed() -> str:
    """How many times as fast one call for the texts of several tasks is as a call a task."""
    parts = json.loads((RECORDS / "benchmark" / "mixed-tasks.json").read_text())["parts"]
    ours = [row for row in parts["mixed_tasks"] if (row["what"], row["precision"]) == ("one call", "float32")]
    found = {(r["texts a task"], r["backbone"]): f"{r['speed-up']['median']:.2f}×" for r in ours}
    names = {1: "8 tasks, 1 text each", 8: "8 tasks, 8 texts each"}
    rows = [[name, found[each, "bert-base-uncased"], found[each, "minilm"]] for each, name in names.items()]
    return table(["one call, over a call a task", "BERT-base", "MiniLM"], rows)


def gpu() -> str:
    """What a step asks of a GPU, counted."""
    counts = json.loads((RECORDS / "benchmark" / "gpu-step.json").read_text())["counts"]
    rows = [[what, *(counts[method]["now"][what] for method in counts)] for what in counts["shared"]["now"]]
    return table(["a step of MiniLM", *counts], rows)


def gpu_step() -> str:
    """The times of a step on a GPU, and how many hours the paper's Table 3 would take there."""
    record = json.loads((RECORDS / "benchmark" / "gpu.json").read_text())
    steps = {(r["what"], r["backbone"], r["precision"]): r for r in record["parts"]["step"]}

    def row(what: str, method: str, of: Callable[[dict], str]) -> list[str]:
        return [what, *(of(steps[method, *column]) for column in COLUMNS)]

    rows = [row(name, m, lambda r: f"{1000 * r['seconds']['median']:.0f} ms") for name, m in GPU_METHODS.items()]
    rows.append(row("if only matrices were multiplied", "shared", lambda r: f"{1000 * r['floor']:.1f} ms"))
    rates = {kind: f"{rate['median'] / 1e12:.0f} TFLOP/s" for kind, rate in record["rates"].items()}
    rows.append(["matrix products", *(rates[kind] for _, kind in COLUMNS)])
    configs, seconds = Grid.named("table3").configs(RECORDS), steps["pals-204", *COLUMNS[1]]["seconds"]["median"]
    hours = sum(config.steps for config in configs) * seconds / 3600
    text = (
        f"The paper's Table 3 (`palslib sweep table3`) has {len(configs)} runs of {configs[0].steps:,} steps. "
        f"At the pace of\nPALs in bf16 they take {hours:.0f} hours, one run after the other, without evaluations."
    )
    return f"{table([record['device'], *TITLES], rows)}\n\n{text}"


def gpu_shared() -> str:
    """How long runs took that shared the GPU, from the records of the tuning."""
    runs = [r for r in read_records(RECORDS / "tuning") if r["device"] != "cpu"]
    steps, longest = runs[0]["config"]["steps"], max(r["seconds"]["total"] for r in runs)
    return (
        f"{len(runs)} runs of MiniLM, {steps:,} steps each, ran at once under MPS (the second study's tuning) and took "
        f"at most {longest:.0f} s:\n{len(runs) * steps / longest:.0f} steps a second together."
    )


def precision() -> str:
    """The dev average in both precisions, ± its standard error."""
    frame = summarise(load_records(RECORDS / "precision"), ["precision"], "last dev average").set_index("precision")
    said = [f"{frame.loc[p, 'mean']:.1f} ± {frame.loc[p, 'standard_error']:.1f} in {p}" for p in ("bf16", "float32")]
    return f"{frame['seeds'].min()} seeds: {', '.join(said)} (standard errors)."


def attacked_runs() -> str:
    """The number of attacks by kind and outcome, zeros included, and of inputs by what is said of them."""
    record = json.loads((RECORDS / "attacks" / "runs.json").read_text())
    total = Counter()
    for of in record["counts"].values():
        total.update(of)  # `+` would drop counts of 0
    rows = {kind.replace("_", " "): of for kind, of in record["counts"].items()} | {"all": total}
    cells = [[kind, sum(of.values()), *of.values()] for kind, of in rows.items()]
    inputs = [f"{test.removeprefix('test_').replace('_', ' ')} ({n:,})" for test, n in record["inputs"].items()]
    counts = table([f"seed {record['seed']}", "tries", *total], cells)
    return f"{counts}\n\nGenerated inputs with the same seed, each as it should be: {', '.join(inputs)}."


def names(what: str, of: Iterable[str]) -> str:
    return f"Names of {what}: {', '.join(f'`{name}`' for name in of)}."


BLOCKS = {
    f.__name__: f
    for f in (answer, methods, progress, pilot, verdicts, speed, profile, mixed, gpu, gpu_step, gpu_shared, precision)
}
BLOCKS |= {"attacked_runs": attacked_runs, "method_names": partial(names, "methods", METHODS)}
BLOCKS |= {"task_names": partial(names, "tasks", TASKS), "questions": questions}


def written(text: str) -> str:
    """The text of a page with every computed part computed again."""

    def block(found: re.Match) -> str:
        check_name("computed part of a page", found[2], BLOCKS)
        return f"{found[1]}\n{BLOCKS[found[2]]()}\n{found[3]}"

    return re.sub(r"(<!-- computed: (.*?) -->)\n.*?(<!-- end -->)", block, text, flags=re.S)


def write() -> None:
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        if (new := written(old)) != old:
            page.write_text(new, encoding="utf-8")
            print(f"{page.relative_to(PROJECT)}: other numbers")


if __name__ == "__main__":
    write()
