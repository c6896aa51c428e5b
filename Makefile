# Everything from a fresh clone: `make demo` and `make test` make their own environment in .venv, with the versions of
# constraints.txt. The CPU build of PyTorch instead of the CUDA build: see README.md.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := -m pip --disable-pip-version-check --quiet
# More processes than the two cores of a laptop: many tests wait for processes that they have started.
PYTEST := -m pytest -q -n 3 --dist loadfile
# Shapes and types of the kernel's calls are checked while the tests run.
SHAPES := --jaxtyping-packages=vitral.attention,vitral.model,vitral.evaluation,vitral.decoding,vitral.inspection,beartype.beartype
PYTHONS := 3.11 3.12 3.13 3.14
# The lower bounds of the dependencies, as constraints.
LOWEST := 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	print(*(each.replace(">=", "==") for each in project["dependencies"]), sep="\n")'

.PHONY: demo site test test-merge test-full sizes test-oldest test-newest check format gallery zoo live sources course class first-steps web native llama bench wheel no-compiler resolve constraints clean

demo: $(VENV)/.installed
	$(BIN)/vitral demo

# The quick tier: tests without a marker. The markers are in pyproject.toml.
test: $(VENV)/.installed-test
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST)

# What CI adds: browser, Node, other libraries, ranks, workers, kills, sanitizers, notebooks, simulations.
test-merge: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "merge and not full" $(SHAPES)

# A night: every test, with thousands of kills, 200,000 flipped bits, 10,000 sheets of students.
test-full: $(VENV)/.installed-dev
	VITRAL_FULL=1 OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) -m "" $(SHAPES)

# The size of each room beside its budget; LOWER=--lower writes what has become smaller.
sizes:
	$(PYTHON) tests/house/sizes.py $(LOWER)

# For a night: the tests with the oldest and with the newest versions that pyproject.toml admits, each in an environment
# of its own. On Linux both bring PyTorch with CUDA, about 6 GB. Old libraries warn about their newer neighbours.
test-oldest: build/oldest.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(VENV)-oldest/bin/python $(PIP) install -c build/oldest.txt -e '.[dev]'
	OMP_NUM_THREADS=1 $(VENV)-oldest/bin/python $(PYTEST) -m "not full" -W ignore::DeprecationWarning $(TESTS)

test-newest:
	$(PYTHON) -m venv $(VENV)-newest
	$(VENV)-newest/bin/python $(PIP) install --upgrade --upgrade-strategy eager -e '.[dev]'
	OMP_NUM_THREADS=1 $(VENV)-newest/bin/python $(PYTEST) -m "not full" $(TESTS)

build/oldest.txt: pyproject.toml
	mkdir -p build
	$(PYTHON) -c $(LOWEST) > $@

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

gallery: $(VENV)/.installed
	$(BIN)/python docs/make_gallery.py

# The documentation as a site in build/site, English and Portuguese, with the notebooks executed (VITRAL_NOTEBOOKS=0: not).
site: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	NO_MKDOCS_2_WARNING=1 VITRAL_SITE=pt $(BIN)/mkdocs build --strict --quiet --site-dir build/site/pt
	@echo "the site: build/site/index.html"

# The runs of the zoo by their recipes; ZOO names some. What is trained already is taken from build/zoo.
zoo: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m docs.make_zoo $(ZOO)

# The live pages of docs/demo, of runs of the zoo.
live: $(VENV)/.installed
	OMP_NUM_THREADS=1 $(BIN)/python -m docs.make_live

# The README in both languages, the page of the lecture notes, the index of studies and the page of tricks, from readme.txt, sources.toml,
# findings.toml and the results.
sources: $(VENV)/.installed
	$(BIN)/python -m docs.make_readme
	$(BIN)/python -m docs.make_sources
	$(BIN)/python -m docs.make_tricks

# The lessons of docs/course from their templates; trainings only where they are new, AGAIN=02 those of lesson 2 again.
course: $(VENV)/.installed
	$(BIN)/python -m docs.make_course $(AGAIN)

# Slides, sheets with keys and the page of a lesson into build/class-3: make class LESSON=3 STUDENTS=20; CLASS_LANG=pt in Portuguese.
LESSON := 1
STUDENTS := 20
CLASS_LANG := $(if $(filter pt%,$(or $(VITRAL_LANG),$(LANG))),pt,en)
class: $(VENV)/.installed
	$(BIN)/python -m docs.make_class "$(LESSON)" "$(CLASS_LANG)" "$(STUDENTS)"

# On an idle machine: what both first-steps.md show is measured again.
first-steps: $(VENV)/.installed
	$(BIN)/python docs/make_first_steps.py

# The script of live pages (web/README.md), with Node.
web: web/node_modules
	cd web && npm run --silent check && npm run --silent build

web/node_modules: web/package.json web/package-lock.json
	cd web && npm ci --silent --no-audit --no-fund
	touch $@

# Generation in C, compiled beside its source; an installation does it by itself.
native:
	$(PYTHON) src/vitral/model/native/build.py

# llama.cpp by Node, for the tests of GGUF files, without the binaries for graphics cards (85 MB): VITRAL_LLAMA_CPP=build/llama
LLAMA := 3.22.1
llama:
	mkdir -p build/llama
	npm install --prefix build/llama --no-save --silent --no-audit --no-fund --omit=optional node-llama-cpp@$(LLAMA) \
		"@node-llama-cpp/$$(node -p 'process.platform + "-" + process.arch')@$(LLAMA)"

# BENCH names rows and options: make bench BENCH="step throughput --threads 2"
bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks $(BENCH)

# FOLDER/venv, which does not see the checkout; only its dependencies are those of .venv.
define environment
	$(BIN)/python -m venv $(1)/venv
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
		> "$$($(1)/venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/dependencies.pth"
endef

# The wheel, built in FOLDER and installed in FOLDER/venv.
define installed
	rm -rf $(1)
	$(BIN)/python $(PIP) wheel --no-deps --wheel-dir $(1) .
	$(call environment,$(1))
	$(1)/venv/bin/python $(PIP) install --no-deps $(1)/vitral-*.whl
endef

wheel: $(VENV)/.installed
	$(call installed,build/wheel)
	wheel="$$PWD/build/wheel"; cd / && set -ex; PATH="$$wheel/venv/bin:$$PATH"; \
	vitral --version; vitral list > /dev/null; vitral study --help > /dev/null; vitral explain the-cat-sat > /dev/null; \
	vitral train sample --set training.steps=20 --out "$$wheel/run" > /dev/null; vitral generate "$$wheel/run" --max-tokens 80; \
	vitral generate zoo:one-layer --max-tokens 20 > /dev/null

# A machine without a C compiler: a PATH of links to everything else. A fresh clone, in which no library of this checkout
# lies, is installed as `make` does it, makes a demo as small as can be, and passes the tests of all that generates.
SMALL_DEMO := $(addprefix --set ,model.d_model=12 model.num_layers=1 model.num_heads=3 model.context_length=11 \
	training.steps=4 training.evaluate_every=2 training.sample_every=1 training.sample_tokens=20 training.batch_size=5)
COMPILERS := '^(.*-)?(cc|c[89]9|c\+\+|gcc|g\+\+|cpp|clang|clang\+\+|clang-cpp|icx|icpx|tcc)(-[0-9.]+)?$$'
GENERATING := tests/native tests/decoding tests/app/test_commands.py tests/app/test_library.py tests/page/test_server.py
HIDDEN := build/no-compiler
no-compiler: $(VENV)/.installed-dev
	rm -rf $(HIDDEN) && mkdir -p $(HIDDEN)/bin
	IFS=:; for folder in $$PATH; do ln -s "$$folder"/* $(HIDDEN)/bin 2> /dev/null || true; done
	ls $(HIDDEN)/bin | grep -E $(COMPILERS) | sed 's|^|$(HIDDEN)/bin/|' | xargs rm
	git clone --quiet . $(HIDDEN)/vitral
	$(call environment,$(HIDDEN))
	set -ex; unset CC CXX; export PATH="$$PWD/$(HIDDEN)/bin" OMP_NUM_THREADS=1; python="$$PWD/$(HIDDEN)/venv/bin/python"; \
	cd $(HIDDEN)/vitral; test "$$($$python src/vitral/model/native/build.py)" = "no C compiler was found"; \
	$$python $(PIP) install --no-deps -e .; \
	test ! -e src/vitral/model/native/_step.so; $$python -m vitral demo $(SMALL_DEMO) > /dev/null; \
	$$python $(PYTEST) -p no:cacheprovider $(GENERATING)

# Whether the dependencies can be had for each Python, at the newest versions and at those of constraints.txt, and at the
# oldest versions for the oldest Python. Nothing is installed.
resolve: $(VENV)/bin/python build/oldest.txt
	rm -rf build/resolve && mkdir -p build/resolve && : > build/resolve/newest.txt
	$(BIN)/python $(PIP) wheel --no-deps --wheel-dir build/resolve .
	set -e; resolved() { \
		$(BIN)/python -m pip install --dry-run --ignore-installed --only-binary=:all: --target build/resolve/none \
			--python-version $$1 -c $$2 build/resolve/vitral-*.whl > build/resolve/log 2>&1 || { tail build/resolve/log; exit 1; }; \
		echo "Python $$1 resolves with $$2"; }; \
	resolved $(firstword $(PYTHONS)) build/oldest.txt; \
	for version in $(PYTHONS); do \
		resolved $$version constraints.txt; resolved $$version build/resolve/newest.txt; done

# The versions of .venv become those of everyone; +cpu is a build of the same version.
constraints: $(VENV)/.installed-dev
	(sed -n '/^#/p' constraints.txt; $(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu$$//') > build/constraints.txt
	mv build/constraints.txt constraints.txt

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("vitral needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; say make PYTHON=python3.12 …") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt hatch_build.py src/vitral/model/native/step.c
	$(BIN)/python $(PIP) install -c constraints.txt -e .
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(BIN)/python $(PIP) install -c constraints.txt -e '.[test]'
	touch $@

# The libraries that exports are opened in are 280 MB. Where they cannot be had, their tests are skipped and say so.
$(VENV)/.installed-dev: $(VENV)/.installed
	$(BIN)/python $(PIP) install -c constraints.txt -e '.[dev,interop,docs]' || ( \
		$(BIN)/python $(PIP) install -c constraints.txt -e '.[dev]'; echo "the extras interop and docs could not be installed")
	touch $@ $(VENV)/.installed-test

$(VENV)/.installed-docs: $(VENV)/.installed
	$(BIN)/python $(PIP) install -c constraints.txt -e '.[docs]'
	touch $@

$(VENV)/.installed-bench: $(VENV)/.installed
	$(BIN)/python $(PIP) install -c constraints.txt -e '.[bench]'
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest build dist
