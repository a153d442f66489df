# Each target prepares .venv first; with nothing changed that takes a tenth of a second.
.PHONY: setup demo test lint bench soak
BIN := .venv/bin
export HF_HUB_OFFLINE ?= 1
export VLLM_NO_USAGE_STATS ?= 1

setup:
	@PYTHON="$(PYTHON)" deploy/setup/run.sh

# make demo ARGS="--model tiny-mla"
demo: setup
	@$(BIN)/speedtier demo $(ARGS)

# make test ARGS="-k handoff -m 'not vllm'"
test: setup
	$(BIN)/pytest $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: setup
	$(BIN)/speedtier bench decode $(ARGS)

soak: setup
	SPEEDTIER_SOAK_S=$${SPEEDTIER_SOAK_S:-900} $(BIN)/pytest -m soak -s $(ARGS)
