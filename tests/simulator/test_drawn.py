"""A site holds the same numbers on every machine."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__ as VECTOR_INSTRUCTIONS  # noqa: N812 - numpy's own name

from tokiod.simulator.drawn import power
from tokiod.simulator.elastic.collectd import Collectd
from tokiod.simulator.esnet.rates import Esnet
from tokiod.simulator.gpfs import Gpfs
from tokiod.simulator.load import Load
from tokiod.simulator.site import Site

EPOCH = 1_517_119_200


def fingerprint():
    site, found = Site(EPOCH, osts=40, nsds=20), hashlib.sha256()
    load, gpfs = Load(site), Gpfs(site)
    for numbers in (
        power(10, np.linspace(0, 9.5, 10_000)), gpfs.servers(0, 60).value, gpfs.disks(0, 60).value, Esnet(site).rates(0, 60),
        Collectd(site)._numbers(0), load._more_bytes(0), load._more_operations(0),
    ):  # fmt: skip
        found.update(np.ascontiguousarray(numbers).tobytes())
    return found.hexdigest()


def test_a_site_has_the_same_numbers_without_the_processors_vector_instructions():
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": " ".join(VECTOR_INSTRUCTIONS)}
    command = [sys.executable, "-W", "ignore", __file__]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == fingerprint()


@pytest.mark.parametrize(("base", "exponent", "result"), [(2.0, [0, 10], [1, 1024]), ([[1.5], [3.0]], 2, [[2.25], [9]]), ([], 3, [])])
def test_a_power_has_the_shape_of_its_operands(base, exponent, result):
    found = power(np.array(base), np.array(exponent))
    assert (found.shape, found.tolist()) == (np.shape(result), result)


if __name__ == "__main__":
    print(fingerprint())
