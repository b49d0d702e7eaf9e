# Two commands for a new user: `make demo` and `make test`. Everything runs in environments that nox builds under .nox;
# nox, and uv where there is none, live in .venv-tools.

PYTHON ?= python3
TOOLS := .venv-tools
NOX := $(TOOLS)/bin/nox
SUMMARISE := $(TOOLS)/bin/python tools/summarise.py build/junit --out build/summary.txt

# uv does not read pip's settings: a machine that is set up for pip alone gets the same index and certificates.
ifdef PIP_INDEX_URL
ifndef UV_INDEX_URL
export UV_DEFAULT_INDEX ?= $(PIP_INDEX_URL)
endif
endif
ifdef PIP_CERT
export SSL_CERT_FILE ?= $(PIP_CERT)
endif

.DEFAULT_GOAL := help
.PHONY: help demo test tools matrix everything tensor-parallel lint docs bench audit watch clean

help:  ## List the commands
	@sed -n 's/^\([a-z-]*\): .*## /\1\t/p' $(MAKEFILE_LIST)

demo: $(TOOLS)/.ready  ## Build the default environment and run the demo (more arguments: ARGS="...")
	@$(NOX) -s demo -- $(ARGS)

test: $(TOOLS)/.ready  ## Lint, unit tests, and engine tests on three releases of vLLM; ends with one summary line
	@rm -rf build/junit build/summary.txt; rc=0; $(NOX) -s lint unit engine bracket || rc=$$?; $(SUMMARISE) --status $$rc

matrix: $(TOOLS)/.ready  ## Every pair of the matrix, or ONLY="vllm=0.18.1 speculators=0.4.0.1"; records matrix.json
	@$(TOOLS)/bin/python tools/run_matrix.py $(ONLY)

everything: $(TOOLS)/.ready  ## All tests, slow ones too, on every pair of the default release
	@rm -rf build/junit build/summary.txt; rc=0; $(NOX) -s engine -- --everything || rc=$$?; $(SUMMARISE) --status $$rc

tensor-parallel: $(TOOLS)/.ready  ## Tensor parallel 1, 2 and 8, and 61 layers (about 15 minutes); records benchmarks/results
	@$(NOX) -s tensor_parallel -- $(ARGS)

tools: $(TOOLS)/.ready  ## nox and uv alone, in .venv-tools

lint: $(TOOLS)/.ready  ## ruff and mypy
	@$(NOX) -s lint

docs: $(TOOLS)/.ready  ## Build the documentation into build/site
	@$(NOX) -s docs

audit: $(TOOLS)/.ready  ## The audit over every published release (downloads their sources once)
	@$(NOX) -s audit -- $(ARGS)

watch: $(TOOLS)/.ready  ## Audit the newest vLLM of the package index: is a new drift needed? (ARGS="--record" keeps the result)
	@export SPECULATORS_COMPAT_CACHE="$${SPECULATORS_COMPAT_CACHE:-.nox/audit-cache}"; $(TOOLS)/bin/python tools/watch.py $(ARGS)

bench: $(TOOLS)/.ready  ## Run the benchmarks that need no engine
	@$(NOX) -s bench -- $(ARGS)

clean:  ## Remove everything that was built, environments included
	rm -rf build dist .nox $(TOOLS) .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(TOOLS)/.ready: tools/bootstrap.sh tools/requirements.txt
	@PYTHON="$(PYTHON)" bash tools/bootstrap.sh $(TOOLS)
	@touch $@
