"""Take pictures of every view of the page, to be looked at: `python -m tests.screenshots DIRECTORY [--only KIND] [--docs]`.

Each view at three widths, light and dark, in each scene (see scene.py); and in the usual scene in print, in the colours of a system with
forced ones, without the daemon, without `tokiod web`, with a damaged file and with an empty archive. Then a sheet for each scene and each
of the two modes. --docs: the pictures of docs/web.md instead. Exit 1 if a page logged an error or did not become ready.
"""

from __future__ import annotations

import argparse
import base64
import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.screenshots.scene import FAILED, KINDS, LOST, MIDNIGHT, NOW, STEP, Scene
from tests.support import browser as chromium
from tests.support.waiting import wait_for
from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from selenium.webdriver import Chrome

WIDTHS = {"wide": 1440, "middle": 820, "narrow": 390}
MODES = {"light": "light", "dark": "dark"}
PAST = f"system=cscratch&start={MIDNIGHT + LOST[0] * STEP - 900}&end={MIDNIGHT + FAILED[1] * STEP + 4200}"
VIEWS = {
    "map": f"?{PAST}&target=OST0007",
    "jobs": "?view=jobs&system=cscratch&live=3600",
    "calendar": "?view=calendar&system=cscratch",
    "systems": "?view=systems",
    "sources": "?view=sources",
    "gaps": "?view=gaps&days=1",
    "stages": "?view=stages",
}
READY = """
const {shown} = document.body.dataset;
return shown && (shown !== "map" || "complete" in document.getElementById("picture").dataset || !document.getElementById("error").hidden);
"""
SETTLE_SECONDS = 0.4


class Camera:
    """A Chromium that takes pictures of one address. faults: what pages logged, and which were not ready."""

    def __init__(self, driver: Chrome, place: Path) -> None:
        self.driver, self.place, self.faults = driver, place, list[str]()

    def look(self, width: int, mode: str = "light", media: str = "screen", *, forced: bool = False) -> None:
        """Emulate a screen."""
        features = [{"name": "prefers-color-scheme", "value": mode}, {"name": "forced-colors", "value": "active" if forced else "none"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": media, "features": features})
        self.driver.execute_cdp_cmd("Emulation.setScrollbarsHidden", {"hidden": True})
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def open(self, address: str, *, expected: bool = False) -> None:
        """Open a page and wait until it is ready. expected: whether it has a failed request."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")  # what the page before logged
        self.driver.get(address)
        try:
            wait_for(lambda: bool(self.driver.execute_script(READY)), 20, "not ready")
        except TokiodError:
            self.faults.append(f"{address} is not ready")
        time.sleep(SETTLE_SECONDS)
        faults = [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]
        self.faults += [] if expected else [f"{address}: {fault}" for fault in faults]

    def take(self, name: str, highest: int = 3000) -> Path:
        """Save a picture of the whole page, or of its first pixels."""
        path = self.place / f"{name}.png"
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], highest), "scale": 1}
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        path.write_bytes(base64.b64decode(found["data"]))
        return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--only", choices=KINDS, action="append", default=[])
    parser.add_argument("--docs", action="store_true")
    given = parser.parse_args()
    given.directory.mkdir(parents=True, exist_ok=True)
    with _camera(given.directory) as camera:
        if given.docs:
            _documents(camera)
        else:
            for kind in given.only or KINDS:
                with _scene(kind) as scene:
                    with scene.daemon(), scene.served(f"{NOW}@0x0"):
                        _all_views(camera, kind, scene.address)
                        if kind == "usual":
                            _other_looks(camera, scene.address)
                    if kind == "usual":
                        _with_troubles(camera, scene)
    print(f"{len(list(given.directory.glob('*.png')))} pictures in {given.directory}, {len(camera.faults)} faults")
    for fault in camera.faults:
        print(fault)
    return bool(camera.faults)


def _all_views(camera: Camera, kind: str, address: str) -> None:
    for mode in MODES:
        taken = {}
        for size, width in WIDTHS.items():
            camera.look(width, mode)
            for view, where in VIEWS.items():
                camera.open(f"{address}/{where}")
                taken[view, size] = camera.take(f"{kind}-{mode}-{view}-{size}")
        for view in VIEWS:
            _sheet(camera.place / f"sheet-{kind}-{mode}-{view}.png", [taken[view, size] for size in WIDTHS])


def _other_looks(camera: Camera, address: str) -> None:
    for name, look in {"print": {"media": "print"}, "forced": {"forced": True}, "forced-dark": {"forced": True, "mode": "dark"}}.items():
        camera.look(WIDTHS["middle"], **look)
        for view, where in VIEWS.items():
            camera.open(f"{address}/{where}")
            camera.take(f"{name}-{view}")


def _with_troubles(camera: Camera, scene: Scene) -> None:
    """Show what the page does while a part of the installation fails."""
    camera.look(WIDTHS["middle"])
    with scene.served(f"{NOW}@0x0"):
        camera.open(f"{scene.address}/{VIEWS['map']}")
        camera.take("trouble-daemon-down")
    time.sleep(3)
    camera.take("trouble-web-down")
    (day,) = (scene.config.archive.root / "2018-01-29").glob("cscratch.hdf5")
    with day.open("r+b") as file:
        file.write(bytes(4096))
    with scene.served(f"{NOW}@0x0"):
        for view, where in VIEWS.items():
            camera.open(f"{scene.address}/{where}", expected=True)
            camera.take(f"trouble-damaged-{view}")
        camera.open(f"{scene.address}/{VIEWS['map'].replace('cscratch', 'community')}")
        camera.take("trouble-damaged-other")
    shutil.rmtree(scene.config.archive.root)
    shutil.rmtree(scene.config.stages)
    with scene.served(f"{NOW}@0x0"):
        for view, where in VIEWS.items():
            camera.open(f"{scene.address}/{where}", expected=True)
            camera.take(f"trouble-empty-{view}")


def _documents(camera: Camera) -> None:
    with _scene("usual") as scene, scene.daemon(), scene.served(f"{NOW}@0x0"):
        for mode, suffix in (("light", ""), ("dark", "-dark")):
            camera.look(1100, mode)
            camera.open(f"{scene.address}/{VIEWS['map']}")
            wait_for(lambda: "live" in camera.driver.find_element("id", "state").text, 30, "not live")
            for view in ("map", *(() if suffix else ("stages", "calendar", "jobs"))):
                camera.open(f"{scene.address}/{VIEWS[view]}")
                camera.take(f"{view}{suffix}", 800 if view == "jobs" else 3000)


@contextmanager
def _scene(kind: str) -> Iterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory:
        yield Scene(Path(directory) / "site", kind)


@contextmanager
def _camera(place: Path) -> Iterator[Camera]:
    driver = chromium.started()
    try:
        yield Camera(driver, place)
    finally:
        driver.quit()


def _sheet(path: Path, parts: list[Path]) -> None:
    """Join pictures side by side."""
    from PIL import Image  # noqa: PLC0415 - comes with matplotlib

    pictures = [Image.open(one) for one in parts]
    sheet = Image.new("RGB", (sum(one.width for one in pictures), max(one.height for one in pictures)), "#888")
    left = 0
    for one in pictures:
        sheet.paste(one, (left, 0))
        left += one.width
    sheet.save(path)


if __name__ == "__main__":
    sys.exit(main())
