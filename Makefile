# Needs git, make and Python >= 3.11; everything else goes into a virtual environment here.
comma  := ,
PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
BENCH_OUT ?= reports
# Where there is an NVIDIA driver: CUPTI, NVRTC and cuDNN's front end too.
EXTRAS   ?= dev$(if $(wildcard /proc/driver/nvidia/version),$(comma)gpu)
BENCH_ID := smoke-$(shell date -u +%Y%m%dT%H%M%SZ)

.PHONY: help bench bench-host previous test test-long test-rest lint golden clean

help:
	@echo "make bench   measure the smoke suite on this machine and print its table"
	@echo "make bench-host   what the harness itself costs: report, run file"
	@echo "make previous REV=COMMIT   unpack that revision's kernels into .previous/COMMIT, for cake-bench run --previous"
	@echo "make test    ruff, mypy, import contracts, pytest"
	@echo "make golden  write the golden files and the run file's schema again; read the difference before you commit it"
	@echo "make clean   remove the virtual environment and caches"

$(VENV)/installed: pyproject.toml constraints.txt setup.py
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python >= 3.11 is needed, this is " + sys.version)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$(EXTRAS)]'
	touch $@

bench: $(VENV)/installed
	$(BIN)/cake-bench run --suite smoke --arm all --out $(BENCH_OUT) --run-id $(BENCH_ID)
	$(BIN)/cake-bench report $(BENCH_OUT)/$(BENCH_ID).json

bench-host: $(VENV)/installed
	$(BIN)/python -m tools.bench_host

# A machine without git can then measure that revision: the folder says which it is.
previous:
	@case '$(REV)' in ''|*..*) echo "REV must name one commit, got '$(REV)'; say make previous REV=HEAD~1" >&2; exit 2; esac
	git rev-parse --verify '$(REV)^{commit}'
	rm -rf '.previous/$(REV)/cake_kernels'
	mkdir -p '.previous/$(REV)'
	git archive '$(REV)' cake_kernels | tar -x -C '.previous/$(REV)'
	git rev-parse --short=12 '$(REV)^{commit}' >'.previous/$(REV)/REVISION'

# Two sides that take about as long, on a core each: the device code on the CPU, what starts many processes and the audits
# together with the linting before them, and everything else.
LONG_TESTS := $(patsubst %,tests/unit/cake_kernels/test_%.py,sm90_emulated sm90_machine_code sm90_nondet sm90_tail build_every_kernel) \
              $(patsubst %,tests/unit/test_%.py,kill rounds_end_to_end rounds_environments) $(sort $(wildcard tests/*/test_audit*.py))

test: $(VENV)/installed
	+$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint test-rest test-long

# One thread each: the threads of torch would wait for one another's cores.
test-long test-rest: export OMP_NUM_THREADS := 1

test-long: $(VENV)/installed
	$(BIN)/python -m pytest -p no:cacheprovider $(LONG_TESTS)

test-rest: $(VENV)/installed
	$(BIN)/python -m pytest $(addprefix --ignore=,$(LONG_TESTS))

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

golden: $(VENV)/installed
	GOLDEN_WRITE=1 $(BIN)/python -m pytest tests/unit/test_docs.py tests/unit/test_runfile.py tests/unit/test_doctor_pages.py tests/unit/test_compare_pages.py tests/unit/test_rounds_file.py tests/unit/test_rounds_table.py tests/unit/test_stats_page.py
	$(BIN)/python -m tests.unit.test_cases
	$(BIN)/python -m tests.unit.report_goldens

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
