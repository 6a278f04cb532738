"""Install missing Debian packages where that is allowed; otherwise report them. Standard library only.

packages.py python3-venv gcc libc6-dev libzmq3-dev groff-base zsh fish mariadb-server hdf5-tools slurmctld slurmd slurmdbd
    slurm-client munge systemd maven default-jre-headless
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

PRESENT = {
    "python3-venv": lambda: importlib.util.find_spec("ensurepip") is not None,
    "gcc": lambda: shutil.which("gcc") is not None,
    "libc6-dev": lambda: Path("/usr/include/stdio.h").exists(),
    "libzmq3-dev": lambda: Path("/usr/include/zmq.h").exists(),
    "groff-base": lambda: shutil.which("groff") is not None,
    "zsh": lambda: shutil.which("zsh") is not None,
    "fish": lambda: shutil.which("fish") is not None,
    "mariadb-server": lambda: any(shutil.which(n, path=f"{os.environ['PATH']}:/usr/sbin") for n in ("mariadbd", "mysqld")),
    "hdf5-tools": lambda: shutil.which("h5dump") is not None,
    "dpkg": lambda: shutil.which("dpkg-deb") is not None,
    "rpm": lambda: shutil.which("rpmbuild") is not None,
    "debootstrap": lambda: shutil.which("debootstrap", path=f"{os.environ['PATH']}:/usr/sbin") is not None,
    "r-cran-hdf5r": lambda: Path("/usr/lib/R/site-library/hdf5r").exists(),
    "octave": lambda: shutil.which("octave-cli") is not None,
    "systemd": lambda: shutil.which("systemd-analyze") is not None,
    "slurmctld": lambda: shutil.which("slurmctld", path=f"{os.environ['PATH']}:/usr/sbin") is not None,
    "slurmd": lambda: shutil.which("slurmd", path=f"{os.environ['PATH']}:/usr/sbin") is not None,
    "slurmdbd": lambda: shutil.which("slurmdbd", path=f"{os.environ['PATH']}:/usr/sbin") is not None,
    "slurm-client": lambda: shutil.which("sacct") is not None,
    "chromium": lambda: shutil.which("chromium") is not None,
    "chromium-driver": lambda: shutil.which("chromedriver") is not None,
    "nginx-light": lambda: shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is not None,
    "apache2-bin": lambda: shutil.which("apache2", path=f"{os.environ['PATH']}:/usr/sbin") is not None,
    "npm": lambda: shutil.which("npm") is not None,
    "munge": lambda: shutil.which("munge") is not None,
    "postgresql": lambda: any(Path("/usr/lib/postgresql").glob("*/bin/initdb")) or shutil.which("initdb") is not None,
    "krb5-kdc": lambda: shutil.which("krb5kdc", path=f"{os.environ['PATH']}:/usr/sbin") is not None,
    "krb5-admin-server": lambda: shutil.which("kadmin.local", path=f"{os.environ['PATH']}:/usr/sbin") is not None,
    "libkrb5-dev": lambda: shutil.which("krb5-config") is not None,
    "maven": lambda: shutil.which("mvn") is not None,
    # Java 17 in Debian 12, 21 in Debian 13: both will do for Elasticsearch and OpenSearch.
    "default-jre-headless": lambda: shutil.which("java") is not None,
}


def main(names: list[str]) -> int:
    missing = [n for n in names if not PRESENT[n]()]
    if not missing:
        return 0
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    allowed = shutil.which("apt-get") and (not sudo or (shutil.which("sudo") and quiet([*sudo, "true"])))
    if not allowed:
        print(f"missing, and this user may not install them: {' '.join(missing)}; the tests that need them will skip", file=sys.stderr)
        return 0
    print(f"installing {' '.join(missing)}", file=sys.stderr)
    env = [*sudo, "env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq"]
    quiet([*env, "update"])
    return subprocess.run([*env, "install", "--yes", "--no-install-recommends", *missing], check=False, stdout=sys.stderr).returncode


def quiet(command: list[str]) -> bool:
    return subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
