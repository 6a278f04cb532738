"""Processes end with their parent, and make no file that others can read: real processes."""

import os
import select
import stat
import subprocess
import sys
import textwrap


def start(code: str, *arguments: str) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_child_ends_when_its_parent_is_killed(tmp_path):
    child = """
        import os, signal, sys
        from tokiod.runtime.process_setup import die_with_parent
        die_with_parent(int(sys.argv[1]))
        os.mkfifo(sys.argv[2] + ".in")
        print("ready", flush=True)
        signal.pause()
    """
    parent = start(
        f"""
        import os, subprocess, sys, signal
        child = subprocess.Popen([sys.executable, "-c", {textwrap.dedent(child)!r}, str(os.getpid()), sys.argv[1]], stdout=subprocess.PIPE)
        child.stdout.readline()
        open(sys.argv[1], "w").write(str(child.pid))
        print("ready", flush=True)
        signal.pause()
        """,
        str(tmp_path / "pid"),
    )
    with parent:
        descriptor = os.pidfd_open(int((tmp_path / "pid").read_text()))
        parent.kill()
        parent.wait()
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        ready = ended.poll(10_000)
        os.close(descriptor)
        assert ready, "the child outlived its parent by ten seconds"


def test_a_process_makes_no_file_that_others_can_read_and_no_core_dump(tmp_path):
    code = """
        import os, pathlib, resource, sys
        from tokiod.runtime.process_setup import restrict_rights
        os.umask(int(sys.argv[2], 8))
        restrict_rights()
        pathlib.Path(sys.argv[1]).touch()
        assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
        print("ready", flush=True)
    """
    modes = {"000": 0o640, "002": 0o640, "077": 0o600}
    for mask in modes:
        with start(code, str(tmp_path / mask), mask):
            pass
    assert {mask: stat.S_IMODE((tmp_path / mask).stat().st_mode) for mask in modes} == modes


def test_freed_memory_is_used_again_without_page_faults():
    code = """
        import resource, sys
        from tokiod.runtime.process_setup import keep_freed_memory
        if sys.argv[1] == "kept":
            keep_freed_memory(32)
        def pages(rounds):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
            for _ in range(rounds):
                [bytearray(8 << 20) for _ in range(3)]
            return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        pages(3)
        print("ready", flush=True)
        print(pages(20))
    """
    faults = {}
    for what in ("given back", "kept"):
        with start(code, what) as process:
            faults[what] = int(process.communicate()[0])
    assert faults["kept"] * 10 < faults["given back"], faults
