"""Runs the notebooks headless, one after the other: `python -m palslib reproduce`, or `make reproduce`.

Executed copies go to `runs/notebooks/`. A failing notebook does not stop the others; the exit status is 1 if any
failed. The headline in the final table is the output of the notebook's last cell tagged `headline`.
"""

import math
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import shorten

import nbformat
import papermill
from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from traitlets import default

from palslib.common.files import atomic_write
from palslib.common.names import check_name
from palslib.common.places import PROJECT, runs_folder
from palslib.grid.clean import megabytes
from palslib.records import environment, write_record

NOTEBOOKS = PROJECT / "notebooks"


class ThisInterpreter(AsyncKernelManager):
    """Starts the kernel in this Python, whichever kernel is registered as `python3`, and with inline figures."""

    @property
    def kernel_spec(self) -> KernelSpec:
        inline = {"MPLBACKEND": "module://matplotlib_inline.backend_inline"}
        return KernelSpec(**get_kernel_dict(), env=inline)

    @default("transport_encryption")
    def _encrypt_where_possible(self) -> str:
        return "auto"  # without it, every kernel prints a warning in the terminal


@dataclass(frozen=True)
class Result:
    """The result of one notebook."""

    name: str
    """The notebook's file name without its ending."""
    seconds: float
    """Wall-clock time, kernel start included."""
    gigabytes: float
    """The largest memory of a kernel that this process has run; NaN on Windows."""
    cells: int
    """Number of code cells that ran."""
    headline: str
    """One line from the last cell tagged `headline`, at most 120 characters, cut between words but not within an
    interval [a, b]; empty if there is none."""
    error: str = ""
    """If the notebook failed: the cell's number, the head of its source, the end of the traceback; else empty."""


def _literal(path: Path) -> str:
    """The path with doubled braces, since papermill takes single ones for format fields."""
    return str(path).replace("{", "{{").replace("}", "}}")


def _headline(notebook) -> str:
    tagged = [cell for cell in notebook.cells if "headline" in cell.metadata.get("tags", [])]
    outputs = tagged[-1].outputs if tagged else []
    texts = [output["text"] for output in outputs if output.get("name") == "stdout"]
    whole = re.sub(r"\[[^]]*\]", lambda interval: interval[0].replace(" ", "\0"), " ".join(texts))
    return shorten(whole, 120, placeholder=" …").replace("\0", " ")


def _explain(error: Exception, notebook) -> str:
    """Where and why a notebook failed, in a few lines. Text cells are counted too, from 1, as in the committed file."""
    added = {"papermill-error-cell-tag", "injected-parameters"}
    cells = [cell for cell in notebook.cells if not added & set(cell.metadata.get("tags", []))]
    started = [i for i, cell in enumerate(cells) if cell.metadata.get("papermill", {}).get("start_time")]
    message = "\n".join(getattr(error, "traceback", None) or [f"{type(error).__name__}: {error}"])
    end = re.sub(r"\x1b\[[0-9;]*m", "", message).splitlines()[-8:]
    if not started:
        return "\n    ".join(["the start", *end])
    return "\n    ".join([f"cell {started[-1] + 1}", *cells[started[-1]].source.splitlines()[:5], "...", *end])


def run_notebook(path: Path, out: Path, parameters: Mapping | None = None, progress: bool = False) -> Result:
    """Executes a notebook with papermill and writes the executed copy to `out`, even if a cell fails (see `.error`).

    `out` appears only when the run is over. The working folder does not change. `check` refuses parameters that the
    notebook does not have; without `check`, the notebook's second cell, `begin`, fails for them.
    """
    start, error = time.perf_counter(), None
    with tempfile.TemporaryDirectory() as folder, atomic_write(out) as temporary:
        partial = Path(folder) / "partial.ipynb"  # papermill requires this ending
        try:
            papermill.execute_notebook(
                _literal(path),
                _literal(partial),
                dict(parameters or {}),
                kernel_name="python3",
                language="python",
                progress_bar={"desc": path.stem, "leave": False} if progress else False,
                kernel_manager_class=ThisInterpreter,
                store_widget_state=False,
            )
        except Exception as caught:  # a failing cell or a dead kernel: the copy so far is kept
            if not partial.exists():
                raise
            error = caught
        notebook = nbformat.read(partial, as_version=4)
        shutil.copyfile(partial, temporary)
    ran = sum(cell.get("execution_count") is not None for cell in notebook.cells)
    why = _explain(error, notebook) if error else ""
    return Result(path.stem, time.perf_counter() - start, _peak(), ran, _headline(notebook), why)


def _peak() -> float:
    """The largest memory in GB of a process that this one has started, and that has ended; NaN on Windows."""
    try:
        import resource
    except ImportError:
        return math.nan
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e9


def _table(results: Sequence[Result]) -> str:
    width = max(len(result.name) for result in results)
    lines = [f"{'notebook':{width}}  seconds   GB  cells  headline"]
    for r in results:
        last = f"FAILED at {r.error.splitlines()[0]}" if r.error else r.headline
        lines.append(f"{r.name:{width}}  {r.seconds:7.1f}  {r.gigabytes:3.1f}  {r.cells:5d}  {last}".rstrip())
    return "\n".join(lines)


def check(notebooks: str | None, parameters: Mapping, out: Path) -> list[Path]:
    """The paths of the notebooks in a list such as `01,04` (None: all), after checking that they can run.

    Raises ValueError for an unknown notebook, a parameter that one of them does not have, and a folder `out` that
    cannot be written to.
    """
    paths = sorted(NOTEBOOKS.glob("*.ipynb"))
    if not paths:
        raise ValueError(f"no notebooks in {NOTEBOOKS}: run this from a checkout of the project")
    if notebooks is not None:
        named = {path.stem.partition("_")[0]: path for path in paths} | {path.stem: path for path in paths}
        paths = [named[check_name("notebook", name.strip(), named)] for name in notebooks.split(",")]
    for path in paths if parameters else ():
        valid = papermill.inspect_notebook(_literal(path))
        for name in parameters:
            check_name(f"parameter of notebook {path.stem}", name, valid)
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        advice = "set PALSLIB_RUNS to a folder that can be written"
        raise ValueError(f"cannot write to {out} ({error.strerror}): {advice}") from error
    return paths


def _kept(record: Path | None) -> float:
    """The size in MB of the folder of runs, if it is to be recorded."""
    return megabytes(runs_folder()) if record and runs_folder().is_dir() else 0.0


def reproduce(paths: Sequence[Path], parameters: Mapping, out: Path, record: Path | None = None) -> int:
    """Runs each notebook from a separate process, and prints how each ended and a final table. Writes a record of what
    each took, if a path is given for it. Returns the exit status, 1 if one failed."""
    results, sizes = [], [_kept(record)]
    for number, path in enumerate(paths, start=1):
        print(f"[{number}/{len(paths)}] {path.stem} ...", flush=True)
        try:
            with ProcessPoolExecutor(1) as own:
                result = own.submit(run_notebook, path, out / path.name, parameters, sys.stderr.isatty()).result()
        except Exception as error:  # not a notebook, or no kernel available
            result = Result(path.stem, 0.0, 0.0, 0, "", f"the start\n    {type(error).__name__}: {error}")
        print(f"      {f'FAILED at {result.error}' if result.error else f'{result.seconds:.1f} s'}", flush=True)
        results.append(result)
        sizes.append(_kept(record))
    failed = sum(bool(result.error) for result in results)
    if record:
        took = [{"notebook": r.name, "seconds": round(r.seconds), "gigabytes": round(r.gigabytes, 1)} for r in results]
        for of, (before, after) in zip(took, pairwise(sizes), strict=True):
            of["megabytes kept"] = round(after - before)
        write_record(record, {"failed": failed, "notebooks": took, "environment": environment()})
    print(f"\n{_table(results)}\n\n{len(results) - failed} of {len(results)} notebooks succeeded; copies in {out}")
    return 1 if failed else 0
