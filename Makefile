# make test    all tests: offline, on a CPU, in minutes
# make check   what a change must pass besides: format, vet, tidy, a build without a C compiler, floors, every config
# make bench   posttrain against its peers; PYTHON=venv/bin/python for those that need PyTorch (bench/README.md)

GO ?= go
PYTHON ?=

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
	$(GO) run ./bench prefix
ifneq ($(PYTHON),)
	$(GO) run ./bench step --python $(PYTHON)
endif
