"""The grids of the evidence: each can run, and together they hold what every claim needs."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
from transformers import BertConfig, BertModel

from palslib import TASKS
from palslib.__main__ import main
from palslib.bert.backbones import load_tokenizer
from palslib.common.places import RECORDS
from palslib.data.synthetic import synthetic_split
from palslib.grid import sweep
from palslib.grid.sweep import PLANS, Grid
from palslib.records import load_records, read_records
from palslib.study.ledger.arms import Term, named, settings_of
from palslib.study.ledger.claims import SEEDS, Comparison
from palslib.study.ledger.paper import TABLE_3, load_ledger
from palslib.study.ledger.verdicts import ASIDE
from palslib.study.reproduce import NOTEBOOKS, run_notebook
from palslib.study.results.tables import of_study, progress, table_3

SECOND = ("tuning", "confirmation", "separate", "bert-base-tuning")  # the second study's, which PLAN.md describes


@pytest.fixture(scope="module", autouse=True)
def small_data(tmp_path_factory):
    """GLUE's files and Crowdflower's, as they are laid out, a few rows each."""
    folder = tmp_path_factory.mktemp("data")
    for task in TASKS.values():
        (folder / "glue" / task.name).mkdir(parents=True)
        for split in ("train", *task.evaluation):
            path = folder / "glue" / task.name / f"{split}-00000-of-00001.parquet"
            synthetic_split(task.name, split)[:12].to_parquet(path)
    (folder / "crowdflower").mkdir()
    for task in json.loads((PLANS / "crowdflower.json").read_text())["base"]["tasks"]:
        rows = [f"{word} {i},{label}" for i in range(20) for word, label in (("Nice", "good"), ("Awful", "bad"))]
        (folder / "crowdflower" / f"{task}.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PALSLIB_DATA", str(folder))
        yield


@pytest.fixture(scope="module")
def grids(small_data):
    """The configs of each grid that comes with the package, by its name."""
    return {path.stem: Grid.named(path).configs(Path("runs")) for path in PLANS.glob("*.json")}


def test_what_is_missing_is_what_the_sweep_would_run(grids):
    """`progress` counts the records in a grid's folder; `palslib sweep --recorded` goes by the keys of runs."""
    known, counted = set(load_records(RECORDS)["key"]), progress().set_index("grid")["missing"]
    for name, configs in grids.items():
        assert counted[name] == sum(config.key not in known for config in configs), name


def test_every_claim_has_its_runs_in_a_grid_that_stands_ready(grids):
    """What a row C needs is in one of the plans with three seeds, but for C13e, which FIRST_STUDY.md names, and C26,
    the second study's; and what it compares is in one study, whose runs share all settings."""
    configs = [config for name in grids.keys() - {*ASIDE} for config in grids[name]]
    runs = [{"status": "finished", "config": asdict(config), "precision": config.precision} for config in configs]
    studies: dict[str, list[dict]] = {}
    for run in named(runs):
        studies.setdefault(run["config"]["study"], []).append(run)
    missing = set()
    for row in (row for row in load_ledger().values() if row.kind == "C" and row.needs):
        for need in map(Term.parse, row.needs):
            seeds = [{r["config"]["seed"] for r in study if need.matches(r)} for study in studies.values()]
            missing |= {row.id} if max(map(len, seeds)) < SEEDS else set()
        for comparison in map(Comparison.parse, row.compare):
            terms = comparison.left + comparison.right
            common = []  # in each study, the seeds that all terms have
            for study in studies.values():
                seeds = [{run["config"]["seed"] for run in study if term.matches(run)} for term in terms]
                common.append(len(set.intersection(*seeds)))
            assert max(common) >= SEEDS or row.id in missing, f"{comparison.sentence}: no study has its runs"
    plan = (RECORDS / "FIRST_STUDY.md").read_text(encoding="utf-8")
    assert missing == {"C13e", "C26"} and "C13e" in plan
    plan += (RECORDS / "DEVIATIONS.md").read_text(encoding="utf-8")
    unplanned = [name for name in grids.keys() - {*SECOND} if f"`{name}`" not in plan]
    assert not unplanned, f"FIRST_STUDY.md says what each grid is run for: {', '.join(unplanned)}"


def test_runs_of_a_study_share_all_settings_but_their_arms(grids):
    """And the rate of what is added, which not all have. A deviation from the paper's recipe has no arm."""
    seen: dict[str, tuple[str, dict]] = {}
    for grid in grids.keys() - {*ASIDE}:
        for config in (config for config in grids[grid] if config.arm):
            own = settings_of({"config": asdict(config), "precision": config.precision})
            own = {name: text for name, text in own.items() if name not in ("adaptation_rate", "memory", "weights")}
            first, expected = seen.setdefault(config.study, (grid, own))
            assert own == expected, f"{grid} and {first}, of the study {config.study!r}"


@pytest.mark.slow
def test_the_index_of_committed_runs_says_what_their_grids_say(grids):
    """Its study and arm, by the run's key; and every committed run states both, itself or there."""
    for record in read_records():
        assert record["config"]["study"] and record["config"]["arm"] is not None, record["file"]
    index = {(r["file"].split("/")[0], r["key"]): r["config"] for r in read_records()}
    for grid, configs in grids.items():
        for config in configs:
            here = index.get((grid, config.key))
            assert not here or (here["study"], here["arm"]) == (config.study, config.arm or ""), config.name


def test_runs_that_are_recorded_elsewhere_are_left_out(tmp_path, capsys):
    """A whole grid; one run of 18, if it finished; a folder that does not exist is no folder without records."""
    assert main(["sweep", "main", "--recorded", str(RECORDS)]) == 0
    assert capsys.readouterr().out == f"18 of 18 runs are recorded in {RECORDS}\n"
    words = ["sweep", "main", "--folder", str(tmp_path / "runs"), "--collect", str(tmp_path / "kept"), "--recorded"]
    record = next((RECORDS / "main").glob("*.json")).read_text()
    for status, number in (("finished", 1), ("stopped", 0)):
        (tmp_path / "record.json").write_text(record.replace('"status": "finished"', f'"status": "{status}"'))
        assert main([*words, str(tmp_path / "record.json")]) == 0
        assert capsys.readouterr().out.startswith(f"{number} of 18 runs are recorded")
    for wrong, message in (([*words, str(tmp_path / "no")], "no such folder"), (["sweep", "tabel3"], "'table3'?")):
        assert main(wrong) == 2 and message in capsys.readouterr().err


@pytest.mark.slow
def test_table3_from_the_command_line_to_notebook_11(tmp_path, monkeypatch, capsys):
    """`palslib sweep table3`, its first seed, three steps a run, each in its process. BERT has BERT-base's layers and
    heads, random weights, and a width of 48 (so sizes are fitted to the budget). Notebook 11 shows each run's cell."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    tokenizer = load_tokenizer("minilm")
    shape = {"hidden_size": 48, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 71}
    BertModel(BertConfig(vocab_size=len(tokenizer), **shape)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    grid = json.loads((PLANS / "table3.json").read_text())
    assert grid["product"] == {"seed": [0, 1, 2]} and grid["base"]["preset"] == "paper"
    assert not {"steps", "size", "backbone"} & {*grid["base"]}
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "table3.json").write_text(json.dumps(grid | {"product": {"seed": [0]}}))
    monkeypatch.setattr(sweep, "PLANS", tmp_path / "plans")
    small = f"backbone={tmp_path / 'bert'} size=budget steps=3 batch_size=2 evaluate_every=0".split()
    assert main(["sweep", "table3", "--folder", str(tmp_path / "swept"), "--base", *small]) == 0
    assert "19 of 19 runs finished" in capsys.readouterr().out
    cells = table_3(of_study(read_records(tmp_path / "swept"))).query("seeds == 1")
    printed = {(method, schedule) for method, row in TABLE_3.items() for schedule in row if schedule != "ratio"}
    assert printed | {("fine-tuned", "annealed")} == set(zip(cells["method"], cells["schedule"], strict=True))
    page = run_notebook(NOTEBOOKS / "11_results.ipynb", tmp_path / "11.ipynb", {"records": str(tmp_path / "swept")})
    assert not page["error"] and "19 records, of them 19 of one study" in (tmp_path / "11.ipynb").read_text()
