"""The run of `tokiod demo`: a simulated site is archived live, the writer is killed, every cell is compared at the end."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.live import Live

from tokiod.cli.commands.status import gathered
from tokiod.cli.commands.status_view import rendered
from tokiod.clock import SimulatedClock, SystemClock
from tokiod.errors import TokiodError
from tokiod.reader.followed_file import FollowedFile
from tokiod.simulator.scene import Scene, wait_for
from tokiod.simulator.site import Site
from tokiod.simulator.sources import ALL, JOBS, NODES
from tokiod.window import iso

if TYPE_CHECKING:
    from tokiod.simulator.compare import Comparison
    from tokiod.simulator.jobs.one_load import Agreement

HISTORY_SECONDS = 1800
"""Simulated seconds before the daemon's start, so that it has gaps to heal at once."""
ON_PURPOSE = """\
On purpose, the writer was killed once, and the simulated sources are late, refuse, hang, answer in part and lose their counters.
What lfs and lctl did not answer is lost, because they know the present alone. Late is what is older than the site, whose first sample is
of {first}: the daemon asks for {hours:.1f} h."""
MAX_START_SECONDS = 60
"""Real seconds that a busy machine may need to start the daemon; they are not among the demo's."""
MAX_IDLE_SECONDS = 60
"""Real seconds without a stored window after which the demo doesn't wait any longer for its archive."""
COMMAND_TIMEOUT_SECONDS = 3
"""Real seconds until a hanging command is ended. They are minutes of the demo in which nothing is known of Lustre."""


def demonstrate(directory: Path | None, seconds: int, rate: int, seed: int, page: int = 0) -> bool:
    """Run the demo, print its events and return whether every cell is correct. Raises TokiodError if it can't continue.

    page: real seconds for which the live page stays after everything is stored; 0: no page.
    """
    directory = (directory or Path(tempfile.mkdtemp(prefix="tokiod-demo-"))).absolute()
    if (directory / "tokiod.toml").exists():
        raise TokiodError(f"{directory} already holds a demo: remove it or name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TokiodError(f"cannot create {directory}: {error.strerror}; name another directory") from error
    now = SystemClock().time()
    clock = SimulatedClock(float(int(now) // 300 * 300), now, rate)
    # Jobs act once in a minute, so that LMT and the job table can be compared minute by minute.
    site = Site(epoch=int(clock.epoch) - HISTORY_SECONDS, seed=seed, timezone="UTC", acts=1)
    scene = Scene(
        directory, site, clock, retention=HISTORY_SECONDS + 4 * 3600, sources=(*ALL, NODES), command_timeout=COMMAND_TIMEOUT_SECONDS
    )
    console = Console()
    console.print(
        f"simulating an LMT database, collectd's documents in Elasticsearch, ESnet's rates, and the programs mmperfmon, lfs and lctl"
        f" with jobs, and the agents of compute nodes, at {rate} times real time; a daemon archives them in {directory}",
        soft_wrap=True,
    )
    scene.prepare()
    try:
        scene.start_simulator()
        address = scene.start_web() if page else ""
        scene.start_daemon()
        if page:
            console.print(f"the live page, for users of this machine: {address}", style="bold", soft_wrap=True)
        _play(scene, seconds, console)
        if page:
            console.print(f"{address} stays for {page} s, and the daemon goes on; Ctrl-C ends both", soft_wrap=True)
            time.sleep(page)  # noqa: TID251 - real time
            _wait_complete(scene, console)
        code = scene.stop_daemon()
    finally:
        scene.close()
    return is_right(scene, console) and code == 0


def is_right(scene: Scene, console: Console) -> bool:
    """Compare the archive with the site, print the differences and how to look at the files; return whether every cell is correct."""
    comparison, agreement = scene.compare(), scene.compare_load()
    _tell(scene, comparison, agreement, console)
    return comparison.equal and comparison.filled > 0 and (agreement is None or not agreement.different)


def _play(scene: Scene, seconds: int, console: Console) -> None:
    """Show the status live, from the first stored windows of all sources on for so many seconds, and until all is stored.

    The writer is killed after half of them.
    A source of the present alone may store nothing on a machine that is too busy for the rate: the demo does not wait for it for ever.
    """
    start = SystemClock().monotonic()
    has_begun = killed = False
    with Live(rendered(gathered(scene.config, scene.clock)), console=console, auto_refresh=False) as live:
        while (passed := SystemClock().monotonic() - start) < seconds or not has_begun:
            if not has_begun and (passed > MAX_START_SECONDS or all(map(scene.stored, scene.sources))):
                has_begun, start, passed = True, SystemClock().monotonic(), 0.0
            if has_begun and not killed and passed > seconds / 2 and (pid := scene.pid("writer")) is not None:
                killed = scene.kill("writer")
                live.console.print(f"kill -9 {pid}: the writer was killed on purpose, the daemon continues", style="bold yellow")
            live.update(rendered(gathered(scene.config, scene.clock)), refresh=True)
            time.sleep(0.5)  # noqa: TID251 - real time
        _wait_complete(scene, console)
        live.update(rendered(gathered(scene.config, scene.clock)), refresh=True)
    if not console.is_terminal:
        console.print()  # without a terminal rich leaves the table's last line open


def _wait_complete(scene: Scene, console: Console) -> None:
    """Wait until all data up to now is stored: on a slow machine for as long as windows are stored."""
    start, end = scene.site.epoch, int(scene.clock.time()) // scene.window * scene.window
    if console.is_terminal:
        console.print("waiting for the last windows to be stored")

    def is_less() -> bool:
        return scene.left_to_store(start, end) < left

    while left := scene.left_to_store(start, end):
        wait_for(is_less, MAX_IDLE_SECONDS, f"the archive did not become complete; see {scene.log}")


def _tell(scene: Scene, comparison: Comparison, agreement: Agreement | None, console: Console) -> None:
    for difference in [*comparison.differences[:20], *(agreement.different[:20] if agreement else ())]:
        console.print(str(difference), style="red", highlight=False)
    verdict = ", ".join(f"{comparison.counts[kind]} {kind}" for kind in ("lost", "extra", "different"))
    console.print(ON_PURPOSE.format(first=iso(scene.site.epoch), hours=scene.retention / 3600).replace("\n", " "), highlight=False)
    console.print(
        f"{comparison.cells} cells compared with the simulator, {comparison.filled} hold a number: {verdict}",
        style="bold",
        soft_wrap=True,
    )
    if agreement:
        console.print(
            f"{agreement.nbytes / 1e9:.1f} GB that jobs read and wrote by the job table compared with what LMT counted: "
            f"{agreement.sums} sums of an OST over a minute, {len(agreement.different)} differ",
            style="bold",
            soft_wrap=True,
        )
    programs = Path(sys.executable).parent
    console.print("inspect the files (h5dump is in Debian's hdf5-tools) and the archive:")
    for source in scene.sources:
        for path in scene.files(source):
            for row in _first_number(path, source.shown):
                console.print(f"  h5dump -d /{source.shown} -s {row},0 -c 12,4 {path}", highlight=False, soft_wrap=True)
    for command in ("status", f"top {JOBS.system} --once", f"top {NODES.system} --once"):
        console.print(
            f"  {programs}/tokioctl {command} --config {scene.config_path} --clock {scene.clock}", highlight=False, soft_wrap=True
        )
    console.print(f"log: {scene.log}", highlight=False, soft_wrap=True)


def _first_number(path: Path, dataset: str) -> list[int]:
    """Return the first row with a number, if any: the files of hours before the site's start and of tomorrow are empty."""
    with FollowedFile(path) as file:
        _, _, cells = file.read(dataset, 0, 2**62)
    return [int(row) for row in np.flatnonzero(~np.isnan(cells).all(axis=1))[:1]]
