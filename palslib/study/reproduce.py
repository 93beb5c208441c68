"""Runs the notebooks headless, one after the other: `python -m palslib reproduce`, or `make reproduce`.

Executed copies go to `runs/notebooks/`. A failing notebook does not stop the others; the exit status is 1 if any
failed. The headline in the final table is the output of the notebook's last cell tagged `headline`.
"""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import nbformat
import papermill

from palslib.common.names import check_name
from palslib.common.places import PROJECT
from palslib.records import environment, write_record

NOTEBOOKS = PROJECT / "notebooks"


def _headline(notebook) -> str:
    tagged = [cell for cell in notebook.cells if "headline" in cell.metadata.get("tags", [])]
    outputs = tagged[-1].outputs if tagged else []
    return " ".join(" ".join(output["text"] for output in outputs if output.get("name") == "stdout").split())


def _explain(error: Exception, notebook) -> str:
    """Where and why a notebook failed, in a few lines. Text cells are counted too, from 1, as in the committed file."""
    added = {"papermill-error-cell-tag", "injected-parameters"}
    cells = [cell for cell in notebook.cells if not added & set(cell.metadata.get("tags", []))]
    started = [n for n, cell in enumerate(cells, 1) if cell.metadata.get("papermill", {}).get("start_time")]
    end = f"{type(error).__name__}: {error}".splitlines()[-8:]
    return "\n    ".join([f"cell {started[-1]}" if started else "the start", *end])


def run_notebook(
    path: Path, out: Path, parameters: Mapping | None = None, progress: bool = False, limit: int | None = None
) -> dict:
    """Executes a notebook with papermill and writes the executed copy to `out`, even if a cell fails.

    Returns the notebook's `name`, the wall-clock `seconds`, kernel start included, the number of code `cells` that ran,
    the `headline`, what the last cell tagged so printed (as one line; empty if there is none), and the `error`: of a
    failure the cell's number, and below it the end of the traceback; else empty.

    `limit`: the seconds that one cell may take. `out` appears only when the run is over. The working folder does not
    change. `check` refuses parameters that the notebook does not have; without `check`, the notebook's cell with
    `begin` fails for them. Raises ValueError where `out` is another file than an earlier copy.
    """
    if out.is_symlink() or (out.exists() and b'"papermill"' not in out.read_bytes()):
        raise ValueError(f"{out} is not a copy that palslib executed: give another folder")
    out.parent.mkdir(parents=True, exist_ok=True)
    start, why, partial = time.perf_counter(), "", out.with_name(f".{out.name}")
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # this environment's kernel, whichever the user has registered
    try:
        papermill.execute_notebook(
            path,
            partial,
            dict(parameters or {}),
            kernel_name="python3",
            language="python",
            progress_bar={"desc": path.stem, "leave": False} if progress else False,
            store_widget_state=False,
            execution_timeout=limit,
            extra_arguments=["--log-level=CRITICAL"],  # the kernel's own words, as on its end, are not the notebook's
        )
    except Exception as error:  # a failing cell or a dead kernel: the copy so far is kept
        if not partial.exists():
            raise
        why = _explain(error, nbformat.read(partial, as_version=4))
    notebook = nbformat.read(partial, as_version=4)
    os.replace(partial, out)
    ran = sum(cell.get("execution_count") is not None for cell in notebook.cells)
    took = time.perf_counter() - start
    return {"name": path.stem, "seconds": took, "cells": ran, "headline": _headline(notebook), "error": why}


def check(notebooks: str | None, parameters: Mapping) -> list[Path]:
    """The paths of the notebooks in a list such as `01,04` (None: all). Raises ValueError for an unknown notebook, and
    for a parameter that one of them does not have."""
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    if not paths:
        raise ValueError(f"no notebooks in {NOTEBOOKS}: call `python -m palslib reproduce` in a clone of the project")
    if notebooks is not None:
        named = {path.stem.partition("_")[0]: path for path in paths} | {path.stem: path for path in paths}
        paths = [named[check_name("notebook", name.strip(), named)] for name in notebooks.split(",")]
    for path in paths:
        for name in parameters:
            check_name(f"parameter of notebook {path.stem}", name, papermill.inspect_notebook(path))
    return paths


def reproduce(paths: Sequence[Path], parameters: Mapping, out: Path, record: Path | None = None) -> int:
    """Runs each notebook, and prints how each ended and a final table. Writes a record of it, if a path is given for
    that. Returns the exit status, 1 if one failed."""
    results = []
    for number, path in enumerate(paths, start=1):
        print(f"[{number}/{len(paths)}] {path.stem} ...", flush=True)
        try:
            result = run_notebook(path, out / path.name, parameters, sys.stderr.isatty())
        except Exception as error:  # not a notebook, no kernel available, or a file of the user's in the copy's place
            why = f"the start\n    {type(error).__name__}: {error}"
            result = {"name": path.stem, "seconds": 0.0, "cells": 0, "headline": "", "error": why}
        end = f"FAILED at {result['error']}" if result["error"] else f"{result['seconds']:.1f} s"
        print(f"      {end}", flush=True)
        results.append(result)
    width = max(len(result["name"]) for result in results)
    print(f"\n{'notebook':{width}}  seconds  cells  headline")
    for r in results:
        last = f"FAILED at {r['error'].splitlines()[0]}" if r["error"] else r["headline"]
        print(f"{r['name']:{width}}  {r['seconds']:7.1f}  {r['cells']:5d}  {last}".rstrip())
    failed = sum(bool(result["error"]) for result in results)
    if record:
        write_record(record, {"notebooks": results, "environment": environment()})
    print(f"\n{len(results) - failed} of {len(results)} notebooks succeeded; copies in {out}")
    return 1 if failed else 0
