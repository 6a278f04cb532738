"""`python -m tokiod.agent`: the agent's command line on a node that has no other part of tokiod, and needs no package."""

from __future__ import annotations

import argparse
import os
import platform
import signal
import sys
import time

from tokiod import __version__
from tokiod.agent.report import MAX_SECONDS, MIN_SECONDS, as_json, as_text, node_report
from tokiod.agent.sensors import SENSORS, sensors_of
from tokiod.agent.settings import DEFAULT_CONFIG, SettingsError, read_settings, settings_of_node
from tokiod.agent.tree import Tree

_SENSOR_NAMES = frozenset(sensor.name for sensor in SENSORS)


def main() -> int:
    """Run the command line of this process."""
    about = "Report what the sensors of this node measure to the hub, or print it."
    parser = argparse.ArgumentParser("tokiod agent", description=about, allow_abbrev=False)
    parser.add_argument("--config", default=DEFAULT_CONFIG, help=f"the configuration; default: {DEFAULT_CONFIG}")
    parser.add_argument("--once", action="store_true", help="print what this node would report, and end")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--seconds", type=float, help="measure for so long: increases of counters and means of gauges")
    parser.add_argument("--root", default="/", help="directory below which /proc, /sys and /dev are read; default: /")
    parser.add_argument("--version", action="version", version=f"tokiod {__version__}")
    options = parser.parse_args()
    if options.seconds is not None and not MIN_SECONDS <= options.seconds <= MAX_SECONDS:
        parser.error(f"--seconds is at least {MIN_SECONDS:g} and at most {MAX_SECONDS:g}")
    if not os.path.isdir(options.root):
        parser.error(f"--root: no directory {options.root}")
    if not options.once and (options.json or options.seconds):
        parser.error("--json and --seconds need --once")
    try:
        return _once(parser, options) if options.once else _run(parser, options.config, options.root)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _once(parser: argparse.ArgumentParser, options: argparse.Namespace) -> int:
    try:
        settings = settings_of_node(options.config, platform.node(), _SENSOR_NAMES)
    except SettingsError as error:
        parser.exit(2, _as_messages(error))
    clocks = time.time, time.monotonic  # noqa: TID251 - the clock enters here
    if options.seconds and sys.stderr.isatty():
        sys.stderr.write(f"tokiod agent: measuring for {options.seconds:g} s\n")
    found = node_report(platform.node(), *clocks, sensors_of(Tree(options.root), settings), options.seconds or 0.0)
    try:
        sys.stdout.write((as_json(found) if options.json else as_text(found)) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough. Python would flush again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        parser.exit(2, f"tokiod agent: cannot write to stdout: {error.strerror}\n")
    return 0


def _run(parser: argparse.ArgumentParser, config: str, root: str) -> int:
    try:
        settings = read_settings(config, platform.node(), _SENSOR_NAMES)
        from tokiod.agent.service import run_agent  # noqa: PLC0415 - pyzmq, which --once does not need
    except SettingsError as error:
        parser.exit(2, _as_messages(error))
    except ImportError as error:
        parser.exit(2, f"tokiod agent: pyzmq is missing ({error}): install it, or use the package tokiod-agent, which contains it\n")
    try:
        run_agent(settings, root, time.time, time.monotonic)  # noqa: TID251 - the clock enters here
    except SettingsError as error:
        parser.exit(2, _as_messages(error))
    return 0


def _as_messages(error: SettingsError) -> str:
    return "".join(f"tokiod agent: {line}\n" for line in str(error).splitlines())


if __name__ == "__main__":
    sys.exit(main())
