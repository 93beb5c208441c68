"""JupyterLab in a real browser: each explorer appears, a control moves, its text changes; links open what they name."""

import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import nbformat
import pytest

from palslib.common.places import PROJECT

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
try:
    from playwright.sync_api import Error, expect, sync_playwright
except ImportError:
    sync_playwright = None

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian: apt-get install chromium)"),
    pytest.mark.skipif(sync_playwright is None, reason="playwright is not installed (pip install -e '.[browser]')"),
]

SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "notebook-extension/tracker": {"windowingMode": "none"},  # cells out of sight are on the page too
}
CELLS = [
    "from palslib.study.explore.methods import explore_architecture\nexplore_architecture()",
    "from palslib.study.explore.methods import explore_parameters\nexplore_parameters()",
    "from palslib.study.explore.methods import explore_schedules\nexplore_schedules()",
    "from palslib import MultiTaskModel\nfrom palslib.bert.backbones import load_tokenizer\n"
    "from palslib.study.explore.heads import explore_attention\n"
    "model = MultiTaskModel.from_backbone('tiny', 'pals-204', ['rte', 'cola'], size=12)\n"
    "explore_attention(model, load_tokenizer('tiny'))",
    "from palslib import RunConfig\nfrom palslib.study.explore.runs import explore_training\n"
    "explore_training(RunConfig(backbone='tiny', size=12, tasks=('rte', 'cola'), steps=4000, batch_size=4))",
]


LINKS = ["../palslib/bert/layer.py", "../figures/records/PLAN.md", "../.book/speed.md", "00_start_here.ipynb"]
"""Of each kind that notebooks have, one: code, a record, a page of the book, a notebook."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The address of a notebook with all explorers, in a JupyterLab with settings, kernels and runs of its own, started
    in a folder like the clone with the flags of `make lab`."""
    home = tmp_path_factory.mktemp("lab")
    for name, values in SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}}
    cells = [nbformat.v4.new_code_cell(cell) for cell in CELLS]
    cells.append(nbformat.v4.new_markdown_cell(" · ".join(f"[{link}]({link})" for link in LINKS)))
    (home / "clone" / "notebooks").mkdir(parents=True)
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), home / "clone" / "notebooks" / "all.ipynb")
    for link in LINKS:
        there = home / "clone" / "notebooks" / link
        there.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / "notebooks" / link, there)
    (flags,) = re.findall(r"^LAB = (.*)$", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "MPLBACKEND"))}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "PALSLIB_RUNS"):
        environment[name] = str(home / name)
    environment |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "JUPYTER_PREFER_ENV_PATH": "1"}
    environment["JUPYTERLAB_WORKSPACES_DIR"] = str(home / "workspaces")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token, address = secrets.token_hex(16), f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += [f"--IdentityProvider.token={token}", *flags.split()]
    command += ["--ServerApp.port_retries=0", "--LabApp.extension_manager=readonly", "--allow-root"]
    with open(home / "log", "w") as log:
        server = subprocess.Popen(command, cwd=home / "clone", env=environment, stdout=log, stderr=subprocess.STDOUT)
    try:
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/api/status?token={token}", timeout=5).close()
                break
            except urllib.error.URLError:
                assert server.poll() is None, (home / "log").read_text()
                time.sleep(0.25)
        yield f"{address}/lab/tree/notebooks/all.ipynb?token={token}&reset"
    finally:
        server.terminate()  # it ends its kernels
        server.wait(60)


@pytest.fixture(scope="module")
def page(lab):
    """The page on which all cells have been run; `page.wrong` collects errors and requests to other machines."""
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            page = all_cells_run(chromium, lab)
        except Error:
            if chromium.is_connected():
                raise
            chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)  # Chromium itself broke down
            page = all_cells_run(chromium, lab)
        yield page
        chromium.close()


def all_cells_run(chromium, lab: str):
    page = chromium.new_page(viewport={"width": 1280, "height": 1500})
    page.set_default_timeout(120_000)
    page.wrong = []
    page.on("pageerror", lambda error: page.wrong.append(str(error)))
    own = re.compile(r"(?:https?|wss?)://127\.0\.0\.1[:/]|data:|blob:")
    page.on("request", lambda asked: own.match(asked.url) or page.wrong.append(asked.url))
    page.goto(lab)
    page.get_by_text(re.compile(r"Python 3.*\| Idle")).first.wait_for()
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(r"^Run$")).click()
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(r"^Run All Cells$")).click()
    page.locator(".jp-Notebook .palslib-explore-training").wait_for()
    return page


def press(box, label: str, times: int = 1) -> None:
    """Moves the slider of that label to the right, by keys."""
    line = box.locator(".widget-slider", has=box.page.locator("label", has_text=re.compile(f"^{label}$")))
    line.locator(".noUi-handle").focus()
    for _ in range(times):
        box.page.keyboard.press("ArrowRight")


def type_a_sentence(box) -> None:
    for place, text in ((1, ""), (0, "why not?")):
        box.locator("input[type=text]").nth(place).fill(text)
        box.locator("input[type=text]").nth(place).press("Enter")


def start_and_stop(box) -> None:
    box.get_by_role("button", name="Start").click()
    expect(box).to_contain_text(re.compile(r"training: step \d"))
    box.get_by_role("button", name="Stop").click()


USES = {
    "architecture": (lambda box: box.locator("select").first.select_option("houlsby-64"), "adapters"),
    # From s = 204 one step of twelve heads: 8 · (2·768·216 + 36·216²) = 16,091,136 are added
    "parameters": (lambda box: press(box, "s"), "16,091,136"),
    "schedules": (lambda box: press(box, "epoch e", 2), "α = 0.933"),  # in epoch 3 of 25: 1 − 0.8 · 2/24
    "attention": (type_a_sentence, "1.609"),  # ln 5: uniform over `why`, `not`, `?` and two special tokens
    "training": (start_and_stop, "a checkpoint is kept"),
}


@pytest.mark.parametrize("name", USES)
def test_an_explorer_appears_and_answers(page, name):
    """Nothing of it is wider than the page, and no cell or script has failed."""
    use, said = USES[name]
    box = page.locator(f".jp-Notebook .palslib-explore-{name}")
    box.wait_for()
    box.scroll_into_view_if_needed()
    expect(box).not_to_contain_text(said)
    use(box)
    expect(box).to_contain_text(said)
    box.locator("img").first.wait_for()
    wide = "box => [...box.querySelectorAll('*')].every(e => e.getBoundingClientRect().right <= innerWidth)"
    assert box.evaluate(wide) and page.wrong == []
    assert page.locator('.jp-Notebook [data-mime-type="application/vnd.jupyter.error"]').all_inner_texts() == []


@pytest.mark.parametrize("link", LINKS)
def test_a_link_opens_what_it_names(page, link):
    page.locator(".lm-TabBar-tab", has_text="all.ipynb").click()
    page.locator(".jp-Notebook a", has_text=re.compile(f"^{re.escape(link)}$")).click()
    page.locator(".lm-TabBar-tab", has_text=link.rpartition("/")[2]).wait_for()
    assert page.wrong == []
