# make test    all tests: offline, on a CPU, in ten minutes; the last lines say what was left out
# make plain   the tests of the engine go without its vector kernels (two minutes)
# make check   what else a change must pass: format, vet, tidy, lint, a build without a C compiler, floors, every config
# make lint    staticcheck (two minutes of processor time)
# make race    tests of what does several things at once, with the race detector; RUN=regexp takes some of them
# make race-short   those of them that .ci/run runs, in five minutes of two cores
# make vulns   known vulnerabilities in what is called: needs https://vuln.go.dev
# make cross   build for macOS and Windows
# make gpu     programs of every command compiled for a GPU that is not there (scripts/install-cuda-compiler.sh)
# make slow    every test of the engines on xla too, in all variants, with XLA's own flags (half an hour), and small
#              runs killed at every rename, unlink, fsync, … (needs strace; ten minutes)
# make speed   speed against PyTorch and TRL, with PYTHON=venv/bin/python; with DATA=pairs.jsonl.gz also on real pairs
# make fuzz    every fuzz target of PACKAGES (./...) for FUZZTIME (60s) each: prints how many inputs each has tried
# make picture draw the floors again

GO ?= go
PYTHON ?= python3
FUZZTIME ?= 60s
PACKAGES ?= ./...
DATA ?=
RUN ?=

# What is built has the vector kernels of the engine go (amd64; elsewhere it changes nothing).
export GOEXPERIMENT ?= simd

.PHONY: test plain check format vet tidy lint static cross floors picture configs race race-short vulns gpu slow speed fuzz

# go vet is part of make check.
test:
	$(GO) run ./internal/testkit/gotest -vet=off -timeout 60m ./...

plain:
	GOEXPERIMENT= $(GO) run ./internal/testkit/gotest -run '/^go' ./internal/backend ./losses ./model ./rollout ./train ./grpo \
		./federated/control

check: format vet tidy lint static floors configs

# Prints the files that gofmt would change, and fails where there are any.
format:
	@files=$$(git ls-files -z --cached --others --exclude-standard -- '*.go' | xargs -0 -r ls -d 2>/dev/null | xargs -r "$$($(GO) env GOROOT)/bin/gofmt" -l) && \
	if [ -n "$$files" ]; then echo "gofmt would change:"; echo "$$files"; exit 1; fi

vet:
	$(GO) vet ./...
	$(GO) vet -tags fixtures ./cmd/posttrain ./model

# Prints what go mod tidy would change, and fails where there is anything.
tidy:
	$(GO) mod tidy -diff

# Mistakes (SA), needless code (S1) and what is unused (U1000), but nothing about deprecated names (SA1019), such as
# max_tokens, the only one that most servers know. The other checks are about style: CONTRIBUTING.md has ours.
lint:
	$(GO) tool staticcheck -checks 'SA*,-SA1019,S1*,U1000' ./...

# The pure Go engine must build where there is no C compiler. Without optimisation that is known sooner.
static:
	CGO_ENABLED=0 $(GO) build -gcflags='all=-N -l' ./...

# The pure Go engine runs on macOS and Windows too.
cross:
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 $(GO) build -gcflags='all=-N -l' -o /dev/null ./cmd/posttrain
	GOOS=windows GOARCH=amd64 CGO_ENABLED=0 $(GO) build -gcflags='all=-N -l' -o /dev/null ./cmd/posttrain

floors:
	$(GO) test ./internal/floors

# Draws docs/floors.svg from the imports and the table of internal/floors.
picture:
	$(GO) test ./internal/floors -run TestPicture -update

configs:
	$(GO) test ./internal/config/... ./recipe ./eval/privacylens -run "Config|Options|Released|Reference|Faults|Settings"

# One package at a time: each takes a GiB to compile. GoMLX's products of matrices compute with addresses, which the
# checks of pointers that come with the detector refuse.
RACE := $(GO) run ./internal/testkit/gotest -race -p 1 -vet=off -timeout 60m \
	-gcflags='github.com/gomlx/compute/...=-d=checkptr=0'
race:
	$(RACE) -run '$(RUN)' ./ask ./rollout/... ./internal/serve ./federated/... ./internal/track ./internal/run ./eval/bench

# What .ci/run runs of race: an engine is at work in few of these tests.
race-short:
	$(RACE) ./internal/run ./internal/track ./ask ./rollout/remote ./rollout/metered ./rollout/scorer ./eval/bench
	$(RACE) -run 'Close|Adapters|Restart|Refused|Missing|Noise|Damaged|Failure|Twice|Unsent|Lost|Killed|Stuck|SecureRun' \
		./federated/link ./federated/protocol
	$(RACE) -run 'ShortDoes|^TestToken$$|Sites|Hosts|HalfClosed|WhoWaits|Leave|Finishes|Pause|SamplerFails' ./rollout \
		./internal/serve

vulns:
	$(GO) tool govulncheck ./...

gpu:
	POSTTRAIN_NEEDS=xla,cuda-compiler $(GO) run ./internal/testkit/gotest -run Device ./internal/hlo ./internal/backend ./model \
		./cmd/posttrain

slow:
	POSTTRAIN_NEEDS=xla,slow $(GO) run ./internal/testkit/gotest -timeout 2h ./internal/backend ./model ./train ./rollout \
		./grpo ./cmd/posttrain

fuzz:
	GO=$(GO) FUZZTIME=$(FUZZTIME) PACKAGES="$(PACKAGES)" scripts/fuzz.sh

speed:
	set -e; for c in step sample grpo; do $(GO) run ./internal/speed $$c --python $(PYTHON); done
ifneq ($(DATA),)
	$(GO) run ./internal/speed trl --python $(PYTHON) --data $(DATA)
endif
