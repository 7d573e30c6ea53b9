"""Run notebooks in a live JupyterLab and photograph them: `python -m tools.lab OUT notebooks/start_here.ipynb ...`.

JupyterLab runs on a copy of notebooks/ and results/, so nothing here changes. Chromium opens each notebook without a
window, runs all its cells and writes OUT/NAME-LOOK.png. Looks: light, dark, phone, projector; `--look phone` asks for
one. The exit code counts the notebooks in which a cell failed. Needs Chromium (`apt-get install chromium`, or name it
with `--chromium`).
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
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import websocket

ROOT = Path(__file__).resolve().parents[1]
LOOKS = {  # name: width in CSS pixels, device pixels a CSS pixel, JupyterLab's theme
    "light": (1280, 1.0, "Light"),
    "dark": (1280, 1.0, "Dark"),
    "phone": (400, 2.0, "Light"),
    "projector": (1024, 1.0, "Light"),
}
HEIGHT = 900  # of the page while a notebook runs
TOKEN = secrets.token_hex(16)
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
TALLEST = 16_000  # device pixels: what Chromium paints in one picture
STATE = """(() => {
    const shell = window.jupyterapp?.shell, panel = shell && [...shell.widgets('main')].find(one => one.context);
    const cells = panel?.content?.model?.cells;
    if (!cells || !panel.context.isReady) return {ready: false};
    shell.activateById(panel.id);
    const code = [...cells].filter(cell => cell.type === 'code' && cell.sharedModel.source.trim());
    const outputs = code.flatMap(cell => cell.toJSON().outputs);
    return {ready: true, kernel: panel.sessionContext.session?.kernel?.status ?? '', code: code.length,
            run: code.filter(cell => cell.executionCount).length,
            errors: outputs.filter(o => o.output_type === 'error').map(o => `${o.ename}: ${o.evalue}`)};
})()"""
SCROLLED = "document.querySelector('.jp-NotebookPanel .jp-WindowedPanel-outer')"


class Page:
    """A tab of Chromium, told what to do over its DevTools socket."""

    def __init__(self, port: int) -> None:
        tabs = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        self.socket = websocket.create_connection(address, timeout=120, suppress_origin=True)
        self.number = 0
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)

    def call(self, method: str, **params: object) -> dict:
        """Send one command and return its result."""
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            said = json.loads(self.socket.recv())
            if said.get("id") == self.number:
                if "error" in said:
                    raise RuntimeError(f"{method}: {said['error']['message']}")
                return said["result"]

    def value(self, script: str) -> object:
        """Evaluate JavaScript, a promise awaited."""
        said = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in said:
            raise RuntimeError(said["exceptionDetails"].get("exception", {}).get("description", script))
        return said["result"].get("value")

    def size(self, width: int, height: int, scale: float) -> None:
        """Give the page a size in CSS pixels."""
        params = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **params)


def wait(ready: Callable, seconds: float, what: str) -> object:
    """Poll until `ready` says something true, and return it; a RuntimeError after that many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := ready():
            return found
        time.sleep(0.5)
    raise RuntimeError(f"{what}: nothing after {seconds:.0f} seconds")


def copied(folder: Path) -> None:
    """Copy the notebooks, and results that they may write over, into a folder; what they only read is linked."""
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    for name in ("docs", "reproduce", "benchmarks", "src"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "results", folder / "results", ignore=shutil.ignore_patterns("runs", "scratch"))


def settled(folder: Path) -> None:
    """Let JupyterLab paint every cell, not only those in view, and ask for no news."""
    said = {
        "notebook-extension/tracker": {"windowingMode": "none"},
        "apputils-extension/notification": {"fetchNews": "false"},
    }
    for name, values in said.items():
        file = folder / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values), encoding="utf-8")


def started(stack: ExitStack, folder: Path, chromium: str) -> tuple[int, Page]:
    """Start JupyterLab and Chromium until the stack closes; its port, and a page."""
    home = {"JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    # One thread, as `make lab` gives.
    home["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "1")
    lab = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root", f"--IdentityProvider.token={TOKEN}"]
    lab += ["--LabApp.expose_app_in_browser=True", "--ServerApp.port=0", f"--ServerApp.root_dir={folder}"]
    browser = [chromium, "--headless=new", "--no-sandbox", "--hide-scrollbars", "--remote-debugging-port=0"]
    browser += [f"--user-data-dir={folder / 'browser'}", "about:blank"]
    with (folder / "log").open("w") as log:
        for command in (lab, browser):
            child = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **home})
            stack.callback(child.wait)
            stack.callback(child.terminate)
    served = wait(lambda: list((folder / "runtime").glob("jpserver-*.json")), 120, "JupyterLab")
    opened = wait(lambda: list((folder / "browser").glob("DevToolsActivePort")), 60, "Chromium")
    time.sleep(1)  # both files are written in one go, but not atomically
    return json.loads(served[0].read_text())["port"], Page(int(opened[0].read_text().split()[0]))


def run(page: Page, address: str, minutes: float) -> dict:
    """Open a notebook, run all its cells and wait for the last; what came of them."""
    page.size(1280, HEIGHT, 1.0)
    page.call("Page.navigate", url=address)
    wait(lambda: page.value(STATE)["ready"], 120, "the notebook")
    wait(lambda: page.value(STATE)["kernel"] == "idle", 120, "the kernel")
    page.value("window.jupyterapp.commands.execute('notebook:run-all-cells'), true")
    said = wait(
        lambda: (now := page.value(STATE))["kernel"] == "idle" and (now["errors"] or now["run"] == now["code"]) and now,
        60 * minutes,
        "a cell that runs",
    )
    time.sleep(2)  # mathematics and pictures
    return said


def photograph(page: Page, look: str, file: Path) -> None:
    """Write the whole notebook as one picture, cut where Chromium would stop painting."""
    width, scale, theme = LOOKS[look]
    page.value(f"window.jupyterapp.commands.execute('apputils:change-theme', {{theme: 'JupyterLab {theme}'}})")
    page.value("window.jupyterapp.shell.collapseLeft()")
    page.size(width, HEIGHT, scale)
    time.sleep(1)
    page.size(width, min(int(page.value(SCROLLED + ".scrollHeight")) + 200, int(TALLEST / scale)), scale)
    page.value(SCROLLED + ".scrollTop = 0")
    time.sleep(5)  # cells that were never in view are painted now
    file.write_bytes(base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"]))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run every notebook once and photograph it in every look; the number of those that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("notebooks", type=Path, nargs="+")
    parser.add_argument("--look", choices=LOOKS, action="append")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long one notebook may take")
    parser.add_argument("--chromium", default=CHROMIUM)
    given = parser.parse_args(arguments)
    if given.chromium is None:
        parser.error("Chromium is not on the PATH: name it with --chromium")
    given.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home, ExitStack() as stack:
        folder = Path(home)
        copied(folder)
        settled(folder)
        port, page = started(stack, folder, given.chromium)
        for notebook in given.notebooks:
            began = time.monotonic()
            name = notebook.resolve().relative_to(ROOT)
            said = run(page, f"http://127.0.0.1:{port}/lab/tree/{name}?reset&token={TOKEN}", given.minutes)
            failed += bool(said["errors"])
            print(f"{name}: {said['run']} of {said['code']} cells, {time.monotonic() - began:.0f} s", *said["errors"])
            for look in given.look or LOOKS:
                photograph(page, look, given.out / f"{notebook.stem}-{look}.png")
    return failed


if __name__ == "__main__":
    sys.exit(main())
