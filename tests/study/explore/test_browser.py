"""The explorers in a real browser: JupyterLab on loopback, headless Chromium, keys pressed and words typed.

What the page shows is compared with the same explorer driven from Python: numbers, and pictures byte by byte.
"""

import base64
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
from contextlib import contextmanager
from pathlib import Path

import nbformat
import psutil
import pytest

from palslib import count_parameters
from palslib.common.places import PROJECT, runs_folder
from palslib.study.explore.methods import explore_parameters, explore_schedules
from palslib.study.figures.style import use_style
from palslib.study.reproduce import NOTEBOOKS

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["--disable-gpu", "--disable-quic", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
try:
    from playwright.sync_api import expect, sync_playwright
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
SCRATCH = [
    "from palslib.study.notebook import begin\nbegin()",
    "from palslib.study.explore.methods import explore_architecture\nexplore_architecture()",
    "from palslib.study.explore.methods import explore_parameters\nexplore_parameters()",
    "explore_parameters('lhuc')",
    "from palslib.study.explore.methods import explore_schedules\nexplore_schedules()",
    "from palslib import MultiTaskModel\nfrom palslib.bert.backbones import load_tokenizer\n"
    "from palslib.study.explore.heads import explore_attention\n"
    "model = MultiTaskModel.from_backbone('tiny', 'pals-204', ['rte', 'cola'], size=12)\n"
    "explore_attention(model, load_tokenizer('tiny'))",
    "from palslib import RunConfig\nfrom palslib.study.explore.runs import explore_training\n"
    "explore_training(RunConfig(backbone='tiny', size=12, tasks=('rte', 'cola'), steps=4000, batch_size=4))",
]


@pytest.fixture(scope="module")
def screenshots(request) -> Path:
    """`runs/screenshots/`, even where the tests' own runs folder is a temporary one."""
    runs = PROJECT / "runs" if hasattr(request.config, "own_runs") else runs_folder()
    (runs / "screenshots").mkdir(parents=True, exist_ok=True)
    return runs / "screenshots"


@contextmanager
def started(command: list[str], **options):
    """A process that ends, with all that it has started, by process id."""
    process = subprocess.Popen(command, **options)
    try:
        yield process
    finally:
        family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(20)
        for child in psutil.wait_procs(family, timeout=10)[1]:
            child.kill()


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """JupyterLab with settings, kernels and runs of its own: (address, token, folder of notebooks)."""
    home = tmp_path_factory.mktemp("lab")
    for name, values in SETTINGS.items():
        path = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    (home / "notebooks").mkdir()
    cells = [nbformat.v4.new_code_cell(source) for source in SCRATCH]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=kernel), home / "notebooks" / "scratch.ipynb")
    for path in NOTEBOOKS.glob("0[235]_*.ipynb"):
        shutil.copy(path, home / "notebooks")

    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "MPLBACKEND"))}
    folders = {"CONFIG_DIR": "config", "DATA_DIR": "data", "RUNTIME_DIR": "runtime"}
    environment |= {f"JUPYTER_{name}": str(home / folder) for name, folder in folders.items()}
    environment |= {"JUPYTERLAB_SETTINGS_DIR": str(home / "settings"), "IPYTHONDIR": str(home / "ipython")}
    environment |= {"JUPYTERLAB_WORKSPACES_DIR": str(home / "workspaces"), "PALSLIB_RUNS": str(home / "runs")}
    environment |= {"JUPYTER_PREFER_ENV_PATH": "1"}
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token, address = secrets.token_hex(16), f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"]
    command += [f"--IdentityProvider.token={token}", f"--ServerApp.root_dir={home / 'notebooks'}"]
    command += ["--ServerApp.port_retries=0", "--LabApp.extension_manager=readonly"]
    command += ["--allow-root"] if os.geteuid() == 0 else []
    with (
        open(home / "log", "w") as log,
        started(command, env=environment, stdout=log, stderr=subprocess.STDOUT) as server,
    ):
        for _ in range(240):
            try:
                urllib.request.urlopen(f"{address}/api/status?token={token}", timeout=5).close()
                break
            except urllib.error.URLError:
                assert server.poll() is None, (home / "log").read_text()
                time.sleep(0.25)
        else:
            pytest.fail((home / "log").read_text())
        yield address, token, home / "notebooks"


@pytest.fixture(scope="module")
def browser():
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def open_notebook(lab, browser):
    """Opens a notebook in a new page. Nothing may be asked of another machine."""
    address, token, _ = lab
    pages, asked = [], set()

    def open_it(name: str):
        page = browser.new_page(viewport={"width": 1280, "height": 1500})
        pages.append(page)
        page.set_default_timeout(120_000)
        page.on("request", lambda request: asked.add(request.url.split("/", 3)[2] if "//" in request.url else ""))
        page.goto(f"{address}/lab/tree/{name}?token={token}&reset")
        page.locator(".jp-Notebook").wait_for()
        page.get_by_text(re.compile(r"Python 3.*\| Idle")).first.wait_for()
        return page

    yield open_it
    for page in pages:
        page.close()
    own = address.removeprefix("http://")
    assert {host for host in asked if host} <= {own}, "the page asked another machine for something"


def run_all(page, restart: bool = False) -> None:
    """`Run All Cells` from the menu, or with a new kernel; waits for the last cell or an error."""
    page.locator(".lm-MenuBar-itemLabel", has_text=re.compile(r"^Run$")).click()
    entry = "Restart Kernel and Run All Cells…" if restart else "Run All Cells"
    page.locator(".lm-Menu-itemLabel", has_text=re.compile(f"^{entry}$")).click()
    if restart:
        page.locator(".jp-Dialog button.jp-mod-accept").click()
        time.sleep(1)  # numbers of the run before are wiped when the kernel goes down
    page.wait_for_function(
        """() => {
            const prompts = [...document.querySelectorAll('.jp-Notebook .jp-CodeCell')]
                .filter(cell => cell.querySelector('.cm-content')?.innerText.trim())  // a folded one shows none
                .map(cell => cell.querySelector('.jp-InputPrompt').innerText);
            const failed = document.querySelector('.jp-Notebook [data-mime-type="application/vnd.jupyter.error"]');
            return failed || (prompts.length && prompts.every(text => /\\[\\d+\\]/.test(text)));
        }""",
        timeout=600_000,
    )
    errors = page.locator('.jp-Notebook [data-mime-type="application/vnd.jupyter.error"]')
    assert errors.count() == 0, errors.all_inner_texts()


def explorer(page, name: str, which: int = 0):
    """The box of an explorer, once it stands on the page."""
    box = page.locator(f".jp-Notebook .palslib-explore-{name}").nth(which)
    box.scroll_into_view_if_needed()
    box.locator("img").first.wait_for()
    return box


def shown(box, number: int = 0) -> bytes:
    """The bytes of a picture on the page."""
    script = """async image => {
        const bytes = new Uint8Array(await (await fetch(image.src)).arrayBuffer());
        return btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), ''));
    }"""
    return base64.b64decode(box.locator("img").nth(number).evaluate(script))


def press(box, label: str, key: str, times: int = 1) -> None:
    """Moves the slider of that label with the keyboard."""
    line = box.locator(".widget-slider", has=box.page.locator("label", has_text=re.compile(f"^{label}$")))
    line.locator(".noUi-handle").focus()
    for _ in range(times):
        box.page.keyboard.press(key)


def until(check) -> None:
    """Waits for a picture: the browser may still be putting it up."""
    stop = time.monotonic() + 30
    while not check():
        assert time.monotonic() < stop, "the picture is not what it should be"
        time.sleep(0.05)


def check_fits(box) -> None:
    """Nothing of an explorer is wider than its place."""
    script = "box => [...box.querySelectorAll('*')].every(e => e.getBoundingClientRect().right <= innerWidth)"
    assert box.evaluate(script)


def drawn(explorer) -> bytes:
    """The picture of an explorer that was driven from Python, as the notebooks draw it."""
    return next(w.value for w in explorer.results.children if type(w).__name__ == "Picture")


@pytest.fixture
def notebooks_style():
    use_style()


def move_s(box) -> None:
    """One step to the right from s = 204 is 216, for twelve heads: 8 · (2·768·216 + 36·216²) = 16,091,136 added."""
    expect(box.locator(".palslib-added")).to_have_text("14,492,160")
    before = shown(box)
    press(box, "s", "ArrowRight")
    expect(box.locator(".palslib-added")).to_have_text("16,091,136")
    expect(box.locator(".palslib-ratio")).to_have_text(f"{count_parameters('pals-204', size=216).ratio:.3f}")
    twin = explore_parameters()
    assert before == drawn(twin)
    twin.controls["size"].value = 216
    until(lambda: shown(box) == drawn(twin) != before)


def move_epoch(box) -> None:
    """In epoch 3 of 25 α = 1 − 0.8 · 2/24 = 0.933."""
    before = shown(box)
    press(box, "epoch e", "ArrowRight", times=2)
    expect(box).to_contain_text("α = 0.933")
    twin = explore_schedules()
    twin.controls["epoch"].value = 3
    until(lambda: shown(box) == drawn(twin) != before)


def type_a_sentence(box) -> None:
    """`why` `not` `?` and two special tokens are five; then nothing, Arabic and an emoji, and 600 words."""
    before = shown(box)
    first, second = box.locator("input[type=text]").nth(0), box.locator("input[type=text]").nth(1)
    second.fill("")
    second.press("Enter")
    first.fill("why not?")
    first.press("Enter")
    expect(box.locator(".palslib-note")).to_have_text("5 tokens")
    until(lambda: shown(box) != before)
    after = shown(box)
    for text, said in {
        "": "2 tokens; type",
        "مرحبا 😀": "tokens",
        "word " * 600: "was cut to the backbone's limit",
    }.items():
        first.fill(text)
        first.press("Enter")
        expect(box.locator(".palslib-note")).to_contain_text(said)
        assert box.locator(".palslib-message").inner_text().strip() == ""
    first.fill("why not?")
    first.press("Enter")
    expect(box.locator(".palslib-note")).to_have_text("5 tokens")
    until(lambda: shown(box) == after)
    press(box, "head", "ArrowRight")
    expect(box.locator(".palslib-head")).to_contain_text(re.compile(r"head 1(?!\d)"))
    until(lambda: shown(box) != after)


def test_every_explorer_in_one_notebook(open_notebook, screenshots, notebooks_style):
    page = open_notebook("scratch.ipynb")
    run_all(page)
    move_s(explorer(page, "parameters"))
    second = explorer(page, "parameters", 1)  # LHUC: 8 · 12 · 768, whatever happens in the first
    expect(second.locator(".palslib-added")).to_have_text("73,728")
    # From s = 204 in steps of 12 to 100 in steps of 1 (8 · 12 · 2 · 768 · 100), and nothing comes back from the page.
    for method, added in {"pals-204": "14,492,160", "low-rank-100": "14,745,600", "pals-276-top": "14,360,832"}.items():
        second.locator("select").first.select_option(method)
        expect(second.locator(".palslib-added")).to_have_text(added)
        page.wait_for_timeout(500)
        expect(second.locator(".palslib-added")).to_have_text(added)
    move_epoch(explorer(page, "schedules"))
    type_a_sentence(explorer(page, "attention"))

    box = explorer(page, "architecture")
    before = shown(box)
    box.locator("select").first.select_option("houlsby-64")
    expect(box).to_contain_text("adapters")
    until(lambda: shown(box) != before)

    box = page.locator(".palslib-explore-training")
    box.get_by_role("button", name="Start").click()
    expect(box).to_contain_text(re.compile(r"training: step \d"))
    box.locator("img").wait_for()
    page.wait_for_timeout(1500)  # some steps more, to be watched
    box.get_by_role("button", name="Stop").click()
    expect(box).to_contain_text(re.compile(r"stopped at step [\d,]+ of 4,000: a checkpoint is kept"))
    stopped = int(re.search(r"at step ([\d,]+)", box.inner_text())[1].replace(",", ""))
    box.get_by_role("button", name="Start").click()
    expect(box).to_contain_text(re.compile(r"training: step \d"))
    resumed = int(re.search(r"training: step ([\d,]+)", box.inner_text())[1].replace(",", ""))
    assert resumed > stopped
    box.get_by_role("button", name="Stop").click()
    expect(box).to_contain_text("a checkpoint is kept")

    for name in ("architecture", "parameters", "schedules", "attention", "training"):
        box = explorer(page, name)
        check_fits(box)
        box.screenshot(path=screenshots / f"scratch-{name}.png")
    run_all(page, restart=True)
    move_s(explorer(page, "parameters"))


@pytest.mark.parametrize(
    ("number", "name", "use"),
    [("02", "parameters", move_s), ("03", "schedules", move_epoch), ("05", "attention", type_a_sentence)],
)
def test_the_notebook_runs_from_the_menu_and_its_explorer_answers(
    open_notebook, lab, screenshots, notebooks_style, number, name, use
):
    (path,) = lab[2].glob(f"{number}_*.ipynb")
    page = open_notebook(path.name)
    run_all(page)
    box = explorer(page, name)
    use(box)
    check_fits(box)
    box.screenshot(path=screenshots / f"{number}-{name}.png")
    page.screenshot(path=screenshots / f"{number}-page.png")
