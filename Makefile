# make test    all tests: offline, on a CPU, in minutes
# make check   what a change must pass besides: format, vet, tidy, a build without a C compiler, floors, every config
# make bench   posttrain against itself; PYTHON=venv/bin/python: and against PyTorch and TRL; DATA=pairs.jsonl.gz: and on
#              real pairs (bench/README.md)

GO ?= go
PYTHON ?=
DATA ?=

.PHONY: test check format vet tidy static floors configs bench

test:
	$(GO) test -timeout 15m ./...

check: format vet tidy static floors configs

# Prints the files that gofmt would change, and fails where there are any.
format:
	@files=$$(git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 -r ls -d 2>/dev/null | xargs -r "$$($(GO) env GOROOT)/bin/gofmt" -l) && \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi

vet:
	$(GO) vet ./...

# Prints what go mod tidy would change, and fails where there is anything.
tidy:
	$(GO) mod tidy -diff

# The pure Go engine must build where there is no C compiler.
static:
	CGO_ENABLED=0 $(GO) build ./...

floors:
	$(GO) test ./internal/floors

configs:
	$(GO) test ./internal/config

bench:
	set -e; for c in prefix accumulate group compaction grpo-train privacylens; do $(GO) run ./bench $$c; done
ifneq ($(PYTHON),)
	set -e; for c in step sample grpo; do $(GO) run ./bench $$c --python $(PYTHON); done
ifneq ($(DATA),)
	$(GO) run ./bench trl --python $(PYTHON) --data $(DATA)
endif
endif
