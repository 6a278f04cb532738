"""Archives that tests unpack. Python before 3.11.4, as Debian 12 has it, knows no filter for them, and newer versions warn without one."""

import subprocess


def unpack(archive, directory, *members):
    """Unpack a tar archive, compressed or not, or some of its members, into a directory, which is made if it is missing."""
    directory.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "--extract", "--no-same-owner", "--file", str(archive), "--directory", str(directory), *members], check=True)
