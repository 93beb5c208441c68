# Type `make` to see what there is. Everything is installed into .venv, once: the two stamp files below remember it.

VENV ?= .venv
PY := $(VENV)/bin/python
CORE := $(VENV)/core.stamp
EXTRAS := $(VENV)/extras.stamp

# The first of these that is new enough makes the environment; `make PYTHON=/path/to/python ...` takes another.
NEW_ENOUGH := import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(or $(shell for p in python3.11 python3 python3.12 python3.13; do \
	$$p -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$p && break; done),python3)

# No telemetry, no questions, and no warnings about threads or debuggers between the results.
export HF_HUB_DISABLE_TELEMETRY := 1
export TOKENIZERS_PARALLELISM := false
export PYDEVD_DISABLE_FILE_VALIDATION := 1

.PHONY: help reproduce results test lab sweep no-grid benchmark lint notebooks numbers book student grade no-folder cpu extras clean preflight
.DELETE_ON_ERROR:

help:
	@echo "make reproduce   set up, run every notebook, end with a table (NOTEBOOKS=01,04 for some of them)"
	@echo "make results     set up, draw all tables and figures of ledger and runs from figures/records, in under a minute"
	@echo "make test        set up, run the tests and check the notebooks against their stored outputs"
	@echo "make lab         set up, open the notebooks in JupyterLab (ARGS=... goes to JupyterLab)"
	@echo "make sweep       set up, run a grid of runs: GRID=FILE.json (ARGS='--slots 4')"
	@echo "make benchmark   set up, measure speed on this machine, about 20 minutes (ARGS='--record FILE.json')"
	@echo "make lint        ruff over modules, tests and notebooks"
	@echo "make notebooks   run the notebooks again in place, as they are committed, with their pictures in figures/"
	@echo "make numbers     write tables, and the numbers of README.md and the book, again from figures/records"
	@echo "make book        build the course as a web page, in runs/book, from the notebooks as they are committed"
	@echo "make student     write the notebooks to hand out, without outputs and solutions, in runs/student, solutions in runs/solutions"
	@echo "make grade       run the notebooks that were handed in: FOLDER=...; prints how many exercises of each have the right number"
	@echo "make cpu         before all else, where no GPU is to be used: a torch without CUDA's gigabytes"
	@echo "make extras      set up all that the others need, and nothing more"
	@echo "make clean       remove .venv and caches; runs/ stays"

reproduce: $(CORE)
	$(check_imports)
	@$(PY) -m palslib reproduce $(if $(NOTEBOOKS),--notebooks $(NOTEBOOKS)) $(ARGS)

results: $(CORE)
	$(check_imports)
	@$(PY) -m palslib reproduce --notebooks 06,11,12

# Two processes of one thread each: as fast as two threads, and sums always have the same last bits.
PYTEST = OMP_NUM_THREADS=1 $(PY) -m pytest -n 2 --dist loadfile

test: $(EXTRAS)
	$(check_imports)
	@verdict() { if [ $$1 = 0 ]; then echo "  passed  $$2"; else echo "  FAILED  $$2"; fi; }; \
	$(PYTEST); first=$$?; \
	$(PYTEST) --nbval notebooks; second=$$?; \
	echo; echo "make test:"; \
	verdict $$first "pytest: unit tests$(if $(PALSLIB_SLOW),, (PALSLIB_SLOW=1 for the slow and rare ones too))"; \
	verdict $$second "pytest --nbval notebooks: every output equals the stored one"; \
	[ $$first$$second = 00 ]

lab: $(EXTRAS)
	$(check_imports)
	@mkdir -p $(LAB_SETTINGS) && echo '{"@jupyterlab/docmanager-extension:plugin": {"autosave": false},' \
		'"@jupyterlab/apputils-extension:notification": {"fetchNews": "false"}}' \
		> $(LAB_SETTINGS)/overrides.json # a look at a notebook does not change the file; Ctrl-S does
	$(if $(AS_ROOT),@echo "Run by root (as in a container): JupyterLab is started with --allow-root.")
	@$(PY) -m jupyterlab $(LAB) $(if $(AS_ROOT),--allow-root) $(ARGS)

# From the clone's folder, and with its hidden folder .book, so that links from notebooks to code and pages lead somewhere.
LAB = --LabApp.default_url=/lab/tree/notebooks/00_start_here.ipynb --ContentsManager.allow_hidden=True
LAB_SETTINGS = $(VENV)/share/jupyter/lab/settings
AS_ROOT = $(filter 0,$(shell id -u))

sweep: $(if $(GRID),,no-grid) $(CORE)
	$(check_imports)
	@$(PY) -m palslib sweep "$(GRID)" $(ARGS)

benchmark: $(CORE)
	$(check_imports)
	@$(PY) -m palslib benchmark $(ARGS)

no-grid:
	$(error Name the grid: make sweep GRID=FILE.json)

lint: $(EXTRAS)
	@$(PY) -m ruff check .

# By nbconvert: papermill would write its own metadata into the notebooks. One thread, as in the tests that compare them.
notebooks: $(EXTRAS)
	$(check_imports)
	@OMP_NUM_THREADS=1 PALSLIB_STATIC=1 PALSLIB_FIGURES="$(CURDIR)/figures" $(PY) -m nbconvert --to notebook --execute --inplace \
		--ExecutePreprocessor.store_widget_state=False --ExecutePreprocessor.record_timing=False notebooks/*.ipynb
	@$(PY) -m nbconvert --to notebook --inplace --coalesce-streams notebooks/*.ipynb # a progress bar is its last line

numbers: $(CORE)
	$(check_imports)
	@$(PY) figures/records/write_tables.py
	@$(PY) .book/computed.py

book: $(EXTRAS)
	$(check_imports)
	@$(PY) .book/book.py && echo "$${PALSLIB_RUNS:-runs}/book/index.html"

student: $(CORE)
	$(check_imports)
	@$(PY) .book/student.py

grade: $(if $(FOLDER),,no-folder) $(CORE)
	$(check_imports)
	@$(PY) .book/student.py "$(FOLDER)"

no-folder:
	$(error Name the folder of handed-in notebooks: make grade FOLDER=...)

clean:
	rm -rf .venv build *.egg-info .pytest_cache .ruff_cache .hypothesis .ipynb_checkpoints
	find . -name __pycache__ -prune -exec rm -rf {} +

# ------------------------------------------------------------------------------------------------------------- set-up

PIP_INSTALL = $(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt
TORCH = $(shell grep '^torch==' constraints.txt)
EXPLAIN = { echo "Installing failed, see above. Is a package index within reach, and the disk not full?" >&2; exit 1; }

$(CORE): pyproject.toml constraints.txt | preflight
	@test -e $(PY) || $(PYTHON) -m venv $(VENV)
	@echo "Installing palslib into $(VENV): some minutes the first time"
	@$(PIP_INSTALL) -e '.[notebooks]' || $(EXPLAIN)
	@touch $@

$(EXTRAS): $(CORE)
	@echo "Installing what tests and JupyterLab need"
	@$(PIP_INSTALL) -e '.[lab,test,browser,book,onnx]' || $(EXPLAIN)
	@touch $@

extras: $(EXTRAS)

# uv knows where PyTorch's builds for CPUs are. What is installed then is a version that constraints.txt allows, and stays.
cpu: | preflight
	@test -e $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check uv || $(EXPLAIN)
	@$(PY) -m uv pip install --python $(PY) --torch-backend cpu $(TORCH) || \
		{ echo "PyTorch's own index is out of reach: taking pip's build of $(TORCH), which may bring CUDA"; \
		$(PIP_INSTALL) $(TORCH); } || $(EXPLAIN)

# Every problem with the machine or with .venv is one line that says what to do: $(error) prints it and stops make.
sh = $(shell { $(1); } >/dev/null 2>&1 && echo yes)
REMOVE := remove it (rm -rf $(VENV)) and call make again

preflight:
	$(if $(call sh,test ! -e $(VENV) || $(PY) -c 'import pip; $(NEW_ENOUGH)'),,$(error The Python in $(VENV) is gone, too old or without pip: $(REMOVE)))
	$(if $(call sh,test -e $(PY) || $(PYTHON) -c '$(NEW_ENOUGH)'),,$(error Python 3.11 or newer is needed, with its venv \
		module, but '$(PYTHON)' is $(or $(shell $(PYTHON) --version 2>/dev/null),missing): install it, or name one with PYTHON=...))
	@:

IMPORTS := import os, palslib, torch, transformers, accelerate, datasets, seaborn, papermill, ipykernel, ipywidgets; \
	assert os.path.samefile(palslib.__path__[0], "palslib"), "it was made for another folder"
FAULT = $(shell fault=$$($(PY) -P -c '$(IMPORTS)' 2>&1) || echo "$$fault" | tail -n 1)
check_imports = $(if $(FAULT),$(error $(VENV) is broken ($(FAULT)): $(REMOVE)))
