# On a fresh Debian or Ubuntu machine, as root: `make demo` or `make test`, nothing before it.

PYTHON ?= python3
# The CPU build of torch, which tests and demo train with. PyPI's build for x86-64 brings gigabytes of CUDA.
TORCH ?= torch==2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

BIN := .venv/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
SOURCES := pyproject.toml README.md LICENSE NOTICE $(shell find netprof/ probes/ analysis/ -name '*.py' -o -name '*.[ch]' -o -path '*/html/*.*')
export PATH := $(PATH):/usr/sbin:/sbin
unexport PYTHONPATH  # tests and demo must see the installed wheel, nothing else

.PHONY: help install inplace check lint types contract test demo fuzz mutate bench predictions horovod nccl clean prepare prepare-test prepare-horovod

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/.installed  ## build the wheel and install it into .venv: the program is .venv/bin/netprof

check: lint types contract .venv/.torch  ## what to run after every change: lint, types, import contracts, unit tests (some minutes)
	$(BIN)/pytest --numprocesses logical --maxprocesses 8 --dist worksteal tests/unit

test: prepare-test check  ## everything: what check does, and every other test, against the installed wheel
	@# What fails while the CPUs are away is tried again (tests/integration/conftest.py), and shown at the end.
	$(BIN)/pytest --max-suite-reruns 40 --rerun-show-tracebacks tests/integration

demo: .venv/.torch  ## profile a real 2-rank training job between two namespaces; writes out/demo.*
	$(BIN)/python examples/demo.py

bench: .venv/.torch  ## print the benchmark tables (tens of minutes)
	set -e; for script in examples/benchmarks/[!_]*.py; do \
		case $$script in */predict_then_*) continue ;; esac; \
		echo "== $$script"; $(BIN)/python $$script; \
	done

predictions: .venv/.torch  ## hold what-if's predictions against real jobs on changed links (50 minutes)
	set -e; for script in examples/benchmarks/predict_then_*.py; do echo "== $$script"; $(BIN)/python $$script; done

fuzz: .venv/.torch inplace  ## hostile traces, captures and logs against every output: CASES=100000, from FIRST=0 on (hours)
	PYTHONPATH=.:tests:examples $(BIN)/python tests/fuzz --cases $(or $(CASES),100000) --first $(or $(FIRST),0) --keep out/fuzz

mutate: .venv/.torch inplace  ## small changes of the code that no unit test notices: SAMPLE=N of each part, PART=analysis/account, AGAIN=LOG (an hour)
	PYTHONPATH=tests:examples $(BIN)/python tests/mutation $(addprefix --sample ,$(SAMPLE)) $(addprefix --part ,$(PART)) $(addprefix --again ,$(AGAIN))

nccl: .venv/.made  ## get NVIDIA's real NCCL (190 MB, once; kept in ~/.cache/netprof), for the tests that look into it
	examples/get_nccl $(BIN)/python

horovod: prepare-horovod .venv/.torch  ## build Horovod (minutes, once; kept in ~/.cache/netprof), for the test that needs it
	examples/build_horovod $(BIN)/python

lint: .venv/.installed  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.installed  ## mypy --strict, of tests and examples too
	$(BIN)/mypy

contract: .venv/.installed  ## who may import whom, and nobody in a circle
	$(BIN)/lint-imports

inplace: .venv/.tools  ## compile the BPF programs and the native library into the checkout
	$(BIN)/python probes/build.py

clean:  ## remove everything that was built, .venv too
	rm -rf .venv build dist out *.egg-info probes/*/*.bpf.o probes/kernel/native/*.so* probes/kernel/native/licenses

prepare:
	@PYTHON="$(PYTHON)" .ci/prepare

prepare-test prepare-horovod: prepare-%:
	@PYTHON="$(PYTHON)" .ci/prepare $*

.venv/.made: | prepare
	"$(PYTHON)" -m venv .venv
	@touch $@

.venv/.tools: .venv/.made pyproject.toml
	$(PIP) install 'setuptools>=77'
	@touch $@

dist/.built: .venv/.made $(SOURCES) | prepare
	rm -rf build dist
	$(PIP) wheel --no-deps --wheel-dir dist .
	@touch $@

.venv/.installed: dist/.built
	$(PIP) install "$$(ls dist/*.whl)[dev]"
	$(PIP) install --no-deps --force-reinstall dist/*.whl
	@touch $@

.venv/.torch: .venv/.installed
	@# The index for torch alone, and where it cannot be reached, do without it.
	$(PIP) install --retries 1 --no-deps --extra-index-url $(TORCH_INDEX) '$(TORCH)'
	$(PIP) install '$(TORCH)'
	@touch $@
