"""Run notebooks in a live JupyterLab and take screenshots: `python -m tools.lab OUT NOTEBOOK ...`.

JupyterLab runs on a copy of notebooks/ and results/. Headless Chromium (`apt-get install
chromium`, or `--chromium`) runs all cells of each notebook and writes OUT/NAME-LOOK.png for the
looks light, dark, phone and projector, or those of `--look`. Exit code: notebooks that failed.
"""

import argparse
import base64
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import websocket

from coevolve.validation import user_path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Look:
    """Width of the page in CSS pixels, device pixels of a CSS pixel, and JupyterLab's theme."""

    width: int
    scale: float
    theme: str


LOOKS = {
    "light": Look(1280, 1.0, "Light"),
    "dark": Look(1280, 1.0, "Dark"),
    "phone": Look(400, 2.0, "Light"),
    "projector": Look(1024, 1.0, "Light"),
}
WIDTH = 1280  # CSS pixels of the page while a notebook runs
HEIGHT = 900
TOKEN = secrets.token_hex(16)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TALLEST = 16_000  # device pixels of the tallest picture that Chromium paints
STATE = """(() => {
    const shell = window.jupyterapp?.shell;
    const panel = shell && [...shell.widgets('main')].find(widget => widget.context);
    const cells = panel?.content?.model?.cells;
    if (!cells || !panel.context.isReady) return {ready: false};
    shell.activateById(panel.id);
    const code = [...cells].filter(
        cell => cell.type === 'code' && cell.sharedModel.source.trim());
    const outputs = code.flatMap(cell => cell.toJSON().outputs);
    const errors = outputs.filter(output => output.output_type === 'error');
    return {ready: true,
            kernel: panel.sessionContext.session?.kernel?.status ?? '',
            code: code.length,
            run: code.filter(cell => cell.executionCount).length,
            errors: errors.map(error => `${error.ename}: ${error.evalue}`)};
})()"""
SCROLLED = "document.querySelector('.jp-NotebookPanel .jp-WindowedPanel-outer')"


class Page:
    """A tab of Chromium, controlled through its DevTools socket."""

    def __init__(self, port: int) -> None:
        tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
        pages = [tab for tab in tabs if tab["type"] == "page"]
        address = pages[0]["webSocketDebuggerUrl"]
        self.socket = websocket.create_connection(
            address, timeout=120, suppress_origin=True
        )
        self.number = 0
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **params: object) -> dict:
        """Send one command and return its result; raise RuntimeError if it fails."""
        self.number += 1
        command = {"id": self.number, "method": method, "params": params}
        self.socket.send(json.dumps(command))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("id") != self.number:  # an event
                continue
            if "error" in message:
                raise RuntimeError(f"{method}: {message['error']['message']}")
            return message["result"]

    def value(self, script: str) -> object:
        """Evaluate JavaScript and await a promise; raise RuntimeError if it throws."""
        result = self.call(
            "Runtime.evaluate",
            expression=script,
            returnByValue=True,
            awaitPromise=True,
        )
        if "exceptionDetails" in result:
            exception = result["exceptionDetails"].get("exception", {})
            raise RuntimeError(exception.get("description", script))
        return result["result"].get("value")

    def state(self) -> dict:
        """Return whether the notebook is ready, its kernel, and how many cells ran or failed."""
        return self.value(STATE)

    def resize(self, width: int, height: int, scale: float) -> None:
        """Set the size of the page in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=False,
        )


def wait(ready: Callable, seconds: float, what: str) -> object:
    """Poll until `ready` returns something true, and return it; raise RuntimeError after a time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = ready()
        if value:
            return value
        time.sleep(0.5)
    raise RuntimeError(f"{what}: nothing after {seconds:.0f} seconds")


def copy_notebooks(folder: Path) -> None:
    """Copy notebooks and results, which notebooks may overwrite; link the folders they read."""
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    for name in ("docs", "reproduce", "benchmarks", "src"):
        (folder / name).symlink_to(ROOT / name)
    ignore = shutil.ignore_patterns("runs", "scratch")
    shutil.copytree(ROOT / "results", folder / "results", ignore=ignore)


def write_settings(folder: Path) -> None:
    """Make JupyterLab paint all cells, not only the visible ones, and fetch no news."""
    settings = {
        "notebook-extension/tracker": {"windowingMode": "none"},
        "apputils-extension/notification": {"fetchNews": "false"},
    }
    for name, values in settings.items():
        file = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")


def run_until_closed(
    stack: ExitStack, command: Sequence[str], folder: Path, env: Mapping[str, str]
) -> None:
    """Run a command until the stack closes; what it prints goes to the folder's log."""
    with (folder / "log").open("a") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    stack.callback(process.wait)
    stack.callback(process.terminate)


def start_chromium(stack: ExitStack, folder: Path, chromium: str) -> Page:
    """Start Chromium, which keeps its files in a folder, until the stack closes."""
    command = [
        *(chromium, "--headless=new", "--no-sandbox", "--hide-scrollbars"),
        "--remote-debugging-port=0",
        f"--user-data-dir={folder / 'browser'}",
        "about:blank",
    ]
    run_until_closed(stack, command, folder, os.environ)
    ports = wait(
        lambda: list((folder / "browser").glob("DevToolsActivePort")), 60, "Chromium"
    )
    time.sleep(1)  # the file is not written atomically
    return Page(int(ports[0].read_text().split()[0]))


def start(stack: ExitStack, folder: Path, chromium: str) -> tuple[int, Page]:
    """Start JupyterLab and Chromium until the stack closes; return JupyterLab's port and a page."""
    env = os.environ | {
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
    }
    env.setdefault("OMP_NUM_THREADS", "1")  # as in `make lab`
    lab = [
        *(sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root"),
        f"--IdentityProvider.token={TOKEN}",
        "--LabApp.expose_app_in_browser=True",
        "--ServerApp.port=0",
        f"--ServerApp.root_dir={folder}",
    ]
    run_until_closed(stack, lab, folder, env)
    page = start_chromium(stack, folder, chromium)
    servers = wait(
        lambda: list((folder / "runtime").glob("jpserver-*.json")), 120, "JupyterLab"
    )
    time.sleep(1)  # the file is not written atomically
    return json.loads(servers[0].read_text())["port"], page


def finished(page: Page) -> dict | None:
    """Return the state of the notebook if all its cells ran or one failed."""
    state = page.state()
    all_ran = state["run"] == state["code"]
    if state["kernel"] == "idle" and (state["errors"] or all_ran):
        return state
    return None


def run(page: Page, address: str, minutes: float) -> dict:
    """Open a notebook, run all its cells, and return its state after the last one."""
    page.resize(WIDTH, HEIGHT, 1.0)
    page.call("Page.navigate", url=address)
    wait(lambda: page.state()["ready"], 120, "the notebook")
    wait(lambda: page.state()["kernel"] == "idle", 120, "the kernel")
    page.value("window.jupyterapp.commands.execute('notebook:run-all-cells'), true")
    state = wait(lambda: finished(page), 60 * minutes, "a cell that runs")
    time.sleep(2)  # mathematics and pictures
    return state


def photograph(page: Page, look: Look, file: Path) -> None:
    """Write a screenshot of the whole notebook, cut where Chromium stops painting."""
    theme = f"{{theme: 'JupyterLab {look.theme}'}}"
    page.value(f"window.jupyterapp.commands.execute('apputils:change-theme', {theme})")
    page.value("window.jupyterapp.shell.collapseLeft()")
    page.resize(look.width, HEIGHT, look.scale)
    time.sleep(1)
    height = int(page.value(SCROLLED + ".scrollHeight")) + 200
    page.resize(look.width, min(height, int(TALLEST / look.scale)), look.scale)
    page.value(SCROLLED + ".scrollTop = 0")
    time.sleep(5)  # cells that were never visible are painted now
    picture = page.call("Page.captureScreenshot", format="png")
    file.write_bytes(base64.b64decode(picture["data"]))


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=user_path)
    parser.add_argument("notebooks", type=user_path, nargs="+")
    parser.add_argument("--look", choices=LOOKS, action="append")
    parser.add_argument(
        "--minutes", type=float, default=20.0, help="limit of one notebook"
    )
    parser.add_argument("--chromium", default=CHROMIUM)
    options = parser.parse_args(arguments)
    if options.chromium is None:
        parser.error("Chromium is not on the PATH: name it with --chromium")
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every notebook once, take its screenshots; return how many notebooks failed."""
    options = parse_arguments(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    failures = 0
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        ExitStack() as stack,
    ):
        folder = Path(home)
        copy_notebooks(folder)
        write_settings(folder)
        port, page = start(stack, folder, options.chromium)
        for notebook in options.notebooks:
            began = time.monotonic()
            name = notebook.resolve().relative_to(ROOT)
            address = f"http://127.0.0.1:{port}/lab/tree/{name}?reset&token={TOKEN}"
            state = run(page, address, options.minutes)
            if state["errors"]:
                failures += 1
            seconds = time.monotonic() - began
            print(
                f"{name}: {state['run']} of {state['code']} cells, {seconds:.0f} s",
                *state["errors"],
            )
            for look in options.look or LOOKS:
                photograph(
                    page, LOOKS[look], options.out / f"{notebook.stem}-{look}.png"
                )
    return failures


if __name__ == "__main__":
    sys.exit(main())
