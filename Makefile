# make lab     builds, installs into .venv and opens JupyterLab with the example notebook
# make test    everything that CI runs: set-up, then every suite
# make help    the rest

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: help setup browser native labextension lab test test-all wheel sdist screenshots clean

PYTHON ?= python3
VENV := $(CURDIR)/.venv
STAMPS := $(VENV)/stamps
JOBS := $(shell getconf _NPROCESSORS_ONLN)

export PATH := $(VENV)/bin:$(PATH)
# One build folder for the editable install's hook and for the rule below, so that the second finds the first one's objects.
export VGPU_BUILD_DIR := $(CURDIR)/build/native
# A browser comes from the system or from tools/browser.sh, not with an npm package.
export PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD := 1

NATIVE_SOURCES := CMakeLists.txt $(shell find native -type f)
LAB_SOURCES := $(shell find labextension -type f -not -path '*/node_modules/*' -not -path '*/lib/*' -not -path '*/.yarn/*' -not -name '*.tsbuildinfo' 2>/dev/null)

help: ## this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 22

setup: native labextension browser ## .venv with everything built and installed, and a browser for the tests

$(STAMPS)/venv:
	tools/prerequisites.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install -q --upgrade 'pip>=25.1'
	mkdir -p $(STAMPS)
	touch $@

$(STAMPS)/node: $(STAMPS)/venv tools/node.sh
	tools/node.sh $(VENV)
	touch $@

$(STAMPS)/python: pyproject.toml hatch_build.py $(STAMPS)/venv $(STAMPS)/node
	$(VENV)/bin/pip install -q --group build
	$(VENV)/bin/pip install -q --no-build-isolation -e '.[test]'
	touch $@ $(STAMPS)/labextension

native: $(STAMPS)/native ## compile native/ and put it where the package finds it

$(STAMPS)/native: $(NATIVE_SOURCES) $(STAMPS)/python
	cmake -S . -B $(VGPU_BUILD_DIR) -G Ninja
	cmake --build $(VGPU_BUILD_DIR) --parallel $(JOBS)
	cmake --install $(VGPU_BUILD_DIR) --prefix $(CURDIR)
	touch $@

labextension: $(STAMPS)/labextension ## bundle labextension/ and install it

$(STAMPS)/labextension: $(LAB_SOURCES) $(STAMPS)/python
	cd labextension && jlpm install --immutable && jlpm build:prod
	rm -rf $(VENV)/share/jupyter/labextensions/jupyter-vgpu
	mkdir -p $(VENV)/share/jupyter/labextensions
	cp -r jupyter_vgpu/labextension $(VENV)/share/jupyter/labextensions/jupyter-vgpu
	touch $@

$(STAMPS)/browser: tests/browser/package.json tests/browser/yarn.lock $(STAMPS)/python
	cd tests/browser && jlpm install --immutable
	touch $@

browser: $(STAMPS)/browser ## a Chromium for the browser tests: $VGPU_CHROMIUM, an installed one, or Playwright's
	tools/prerequisites.sh $(PYTHON) --browser

screenshots: setup ## docs/images/, taken anew by the browser tests
	cd tests/browser && VGPU_CHROMIUM=$$($(CURDIR)/tools/browser.sh) jlpm test:screenshots

lab: native labextension ## JupyterLab with the example notebook, on real GPUs or else simulated ones
	exec python tools/lab.py $(ARGS)

test: setup ## every suite, with its time
	VGPU_CHROMIUM=$$(tools/browser.sh) exec python tools/suites.py $(SUITES)

test-all: setup ## with the slow ones: wheels and environments made from nothing
	$(VENV)/bin/pip install -q --group wheel
	VGPU_CHROMIUM=$$(tools/browser.sh) exec python tools/suites.py --all $(SUITES)

wheel: labextension ## dist/: a wheel for glibc 2.28 and newer, checked by auditwheel
	$(VENV)/bin/pip install -q --group wheel
	tools/manylinux-wheel.sh . dist

sdist: labextension ## dist/: the sources with the built labextension
	python -m build --sdist --no-isolation --outdir dist .

clean: ## what was built; .venv stays
	rm -rf build dist jupyter_vgpu/native/lib jupyter_vgpu/native/include jupyter_vgpu/labextension labextension/lib labextension/*.tsbuildinfo
	rm -f $(STAMPS)/native $(STAMPS)/labextension
