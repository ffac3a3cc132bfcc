# Each target sets up .venv by itself; nothing needs to be installed before.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUN_READY := $(VENV)/.ready
TEST_READY := $(VENV)/.ready-test

.PHONY: demo test browser lint docs comfyui comfyui-picture bench pipelines test-versions bench-quality audit clean

demo: $(RUN_READY)
	$(BIN)/geosprint demo -o out/demo

test: lint browser
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

# The report is tested in a real browser. Where none can be had, those tests say so and are left out.
browser:
	@command -v chromium >/dev/null && command -v chromedriver >/dev/null || \
	{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing chromium for the tests of the report" && \
	  timeout 120 apt-get update -qq >/dev/null 2>&1 && \
	  DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null 2>&1; } || \
	echo "no chromium and chromedriver here: the tests of the report in a browser are left out"

lint: $(TEST_READY)
	$(BIN)/ruff format --check src tests benchmarks examples recipes/networks docs comfyui
	$(BIN)/ruff check src tests benchmarks examples recipes/networks docs comfyui
	$(BIN)/mypy

docs: $(TEST_READY)
	$(BIN)/python docs/pages.py out/pages
	$(BIN)/python -m sphinx -q -W --keep-going -c docs -d out/pages-cache out/pages site
	@echo "open site/index.html"

# comfyui/ in a real ComfyUI with a model in closed form, against geosprint.sample. torch comes from .venv; torchvision and
# torchaudio, which no node here uses, are stubs. `make comfyui COMFYUI_VERSION=v0.3.40` is one without the new schema of nodes.
COMFYUI_REPOSITORY ?= https://github.com/comfyanonymous/ComfyUI
COMFYUI_VERSION ?= v0.7.0
COMFYUI := out/ComfyUI-$(COMFYUI_VERSION)
PURELIB := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'

comfyui: $(COMFYUI)/.ready
	OMP_NUM_THREADS=1 $(BIN)/python tests/real_comfyui/run.py $(COMFYUI) $(COMFYUI)/venv/bin/python

comfyui-picture: $(COMFYUI)/.ready
	$(BIN)/python tests/real_comfyui/picture.py $(COMFYUI) $(COMFYUI)/venv/bin/python

$(COMFYUI)/.ready: $(TEST_READY)
	test -d $(COMFYUI) || git -c advice.detachedHead=false clone --quiet --depth 1 --branch $(COMFYUI_VERSION) $(COMFYUI_REPOSITORY) $(COMFYUI) || \
	{ rm -rf $(COMFYUI); exit 1; }
	$(PYTHON) -m venv $(COMFYUI)/venv
	$(BIN)/python $(PURELIB) > "$$($(COMFYUI)/venv/bin/python $(PURELIB))/project.pth"
	grep -Ev '^(torch|torchvision|torchaudio|spandrel|comfyui-workflow-templates.*)$$' $(COMFYUI)/requirements.txt > $(COMFYUI)/wanted.txt
	$(COMFYUI)/venv/bin/python -m pip install --quiet --constraint constraints.txt --requirement $(COMFYUI)/wanted.txt
	touch $@

bench: $(TEST_READY)
	$(BIN)/python -m benchmarks.speed
	$(BIN)/python -m benchmarks.scheduler_step
	$(BIN)/python -m benchmarks.memory extract
	$(BIN)/python -m benchmarks.fuzz
	$(BIN)/python -m benchmarks.kills

# The table of docs/pipelines.md: every family of pipelines with tiny networks. A quarter of an hour.
pipelines: $(TEST_READY)
	$(BIN)/python -m benchmarks.pipelines

# The integration tests with the oldest versions that pyproject.toml allows, and with the newest that there are. `make test-versions
# NEWEST="torch==2.13.0 diffusers transformers"` keeps one of these back. The builds of torch for GPUs take 8 GB each.
OLDEST := $(shell sed -n 's/^  "\([A-Za-z0-9]*\)>=\([0-9.]*\)",$$/\1==\2/p' pyproject.toml)
NEWEST ?= torch diffusers transformers

test-versions:
	$(MAKE) out/versions/oldest/tested VERSIONS="$(OLDEST)"
	rm -rf out/versions/newest
	$(MAKE) out/versions/newest/tested VERSIONS="$(NEWEST)"

out/versions/%/tested: pyproject.toml
	$(PYTHON) -m venv out/versions/$*
	out/versions/$*/bin/python -m pip install --quiet $(VERSIONS) --editable . pytest hypothesis scipy jsonschema
	OMP_NUM_THREADS=1 out/versions/$*/bin/python -m pytest tests/integrations
	out/versions/$*/bin/python -m pip list --format freeze > $@

bench-quality: $(TEST_READY)
	$(BIN)/python -m benchmarks.quality

# Known holes of the versions that are tested together, by the database of PyPI; each of them must be looked up.
audit:
	$(PYTHON) -m venv out/audit
	out/audit/bin/python -m pip install --quiet pip-audit
	@out/audit/bin/python -c "from urllib.request import urlopen; urlopen('https://pypi.org/pypi/pip/25.0/json', timeout=20)" 2>/dev/null || \
	{ echo "pypi.org/pypi/PACKAGE/VERSION/json, the database of known holes, cannot be reached from here: nothing was checked"; exit 1; }
	out/audit/bin/pip-audit --strict --disable-pip --no-deps --requirement constraints.txt

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(RUN_READY): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(TEST_READY): pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable ".[test,docs]"
	touch $@ $(RUN_READY)

clean:
	rm -rf $(VENV) out site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
