# `make` alone lists what there is. Everything runs in a virtual environment of its own, .venv.
VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= python3
KILLS  ?= 300
FAULTS ?= kills
MINUTES ?= 30
DAYS   ?= 10
ROUNDS ?= 10
ATTACK ?= 5
HOURS  ?= 24
RECEIVERS ?=
SEED   ?=

# Packages of which the tests must run 95 % of all lines and branches.
COVERED := tokiod/tts sinks tokiod/ledger tokiod/writer

EDITS  ?= 300
CASES  ?= 200

INPUTS ?= 1000000
MESSAGES ?= 10000000
READS  ?= 10000
SEEDS  ?= 200
# What the simulation finds with one of its recorded seeds in each run of CI.
CI_FAULTS := a1 a2 a13 j2 n5

# More workers than cores: most tests in tests/system wait. tests/conftest.py distributes the tests.
WORKERS ?= 6
PYTEST  := $(BIN)/python -m pytest -n $(WORKERS) --no-loadscope-reorder

# Processes compile a module once, not at each start, whatever the caller sets.
export PYTHONDONTWRITEBYTECODE :=

NODES  ?= 2000
WINDOWS ?= 120
NAMES  ?=
COMMIT ?= 7988c9c
ONLY   ?=
PAGE   ?=

.PHONY: help demo agent nodes bench-nodes test coverage lint bench bench-against docs simulate simulate-ci simulate-coverage simulate-faults fidelity fidelity-reading faults mutants torture kafka-kills sink-outage hosts unknown-clients soak fuzz
.PHONY: engines proofs read-while-writing screenshots walkthrough laptop tools install servers clean constraints sbom wheel deb rpm packages

help:
	@echo "make demo      [PAGE=60]: a simulated site archived live, a kill -9 in the middle, every cell compared at the end (under 2 minutes);"
	@echo "               with PAGE=60 its live page, for a minute longer"
	@echo "make test      all tests, against real servers (installs MariaDB, Slurm, hdf5-tools and Maven where it may), with WORKERS=6"
	@echo "make coverage  all tests, and the share of lines and branches that they run; at least 95 % of four packages, each line that is not run with its reason; takes longer"
	@echo "make lint      ruff, mypy, import-linter"
	@echo "make bench     [ONLY='storage web']: speed as a ratio to what the machine can do in the same run; also as bench.json"
	@echo "make bench-against  COMMIT=7988c9c [ONLY='storage lmt']: the benchmarks of an older commit and of this tree in turns; what is more than 5 % slower"
	@echo "make engines   [DAYS=30]: hourly sums of a month by tokiod.open, dask.distributed, DuckDB and Spark (in an environment of its own); all the same numbers"
	@echo "make docs      the references: commands, manual pages (docs/man), configuration, metrics of nodes"
	@echo "make fidelity  CASES=200 [SEED=n]: random inputs of all kinds through pytokio 0.13.0 too; every cell equal, or different for a known reason"
	@echo "make fidelity-reading   CASES=200 [SEED=n]: summaries and frames of random spans and bins, by pytokio 0.13.0 too"
	@echo "make faults    [NAMES='a1 j2']: each of ten old faults restored in a copy of the tree; its tests must fail there"
	@echo "make mutants   EDITS=300 [SEED=n] [ONLY='tokiod/jobs']: edits of one place of five packages, drawn by a seed; those that the package's tests miss, at most one in ten"
	@echo "make laptop    the reader alone in a new environment: a heat map and a p95 of a copied folder in five lines, the size of the install"
	@echo "make read-while-writing  READS=10000: four readers while a writer commits, grows, seals and reopens; each cell of a committed state"
	@echo "make simulate  SEEDS=200 [SEED=n] [TALLY=FILE]: whole sites for days in one process, every fault from a seed; a failing seed is shrunk; FILE adds up runs, as tests/simulation/runs.jsonl does"
	@echo "make simulate-ci        all seeds that ever failed, some old faults restored and found, then new seeds for three minutes"
	@echo "make simulate-coverage  SEEDS=200: the share of lines and branches of the data path that the simulation runs"
	@echo "make simulate-faults    [NAMES='a2 J1']: each old fault that the simulation finds is restored; the first seed that finds it"
	@echo "make proofs    the short form of each proof in docs/proofs.md that no test runs, as CI does"
	@echo "make screenshots  every view of the page at three widths, light and dark, with outliers, gaps and failures, to be looked at in dist/screenshots"
	@echo "make walkthrough  what a newcomer types in a clean clone, at 80 columns; records it in dist/walkthrough.txt"
	@echo "make tools     the examples of docs/tools.md: pandas, xarray, pytokio, h5dump, R and Octave read a live and a sealed file"
	@echo "make torture   KILLS=300 [FAULTS=all] [SEED=n]: SIGKILL at random instants over days that turn and are sealed, every cell compared; adds up all runs of this checkout"
	@echo "make kafka-kills  KILLS=300 [SEED=n]: SIGKILL of a sink, its Kafka and the writer in turn; what consumers fold is every cell of the files"
	@echo "make sink-outage  HOURS=24 [RECEIVERS='kafka elasticsearch opensearch']: receivers that are down for a day of simulated time; commits as before,"
	@echo "               sinks that catch up at 50 times real time or better, refusals with 429, a mapping that rejects; every cell compared"
	@echo "make hosts     ROUNDS=10 [SEED=n]: four hosts in network namespaces (as root): partitions, clocks an hour off, revoked and"
	@echo "               misused keys; every cell compared. No upgrade from one version to the next until 0.2.0"
	@echo "make unknown-clients ATTACK=5: minutes in which 10,000 clients a minute without a key come to each port; all other clients stay connected"
	@echo "make soak      MINUTES=30 [DAYS=10]: simulated days; memory, descriptors, sockets and ledger must not grow"
	@echo "make fuzz      INPUTS=1000000 MESSAGES=10000000 [SEED=n]: damaged files of every kind, and messages between processes; no crash, no hang, no cell that was never there"
	@echo "make agent-jobs  JOBS=1000: short jobs in this kernel's cgroup v2 (as root); CPU seconds by the agent equal getrusage within 10 ms"
	@echo "make agent-cost  SECONDS=60: share of a core of the agent at 1 Hz with 8 jobs (as root); memory and descriptors flat over a day accelerated"
	@echo "make nodes     NODES=2000 KILLS=100: agents with real sockets and keys while hub, writer, collectors and network are killed; every cell compared"
	@echo "make bench-nodes  WINDOWS=120: a cluster of 10,000 nodes x 30 metrics through hub, collector and writer, a day sealed and read back; takes 10 minutes"
	@echo "make agent     the agent of compute nodes alone: a relocatable tar and a Debian package, in dist"
	@echo "make deb rpm   a wheel, an sdist and the packages, in dist"
	@echo "make packages  both, tried: on a bare Debian 12 without a network, in a booted systemd, as process 1 of a container (as root; long)"
	@echo "make constraints  pin all dependencies with hashes in config/constraints.txt"
	@echo "make sbom      the installed dependencies as CycloneDX, dist/tokiod.cdx.json"

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml
	@$(PYTHON) tests/system/packages.py python3-venv
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing tokiod and its tools into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test,plot]'
	@$(BIN)/python -m compileall -q tokiod collectors sinks  # also where PYTHONDONTWRITEBYTECODE is set: each start would compile all
	@touch $@

servers: install
	@$(PYTHON) tests/system/packages.py gcc libc6-dev libzmq3-dev groff-base zsh fish mariadb-server hdf5-tools systemd maven default-jre-headless \
	    slurmctld slurmd slurmdbd slurm-client munge chromium chromium-driver nginx-light apache2-bin npm postgresql \
	    krb5-kdc krb5-admin-server libkrb5-dev
	@$(BIN)/python -c "import gssapi" 2>/dev/null || CFLAGS=-O0 $(BIN)/python -m pip install --quiet --disable-pip-version-check "gssapi>=1.9" \
	    || echo "gssapi can't be built: the test of Kerberos will skip"
	@$(BIN)/python tests/support/elasticsearch_server.py fetch
	@$(BIN)/python tests/support/kafka_server.py fetch
	@$(BIN)/python tests/support/promtool.py fetch
	@$(BIN)/python tests/support/axe.py fetch

demo: install
	@$(BIN)/tokiod demo $(if $(PAGE),--page $(PAGE))

# Six workers would rewrite the assertions of all modules, each for itself. The run itself reports what is wrong with a module.
test: install servers
	@env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -m pytest --collect-only --quiet >/dev/null 2>&1 || true
	$(PYTEST) --durations=10

# Absolute paths: processes that start in another directory are measured too.
coverage: install servers
	@$(BIN)/coverage erase
	COVERAGE_PROCESS_START=$(CURDIR)/pyproject.toml COVERAGE_FILE=$(CURDIR)/.coverage $(PYTEST)
	@$(BIN)/coverage combine --quiet; $(BIN)/coverage report --skip-covered --skip-empty --sort=cover | tail -n 20
	@$(BIN)/python -m tests.uncovered 95 $(COVERED)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: install .venv-pytokio
	@$(BIN)/python -m tests.bench $(foreach part,$(ONLY),--only $(part))

bench-against: install
	@$(BIN)/python -m tests.bench.against $(COMMIT) $(foreach part,$(ONLY),--only $(part))

docs: install
	@$(BIN)/python -m docs.generate.cli > docs/cli.md
	@$(BIN)/python -m docs.generate.man docs/man
	@$(BIN)/python -m docs.generate.json_schemas docs/json
	@$(BIN)/python -m docs.generate.configuration > docs/configuration.md
	@mkdir -p docs/man5 && $(BIN)/python -m docs.generate.configuration --man > docs/man5/tokiod.toml.5
	@$(BIN)/python -m docs.generate.openapi > docs/web/openapi.json
	@$(BIN)/python -m docs.generate.sensors
	@echo docs/cli.md docs/man docs/json docs/configuration.md docs/man5 docs/web/openapi.json docs/sensors.md docs/sensors tokiod/tts/node_metrics.py

agent: install
	@mkdir -p dist
	@PYTHON=$(BIN)/python sh packaging/build-agent.sh dist

nodes: install
	@$(BIN)/python -m tests.hub --nodes $(NODES) --kills $(KILLS) $(if $(SEED),--seed $(SEED))

simulate: install
	@$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(if $(SEED),--seed $(SEED)) $(if $(TALLY),--tally $(TALLY))

simulate-ci: install
	@$(BIN)/python -m tests.simulation --kept
	@$(BIN)/python -m tests.simulation.old_faults --recorded $(CI_FAULTS)
	@$(BIN)/python -m tests.simulation --new --minutes 3

simulate-coverage: install
	@$(BIN)/coverage erase
	@PYTHONHASHSEED=0 $(BIN)/coverage run -m tests.simulation --seeds $(SEEDS) --jobs 1
	@$(BIN)/coverage combine --quiet; $(BIN)/coverage report --skip-empty \
	    --include='tokiod/tts/*,sinks/*,tokiod/ledger/*,tokiod/writer/*,tokiod/polling/*,tokiod/bus/*'

simulate-faults: install
	@$(BIN)/python -m tests.simulation.old_faults $(NAMES)

# The short forms of docs/proofs.md that no test runs.
proofs: install
	@$(BIN)/python -m tests.proofs

# pytokio is from 2019: it needs an environment of its own.
.venv-pytokio: Makefile
	@test -x $@/bin/python || $(PYTHON) -m venv $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check 'pytokio==0.13.0' 'numpy<2' 'pandas<3' requests 'elasticsearch<8'
	@touch $@

# Spark is large, and 4.0 the first release made for Java 17.
.venv-engines: Makefile
	@test -x $@/bin/python || $(PYTHON) -m venv $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check 'pyspark>=4.0.1,<4.1'
	@touch $@

engines: install .venv-engines
	@$(BIN)/python -m tests.engines --days $(or $(DAYS),30) --spark .venv-engines/bin/python

fidelity: install .venv-pytokio
	@$(BIN)/python -m tests.fidelity --pytokio .venv-pytokio/bin/python --cases $(CASES) $(if $(SEED),--seed $(SEED))

fidelity-reading: install .venv-pytokio
	@$(BIN)/python -m tests.fidelity.summaries --pytokio .venv-pytokio/bin/python --cases $(CASES) $(if $(SEED),--seed $(SEED))

# Each fault takes some seconds; all are in tests/faults/edits.py.
faults: install
	@$(BIN)/python -m tests.faults $(NAMES)

# Each edit is tried in a copy of the tree, two at a time; one that survives takes as long as all tests of its package.
mutants: install
	@$(BIN)/python -m tests.mutants --edits $(EDITS) $(if $(SEED),--seed $(SEED)) $(foreach package,$(ONLY),--only $(package))

screenshots: install
	@PYTHONPATH=tests/support $(BIN)/python -m tests.screenshots dist/screenshots
	@PYTHONPATH=tests/support $(BIN)/python -m tests.screenshots --docs docs/web

walkthrough: install
	@$(BIN)/python -m tests.walkthrough dist/walkthrough.txt

laptop: install
	@$(BIN)/python -m tests.walkthrough.laptop

# Programs that users read the files with: R and Octave where they may be installed, xarray in an environment of its own.
tools: install .venv-pytokio
	@$(PYTHON) tests/system/packages.py hdf5-tools r-cran-hdf5r octave
	@test -x .venv-tools/bin/python || $(PYTHON) -m venv .venv-tools
	@.venv-tools/bin/python -m pip install --quiet --disable-pip-version-check h5py pandas xarray h5netcdf
	@$(BIN)/python -m tests.tools .venv-tools/bin/python .venv-pytokio/bin/python

torture: install
	@$(BIN)/python tests/system/torture.py --kills $(KILLS) --faults $(FAULTS) --equal --tally .torture.jsonl $(if $(SEED),--seed $(SEED))

kafka-kills: install servers
	@PYTHONPATH=tests/support $(BIN)/python -m tests.system.kafka_kills --kills $(KILLS) $(if $(SEED),--seed $(SEED))

sink-outage: install servers
	@PYTHONPATH=tests/support $(BIN)/python -m tests.system.sink_outage --hours $(HOURS) $(RECEIVERS)

hosts: install
	@PYTHONPATH=.:tests/support $(BIN)/python -m tests.system.many_hosts --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

unknown-clients: install
	@PYTHONPATH=.:tests/support $(BIN)/python -m tests.system.unknown_clients --minutes $(ATTACK)

soak: install
	@$(BIN)/python tests/system/soak.py --minutes $(MINUTES) --days $(DAYS) $(if $(SEED),--seed $(SEED))

fuzz: install
	@$(BIN)/python -m tests.fuzz --bombs
	@$(BIN)/python -m tests.fuzz --inputs $(INPUTS) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.fuzz.messages --inputs $(MESSAGES) $(if $(SEED),--seed $(SEED))
	@$(BIN)/python -m tests.fuzz.damaged_days $(if $(SEED),--seed $(SEED))

# As root, where cgroups can be written.
agent-jobs: install
	@$(BIN)/python -m tests.bench.agent_jobs $(JOBS)

bench-nodes: install
	@$(BIN)/python -m tests.bench.nodes --windows $(WINDOWS)

agent-cost: install
	@$(BIN)/python -m tests.bench.agent_cost $(SECONDS)

read-while-writing: install
	@OPEN_READS=$(READS) $(BIN)/python -m pytest -q -s tests/system/test_open_while_writing.py

constraints: install
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@$(BIN)/uv pip compile pyproject.toml --extra plot --generate-hashes --universal --python-version 3.11 --no-header --no-annotate --quiet \
	    --upgrade --output-file config/constraints.txt
	@echo config/constraints.txt

# A fresh environment with exactly what config/constraints.txt pins, so that the list has no test tool.
sbom: install
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[release]'
	@rm -rf dist/sbom && mkdir -p dist && $(PYTHON) -m venv dist/sbom
	@dist/sbom/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement config/constraints.txt
	@$(BIN)/cyclonedx-py environment dist/sbom --pyproject pyproject.toml --output-format JSON --output-file dist/tokiod.cdx.json
	@rm -rf dist/sbom
	@echo dist/tokiod.cdx.json

# What is released: a wheel, an sdist, a Debian package and an RPM. The last two bundle what config/constraints.txt pins.
deb rpm: export PIP = $(CURDIR)/$(BIN)/python -m pip

wheel: install docs
	@rm -f dist/tokiod-*.whl dist/tokiod-*.tar.gz
	@$(BIN)/hatchling build --directory dist

deb: wheel
	@$(PYTHON) tests/system/packages.py dpkg
	@rm -f dist/tokiod_*.deb
	@sh packaging/build-deb.sh dist/tokiod-*.whl dist

rpm: wheel
	@$(PYTHON) tests/system/packages.py rpm
	@rm -rf dist/$(shell uname -m)
	@sh packaging/build-rpm.sh dist/tokiod-*.whl dist

packages: deb rpm
	@$(PYTHON) tests/system/packages.py debootstrap
	@$(BIN)/python -m tests.packages deb dist/tokiod_*.deb
	@$(BIN)/python -m tests.packages container dist/tokiod_*.deb
	@$(BIN)/python -m tests.packages rpm dist/*/tokiod-*.rpm dist/tokiod_*.deb

clean:
	rm -rf $(VENV) .venv-pytokio .venv-tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*
