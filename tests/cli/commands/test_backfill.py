"""`tokioctl backfill`: what a user learns who may not ask for it; tests/system/test_backfill.py has the work."""

import os
import socket

import pytest
from commanded import configured
from users import READERS, SERVICE, USERS, need_users, open_directory, python


@pytest.mark.parametrize("user", ["reader", "outsider"])
def test_a_user_who_may_not_ask_the_daemon_is_told_so_and_not_that_none_runs(user):
    need_users()
    with open_directory() as directory:
        config = configured(directory)
        private = directory / "run" / "private"
        config.write_text(config.read_text().replace("[[source]]", f'[bus]\nendpoint = "ipc://{private}/bus"\n[[source]]', 1))
        for place, mode in (
            (directory / "tts", 0o750),
            (directory / "tts" / ".tokiod", 0o700),
            (directory / "run", 0o750),
            (private, 0o700),
        ):
            place.mkdir()
            os.chown(place, SERVICE, READERS)
            place.chmod(mode)
        with socket.socket(socket.AF_UNIX) as control:
            control.bind(str(private / "control"))
            words = ["backfill", "one", "2018-01-29", "2018-01-30", "--config", config]
            done = USERS[user].run(python(), "-P", "-m", "tokiod.cli.tokioctl", *words)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.endswith(f": no permission to connect to {private}/control: only root and the daemon's user have it")
