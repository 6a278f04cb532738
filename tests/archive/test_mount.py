"""An archive whose file system is not mounted: each command says so, and no second archive is begun in the mount point."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tokiod.archive import mount
from tokiod.archive.mount import NotMounted, check_mounted
from tokiod.config import load as configuration

CONFIG = """\
timezone = "UTC"
[archive]
path = "{0}/arch ive/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{0}/bus"
[feed]
endpoint = "ipc://{0}/feed"
[[source]]
name = "one"
kind = "lustre"
system = "fs"
mounts = ["/fs"]
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tokiod.toml"
    path.write_text(CONFIG.format(tmp_path))
    (tmp_path / "arch ive").mkdir()
    return configuration.load(path)


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("/dev/sdb1 {0}/arch\\040ive xfs defaults 0 2", True),
        ("/dev/sdb1\t{0} ext4", False),
        ("  nfs:/x {0} nfs rw,hard", True),
        ("/dev/sdb1 {0}/arch xfs defaults 0 2", False),
        ("/dev/sdb1 {0} xfs noauto,rw 0 2", False),
        ("tmpfs {0} tmpfs rw 0 0", False),
        ("# /dev/sdb1 {0} xfs defaults 0 2", False),
        ("/dev/sda1 / ext4 defaults 0 1\n/dev/sda2 none swap sw 0 0", False),
        ("proc /proc proc defaults 0 0", False),
        ("tank /dev/shm/ xfs defaults 0 2\ntank {0}/ xfs defaults 0 2", True),
        ("tank /dev/shm/ xfs defaults 0 2\ntank /tmp/ xfs noauto 0 2", False),
    ],
)
def test_an_archive_below_a_file_system_that_is_not_mounted_is_not_there(tmp_path, config, monkeypatch, line, is_refused):
    (tmp_path / "fstab").write_text(line.format(tmp_path) + "\n")
    monkeypatch.setattr(mount, "FSTAB", tmp_path / "fstab")
    if is_refused:
        with pytest.raises(NotMounted, match=r"^the archive .*/arch ive/tts is not there: .* of /etc/fstab is not mounted: mount "):
            check_mounted(config.archive)
        config.archive.private.mkdir(parents=True)
        config.archive.ledger.touch()
    check_mounted(config.archive)


def test_commands_and_the_daemon_say_that_the_archive_is_not_mounted_and_go_on_once_it_is(tmp_path, config):
    """`status` said "start it", and whoever obeyed got a second, empty archive in the mount point."""
    if os.geteuid():
        pytest.skip("only root may mount a file system")
    (tmp_path / "fstab").write_text(f"tank {tmp_path}/arch\\040ive xfs defaults 0 2\n")
    script = """
        set -u; mount --bind "$1/fstab" /etc/fstab || exit 77
        for round in 1 2; do
            for command in "tokioctl status" "tokioctl gaps" "tokiod run" "tokiod writer"; do
                [ "$round $command" = "2 tokiod run" ] && continue; [ "$round $command" = "2 tokiod writer" ] && continue
                "$2"/$command --config "$1/tokiod.toml" >"$1/out" 2>&1 </dev/null; echo "$? $(tail -n 1 "$1/out" | cut -c 1-500)"
            done
            mount -t tmpfs tmpfs "$1/arch ive"
        done
    """
    line = ["unshare", "--mount", "sh", "-c", script, "sh", str(tmp_path), str(Path(sys.executable).parent)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode == 77:
        pytest.skip(f"nothing can be mounted here: {done.stderr}")
    *before, status, gaps = done.stdout.splitlines()
    assert len(before) == 4, done
    place = f"{tmp_path}/arch ive"
    assert {said[:1] for said in before} == {"2"}
    assert all(said.endswith(f"{place} of /etc/fstab is not mounted: mount {place}") for said in before), before
    assert not config.archive.root.exists()
    assert (status[:1], "has never run on this archive" in gaps) == ("2", True)
