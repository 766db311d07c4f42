# On a fresh Debian or Ubuntu machine, as root: `make demo` or `make test`, nothing before it.

PYTHON ?= python3
# The CPU build of torch, which tests and demo train with. PyPI's build for x86-64 brings gigabytes of CUDA.
TORCH ?= torch==2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check # errors only
SOURCES := pyproject.toml README.md LICENSE NOTICE $(shell find netprof/ probes/ analysis/ -name '*.py' -o -name '*.[ch]' -o -path '*/html/*.*')
COMPILED := probes/build.py $(shell find probes/ -name '*.[ch]')
PYTEST := $(BIN)/pytest # not python -m pytest, which would look into the checkout first
TOGETHER := --numprocesses logical --maxprocesses 8 --dist worksteal
AGAIN := $(if $(CI),.ci/again out/failed.log) # two shared cores: what fails is tried once more, alone
ON_CHECKOUT := PYTHONPATH=. # what is in the checkout, without a wheel
GROUPS := causes frameworks wire program trust hosts deep
export PATH := $(PATH):/usr/sbin:/sbin
export PIP_ROOT_USER_ACTION := ignore
unexport PYTHONDONTWRITEBYTECODE  # compiling every test again takes seconds
unexport PYTHONPATH  # all but `make check` must see the installed wheel, nothing else

.PHONY: docs help install inplace check lint types contract test test-all golden demo release fuzz mutate bench predictions horovod nccl clean groups prepare prepare-test prepare-horovod

help:  ## what can be made
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: .venv/.installed  ## build the wheel and install it into .venv: the program is .venv/bin/netprof

check: .venv/.torch inplace lint contract  ## after every edit (90 s): lint, types of the product, imports, quick unit tests, golden recordings
	$(BIN)/mypy netprof
	$(ON_CHECKOUT) $(PYTEST) $(TOGETHER) -m "not slow and not deep" tests/golden tests/unit

test: prepare-test .venv/.installed .venv/.torch lint types contract  ## before a commit lands (20 min): all unit tests in full depth and a real job of every kind, on the installed wheel
	NETPROF_PROFILE=test $(AGAIN) $(PYTEST) $(TOGETHER) -m "not deep" tests/golden tests/unit
	$(AGAIN) $(PYTEST) --group core tests/integration

test-all: prepare-test .venv/.installed .venv/.torch $(if $(filter-out frameworks,$(GROUP)),,horovod nccl)  ## every test there is (an hour), or one GROUP: causes, frameworks, wire, program, trust, hosts, deep; REST=1 without those of make test
	$(if $(filter-out deep,$(GROUP)),,NETPROF_PROFILE=test $(AGAIN) $(PYTEST) $(TOGETHER) $(if $(GROUP),-m deep) tests/golden tests/unit)
	$(if $(filter deep,$(GROUP)),,$(AGAIN) $(PYTEST) $(addprefix --group ,$(GROUP)) $(if $(REST),-m "not core") tests/integration)

docs: .venv/.torch inplace  ## the documentation as a site, strict, in out/site
	PYTHONPATH=.:tests:examples $(BIN)/python docs/make.py --check
	$(PIP) install 'mkdocs-material>=9.5,<10'
	$(BIN)/mkdocs build --strict

golden: .venv/.torch inplace  ## conclude from every golden recording again, and print what changed; UPDATE=1 rewrites what is expected, NAMES="loss mpi"
	PYTHONPATH=.:tests:examples $(BIN)/python -m golden $(if $(UPDATE),--update) $(NAMES)

demo: .venv/.installed .venv/.torch  ## profile a real 2-rank training job between two namespaces; writes out/demo.*
	$(BIN)/python examples/demo.py

bench: .venv/.installed .venv/.torch  ## measure the README's figures (5 minutes), or NAMES="packet_cost live_cost" of examples/benchmarks; results in out/benchmarks
	$(BIN)/python examples/benchmarks/_run.py $(NAMES)

predictions: .venv/.installed .venv/.torch  ## hold what-if's predictions against real jobs on changed links (50 minutes)
	$(BIN)/python examples/benchmarks/_run.py predict_then_throttle predict_then_compress

release: .venv/.made  ## build sdist and wheel twice, compare and check them; dist/ is ready to be published
	.ci/release $(BIN)/python

fuzz: .venv/.torch inplace  ## hostile traces, captures and logs against every output: CASES=100000, from FIRST=0 on (hours)
	PYTHONPATH=.:tests:examples $(BIN)/python tests/fuzz --cases $(or $(CASES),100000) --first $(or $(FIRST),0) --keep out/fuzz

mutate: .venv/.torch inplace  ## small changes of the code that no unit test notices: TOTAL=200 of all or SAMPLE=N of each part, PART=analysis/account, AGAIN=LOG (hours)
	PYTHONPATH=tests:examples $(BIN)/python tests/mutation $(addprefix --total ,$(TOTAL)) $(addprefix --sample ,$(SAMPLE)) $(addprefix --part ,$(PART)) $(addprefix --again ,$(AGAIN))

nccl: .venv/.made  ## get NVIDIA's real NCCL (190 MB, once; kept in ~/.cache/netprof), for the tests that look into it
	examples/get_nccl $(BIN)/python

horovod: prepare-horovod .venv/.torch  ## build Horovod (minutes, once; kept in ~/.cache/netprof), for the test that needs it
	examples/build_horovod $(BIN)/python

lint: .venv/.dependencies  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.dependencies  ## mypy --strict, of tests and examples too
	$(BIN)/mypy

contract: .venv/.dependencies  ## who may import whom, and nobody in a circle
	$(ON_CHECKOUT) $(BIN)/lint-imports

inplace: .venv/.inplace  ## compile the BPF programs and the native library into the checkout

clean:  ## remove everything that was built, .venv too
	rm -rf .venv build dist out *.egg-info probes/*/*.bpf.o probes/kernel/native/*.so* probes/kernel/native/licenses

groups:
	@echo $(GROUPS)

prepare:
	@PYTHON="$(PYTHON)" .ci/prepare

prepare-test prepare-horovod: prepare-%:
	@PYTHON="$(PYTHON)" .ci/prepare $*

.venv/.made: | prepare
	"$(PYTHON)" -m venv .venv
	@touch $@

.venv/.dependencies: .venv/.made pyproject.toml
	.ci/dependencies $(BIN)/python dev | $(PIP) install --requirement /dev/stdin
	@touch $@

.venv/.inplace: .venv/.dependencies $(COMPILED)
	$(BIN)/python probes/build.py
	@touch $@

dist/.built: .venv/.made $(SOURCES) | prepare
	rm -rf build dist
	$(PIP) wheel --no-deps --wheel-dir dist .
	@touch $@

.venv/.installed: dist/.built .venv/.dependencies
	$(PIP) install --no-deps --force-reinstall dist/*.whl
	@touch $@

.venv/.torch: .venv/.dependencies
	@# The index for torch alone, and where it cannot be reached, do without it.
	$(PIP) install --retries 1 --no-deps --extra-index-url $(TORCH_INDEX) '$(TORCH)'
	$(PIP) install '$(TORCH)'
	@touch $@
