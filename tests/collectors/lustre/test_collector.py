"""The live collector, over scripts that play lfs and lctl."""

import asyncio
import time

import pytest
from lustre_site import df, df_inodes, dl, servers

from collectors import lustre
from collectors.lustre.datasets import FULLNESS, INODES
from tokiod.collector import Site
from tokiod.errors import Fatal, Transient
from tokiod.polling.retry import classify
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import CollectorContract, collected, samples, within
from tokiod.window import Calendar, Window

START, STEP = 1_517_126_400, 60
NOW = Window(START, START + STEP)
A = {f"a-OST{index:04x}": (1000, 100 + index) for index in range(4)} | {"a-MDT0000": (10, 1)}
B = {"b-OST0000": (500, 5)}
INODES_OF_A = {name: (total // 2, used // 2) for name, (total, used) in A.items()}


class Passing(FakeClock):
    """A clock whose time passes when a task sleeps."""

    async def sleep(self, seconds):
        self.jump(seconds)


class Client:
    """A client of two file systems; its commands are scripts that can be replaced."""

    def __init__(self, directory):
        self.directory = directory
        self.clock = Passing(START + 2)
        self.lfs(f"case $3$4 in /a) cat <<'END'\n{df(A, '/a')}END\n;; /b) cat <<'END'\n{df(B, '/b')}END\n;; "
                 f"-i/a) cat <<'END'\n{df_inodes(INODES_OF_A, '/a')}END\n;; esac")  # fmt: skip
        self.lctl(f"cat <<'END'\n{dl(servers([*A, *B]))}END")

    def script(self, name, text):
        path = self.directory / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def lfs(self, text):
        self.script("lfs", text)

    def lctl(self, text):
        self.script("lctl", text)

    def collector(self, **options):
        given = {"mounts": ("/a",), "lfs": (f"{self.directory}/lfs",), "lctl": (f"{self.directory}/lctl",), "command_timeout": 1}
        config = lustre.Config(name="l", kind="lustre", system="s", **(given | options))
        return lustre.live(config, Site(Calendar("UTC"), self.clock))


@pytest.fixture
def client(tmp_path):
    return Client(tmp_path)


class TestContract(CollectorContract):
    @pytest.fixture
    def collector(self, client):
        return lambda: client.collector(command_timeout=20)

    @pytest.fixture
    def saved(self, tmp_path):
        (tmp_path / "outputs").write_text(
            f"BEGIN {START + 2}\n{df(A, '/a')}{df_inodes(INODES_OF_A, '/a')}BEGIN {START + 2}\n{dl(servers(A))}"
        )
        return lambda: lustre.saved([tmp_path / "outputs"], lustre.Saved(step=STEP), Site(Calendar("UTC"), FakeClock()))

    @pytest.fixture
    def window(self):
        return NOW

    @pytest.fixture
    def datasets(self):
        return lustre.Saved().datasets()

    def test_columns_are_the_same_in_a_window_without_samples(self, client, window):
        """The only window is the current one, so the same window is collected again, from a client that has lost its servers."""

        async def both(c):
            full = {b.dataset: b.columns for b in await collected(c, window)}
            client.lfs(f"cat <<'END'\n{df({}, '/a')}END")
            client.lctl(f"cat <<'END'\n{dl(dict.fromkeys(A))}END")
            return full, {b.dataset: b.columns for b in await collected(c, window)}, await samples(c, window)

        full, without, cells = within(client.collector(), both)
        assert (full, cells) == (without, {})

    def test_a_count_is_that_of_its_parts_and_does_not_change(self, collector, window):
        """The past can't be queried, and one row has no parts."""
        assert within(collector(), lambda c: c.count(window)) is None


def outcome(client, window=NOW, **options):
    """(cells by dataset, what was dropped)."""
    data = within(client.collector(**options), lambda c: c.collect(window))
    cells = {b.dataset: dict(zip([b.columns[i] for i in b.column], b.value.tolist(), strict=True)) for b in data.batches}
    return cells, dict(data.dropped)


def test_a_window_holds_what_both_commands_say_now(client):
    cells, dropped = outcome(client)
    assert cells == {
        "fullness/bytes": {name: float(used) for name, (_, used) in A.items()},
        "fullness/bytestotal": {name: float(total) for name, (total, _) in A.items()},
        "fullness/inodes": {name: float(used) for name, (_, used) in INODES_OF_A.items()},
        "fullness/inodestotal": {name: float(total) for name, (total, _) in INODES_OF_A.items()},
        "failover/datatargets": {name: 0.0 for name in A if "OST" in name},
        "failover/mdtargets": {"a-MDT0000": 0.0},
        "failover/dataservers": {nid: 1.0 for name, nid in servers([*A, *B]).items() if name in A and "OST" in name},
    }
    assert dropped == {}


def test_devices_of_other_file_systems_are_left_out(client):
    cells, _ = outcome(client, mounts=("/b",))
    assert cells["failover/datatargets"] == {"b-OST0000": 0.0}


@pytest.mark.parametrize("window", [Window(START - STEP, START), Window(START + STEP, START + 2 * STEP)])
def test_a_window_of_another_time_can_not_be_collected(client, window):
    with pytest.raises(Transient, match="is not the current window"):
        outcome(client, window)


def test_the_output_of_a_command_that_ends_after_the_window_is_not_used(client):
    client.lfs(f"sleep 0.3; cat <<'END'\n{df(A, '/a')}END")

    async def use(c):
        outcome = asyncio.ensure_future(samples(c, NOW))
        await asyncio.sleep(0.1)
        client.clock.jump(STEP)
        with pytest.raises(Transient, match="its output may belong to another window"):
            await outcome

    within(client.collector(command_timeout=10), use)


def test_a_mount_that_hangs_leaves_the_others_their_cells_and_is_counted(client, tmp_path):
    client.lfs(f"case $3 in /a) echo $$ > {tmp_path}/pid; sleep 600;; /b) cat <<'END'\n{df(B, '/b')}END\n;; esac")
    begun = time.monotonic()
    cells, dropped = outcome(client, mounts=("/a", "/b"))
    assert time.monotonic() - begun < 8
    assert (cells["fullness/bytes"], dropped) == ({"b-OST0000": 5.0}, {"/a: no answer in time": 1})


def test_after_a_hang_the_mount_is_queried_again_and_its_targets_stay_columns(client):
    async def use(c):
        first = await samples(c, NOW)
        client.lfs("sleep 600")
        client.lctl("exit 1")
        with pytest.raises(Transient) as error:
            await samples(c, NOW)
        client.lfs(f"cat <<'END'\n{df({'a-OST0000': (1000, 1)}, '/a')}END")
        client.lctl(f"cat <<'END'\n{dl({'a-OST0000': '10.1.1.1@tcp'})}END")
        batches = await collected(c, NOW)
        return first, classify(error.value), {b.dataset: (b.columns, len(b)) for b in batches}

    first, outcome, later = within(client.collector(), use)
    assert (len(first["fullness/bytes"]), outcome) == (5, "timeout")
    assert later["fullness/bytes"] == (("a-MDT0000", "a-OST0000", "a-OST0001", "a-OST0002", "a-OST0003"), 1)


def test_an_exit_code_with_a_listing_is_a_listing(client):
    client.lfs(f"cat <<'END'\n{df(A, '/a')}END\necho 'lfs df: some target failed' >&2; exit 5")
    assert outcome(client)[0]["fullness/bytes"]["a-OST0003"] == 103.0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("echo \"lfs df: '/a' is not a Lustre file system\" >&2; exit 22", Fatal),
        ("echo 'lfs df: error: Permission denied' >&2; exit 13", Fatal),
        ("echo 'lfs df: Cannot send after transport endpoint shutdown' >&2; exit 108", Transient),
        ("exit 1", Transient),
    ],
)
def test_a_command_that_prints_nothing_fails_with_its_message(client, text, error):
    client.lfs(text)
    client.lctl("exit 1")
    with pytest.raises(error, match=r"lfs df -l /a: exit code \d+") as raised:
        outcome(client)
    assert type(raised.value) is error


def test_a_command_that_fails_while_others_succeed_runs_once_more(client, tmp_path):
    log = tmp_path / "outcome"
    client.lfs(f"[ $3 = -i ] && exit; echo $3 >> {log}; case $3 in "
        f"/a) [ $(grep -c /a {log}) = 2 ] || exit 1; cat <<'END'\n{df(A, '/a')}END\n;; "
               f"/b) cat <<'END'\n{df(B, '/b')}END\n;; esac")  # fmt: skip
    cells, dropped = outcome(client, mounts=("/a", "/b"))
    assert (set(cells["fullness/bytes"]), dropped) == (A.keys() | B.keys(), {})
    assert sorted(log.read_text().split()) == ["/a", "/a", "/b"]


def test_a_server_s_targets_are_counted_where_they_are_served_now(client):
    client.lctl(f"cat <<'END'\n{dl(servers(A) | {'a-OST0001': servers(A)['a-OST0000']})}END")
    cells, _ = outcome(client)
    nids = servers(A)
    assert cells["failover/dataservers"] == {nids["a-OST0000"]: 2.0, nids["a-OST0002"]: 1.0, nids["a-OST0003"]: 1.0}


def test_without_inodes_the_rest_is_collected_and_one_failure_is_counted(client):
    client.lfs(f"[ $3 = -i ] && {{ echo broken >&2; exit 1; }}; cat <<'END'\n{df(A, '/a')}END")
    cells, dropped = outcome(client)
    assert (set(cells["fullness/bytes"]), "fullness/inodes" in cells, dropped) == (set(A), False, {"inodes of /a: no answer": 1})
    assert outcome(client, inodes=False)[1] == {}


@pytest.mark.parametrize("rest", [0.5, 30])
def test_what_is_known_by_the_end_of_the_window_is_kept_whatever_a_second_answer_would_be(client, rest, monkeypatch, tmp_path):
    log = tmp_path / "outcome"
    client.lctl(f"echo x >> {log}; exit 1")
    client.clock.jump(NOW.end - rest - client.clock.time())

    async def until_it_is_over(_):
        client.clock.jump(rest)

    monkeypatch.setattr(client.clock, "sleep", until_it_is_over)
    cells, dropped = outcome(client)
    assert (set(cells), dropped) == ({*FULLNESS, *INODES}, {"lctl: no answer": 1})
    assert len(log.read_text().split()) == (1 if rest < 1 else 2)


def test_without_lctl_the_fullness_is_had_and_what_is_missing_counted(client):
    client.lctl("exit 1")
    cells, dropped = outcome(client)
    assert (set(cells), dropped) == ({*FULLNESS, *INODES}, {"lctl: no answer": 1})


def test_only_the_configured_datasets_are_queried(client):
    client.lctl("exit 1")
    assert set(outcome(client, failover=False)[0]) == {*FULLNESS, *INODES}
    assert set(outcome(client, failover=False, inodes=False)[0]) == set(FULLNESS)


def test_a_target_that_moves_is_away_until_it_is_back(client):
    async def use(c):
        seen = []
        for moved in ({}, {"a-OST0001": servers(A)["a-OST0002"]}, {}):
            client.lctl(f"cat <<'END'\n{dl(servers(A) | moved)}END")
            seen.append({name for _, name, value in (await samples(c, NOW))["failover/datatargets"] if value})
        return seen

    assert within(client.collector(), use) == [set(), {"a-OST0001"}, set()]


def test_cancelled_at_any_moment_it_leaves_no_command_running_and_can_be_used_again(client, tmp_path):
    client.lfs(f"echo $$ >> {tmp_path}/pids; sleep 0.3; cat <<'END'\n{df(A, '/a')}END")

    async def use(c):
        for moment in (0.0, 0.005, 0.05, 0.2):
            task = asyncio.ensure_future(samples(c, NOW))
            await asyncio.sleep(moment)
            task.cancel()
            await asyncio.wait({task})
        await asyncio.sleep(0.1)
        return await samples(c, NOW)

    assert len(within(client.collector(command_timeout=10), use)["fullness/bytes"]) == 5


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"mounts": ()}, "mounts: at least one mount point is required"),
        ({"mounts": ("scratch",)}, "mounts: at least one mount point is required"),
        ({"lfs": ()}, "lfs: expected a command as a list"),
        ({"fullness": False, "failover": False}, "fullness: must be true where failover is false"),
        ({"command_timeout": 60}, "command_timeout: must be greater than zero, and less than timeout and window"),
    ],
)
def test_the_errors_of_a_section_are_reported(options, fault):
    config = lustre.Config(**({"name": "l", "kind": "lustre", "system": "s", "mounts": ("/a",)} | options))
    assert [found for found in config.faults() if found.startswith(fault)]
