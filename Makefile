# make run and make test are all a newcomer needs. Everything else is for those who change the
# program.

SHELL   := /bin/bash
GO      ?= go
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
BIN     := bin/gateway
.DEFAULT_GOAL := build
FUZZTIME ?= 20s
# Fetched as Go modules when they are used. .golangci.yml and staticcheck.conf configure two of them.
GOLANGCI    := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
MISSPELL    := github.com/golangci/misspell/cmd/misspell@v0.8.0
DEADCODE    := golang.org/x/tools/cmd/deadcode@v0.52.0
# The modules below tests/: go.mod of the program does not name what only they need.
NESTED := tests/bench tests/real tests/containers

.PHONY: help build need outdated run run-cluster stampede test test-race test-long test-packages lint \
	lint-quick lint-text lint-dead keys fuzz attack soak bench profile \
	bench-compare bench-locks e2e check real dist clean

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 16

build: ## build bin/gateway
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o $(BIN) ./cmd/gateway

# Serves a small store that the program makes itself, and prints URLs to try.
run: build ## make a demonstration store and serve it
	$(BIN) demo -dir demo-store

# A tracker, three storages in two groups and three gateways without a store that share a Redis, all
# on loopback.
run-cluster: build ## a tracker, three storages, three gateways and a Redis, on loopback
	$(GO) run ./tests/runcluster -gateway $(BIN)

# Many clients ask for one cold file at once: the load of the storage and the waits of the clients, with nginx and
# Varnish beside it where they are installed. STAMPEDE takes other sizes and numbers:
# make stampede STAMPEDE='-clients 2000 -size 4096 -scenario expired'
stampede: build ## many clients ask for one cold file at once: STAMPEDE="-clients 2000"
	$(GO) build -C tests/bench -o $(CURDIR)/bin/stampede ./stampede
	bin/stampede -gateway $(BIN) $(STAMPEDE)

# The race detector needs a C compiler. Looked for when a test begins: it may have been installed
# just then.
RACE = $(shell command -v gcc >/dev/null && echo -race)

# Installs what the tests need and this host does not have.
need: ## install what the tests need
	@tests/need

outdated: ## list the modules of go.mod that are behind their latest version
	@for dir in . $(NESTED); do \
		$(GO) list -C $$dir -m -e -u -f '{{if .Update}}{{.Path}} {{.Version}} -> {{.Update.Version}}{{end}}' \
			$$(sed -n 's/^\t\([^ ]*\) v[0-9].*/\1/p' $$dir/go.mod); \
	done | sort -u

# All tests: unit and fuzz seeds with the race detector, and end to end on the built binary. tests/run
# has two streams of packages, each with one at a time: these keep two cores busy, and more packages
# make each other wait for seconds.
test: need build ## all tests
	@GO='$(GO)' GATEWAY_BINARY=$(CURDIR)/$(BIN) tests/run -p 1 $(RACE) -count=1 -timeout 30m

# The same, and a failure where the race detector cannot run.
test-race: need ## all tests; fails without the race detector
	@test -n "$(RACE)" || { echo "make test-race: gcc is missing (apt-get install gcc libc6-dev)"; exit 1; }
	$(MAKE) test

# The same with thousands of histories of locks and folders, and the long lists of faults: hours,
# not minutes.
test-long: need build ## all tests, with thousands of random histories: hours
	@GATEWAY_BINARY=$(CURDIR)/$(BIN) TEST_LONG=1 LOCK_SEEDS=5000 FOLDER_CHECKS=100000 \
		GO='$(GO)' tests/run -p 1 $(RACE) -count=1 -timeout 4h

# Packages and image are made, installed on a Debian that boots in a container, upgraded and
# removed: four minutes, and two more at the first time. Needs Debian and root.
test-packages: ## tests of what make dist makes; Debian and root
	@tests/need packages
	$(GO) test -count=1 -timeout 20m ./tests/packages -packages

# End to end alone.
e2e: need build ## end-to-end tests only
	GATEWAY_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 ./tests/...

lint: lint-text lint-dead ## golangci-lint, dead code, spelling and words
	@for module in . $(NESTED); do \
		echo "lint $$module"; (cd $$module && $(GO) run $(GOLANGCI) run ./...) || exit 1; \
	done

# The same without golangci-lint, which takes minutes to build on a host that has not built it yet:
# CI runs this.
lint-quick: lint-text lint-dead ## gofmt, vet, staticcheck, dead code, spelling and words
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	@for module in . $(NESTED); do \
		echo "lint $$module"; (cd $$module && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...) || exit 1; \
	done

lint-text:
	$(GO) run $(MISSPELL) -error $$(git ls-files)
	$(GO) test ./tests/style

# Functions that the program cannot reach. cachelock is a library: the program does not use all of it.
lint-dead:
	@dead=$$($(GO) run $(DEADCODE) ./cmd/...) || exit 1; \
	dead=$$(grep -v '^cachelock/' <<<"$$dead"); \
	test -z "$$dead" || { printf 'dead code:\n%s\n' "$$dead" >&2; exit 1; }

# The tables of keys in the documents, from the tables of internal/config.
keys: ## write the tables of docs/configuration.md and docs/zh/configuration.md
	$(GO) test ./tests/translation -run TestConfigurationPages -write

# Every fuzz target for FUZZTIME.
fuzz: ## every fuzz target for FUZZTIME=20s each
	@for module in . $(NESTED); do for pkg in $$($(GO) list -C $$module ./...); do \
		for target in $$($(GO) test -C $$module -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; $(GO) test -C $$module -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
		done; \
	done; done

# The built gateway under attack on raw sockets: make attack ATTACK=1h SEED=7. tests/attack says
# what is done to it.
ATTACK ?= 10m
SEED   ?= 1
attack: build ## mutated requests for ATTACK=10m with SEED=1
	GATEWAY_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 0 -v ./tests/attack -args -attack.for=$(ATTACK) -attack.seed=$(SEED)

# Gateways under mixed traffic for long, while storages and Redis go away: tests/soak. SOAKOUT takes
# soak.csv.
SOAK    ?= 1h
SOAKOUT ?= bin
soak: build ## mixed traffic and disturbances for SOAK=1h, with samples in bin/soak.csv
	GATEWAY_BINARY=$(CURDIR)/$(BIN) $(GO) test -count=1 -timeout 0 -v ./tests/soak -args -soak.for=$(SOAK) -soak.out=$(abspath $(SOAKOUT))

# The gateway beside nginx on the same files, with wrk: writes docs/benchmarks.md. BENCH=-link puts
# wrk behind a virtual network link, NGINX_MODULE=/path/to/nginx adds an nginx with the FastDFS
# module. Other rounds go there too, and cases, which are only printed:
# make bench BENCH="-rounds 3 -time 2s -cases '^4 KiB|304'".
bench: build ## compare with nginx and write docs/benchmarks.md
	$(GO) build -C tests/bench -o $(CURDIR)/bin/bench .
	bin/bench -gateway $(BIN) -out docs/benchmarks.md $(BENCH)
	$(if $(NGINX_MODULE),bin/bench -gateway $(BIN) -module $(NGINX_MODULE) -out docs/benchmarks.md $(BENCH))

# The profile that go build reads (https://go.dev/doc/pgo): small responses, which cost mostly time of
# the program. A profile of all cases is mostly of sendfile, and gains less.
PROFILE ?= ^4 KiB file$$|^4 KiB trunk|^64 KiB file$$|range|^304|^404|token|, a connection each$$|^4 KiB file by|mix
profile: build ## write cmd/gateway/default.pgo, the profile that go build reads
	$(GO) build -C tests/bench -o $(CURDIR)/bin/bench .
	bin/bench -gateway $(BIN) -time 8s -cases '$(PROFILE)' -profile cmd/gateway/default.pgo

# The working tree beside another revision, judged by benchstat:
# make bench-compare REF=v1.0.0 COMPARE='-packages ./storage/local -cases mix'
REF ?= HEAD
bench-compare: ## compare with revision REF=HEAD: COMPARE="-packages ./storage/local"
	GO='$(GO)' tests/bench/compare -ref $(REF) $(COMPARE)

# cachelock beside redsync and redislock on one Redis.
bench-locks: need ## compare cachelock with other lock libraries
	$(GO) test -C tests/bench -run '^$$' -bench . ./locks

# Beside a real FastDFS, in network namespaces; needs root. tests/real/README.md says more:
# make real FASTDFS_BIN=/opt/fastdfs/bin FASTDFS_MODULE_NGINX=/opt/nginx/sbin/nginx REAL='-trunk -ids'
real: build ## tests beside a real FastDFS: FASTDFS_BIN=/opt/fastdfs/bin
	cd tests/real && $(GO) build -o $(CURDIR)/bin/real .
	@FASTDFS_BIN='$(abspath $(FASTDFS_BIN))' FASTDFS_MODULE_NGINX='$(abspath $(FASTDFS_MODULE_NGINX))' \
		bin/real -gateway $(CURDIR)/$(BIN) $(REAL)

check: lint test-race ## lint and all tests

# Tarballs, packages, SBOM and checksums in dist/: the same commit makes the same bytes. VERSION=v1.2.3
# sets the version, SOURCE_DATE_EPOCH the time of all files.
dist: ## release in dist/: tarballs, Debian and RPM packages, SBOM, checksums
	$(GO) run ./packaging/mkdist -version '$(VERSION)' -out dist

clean: ## remove what make has built
	rm -rf bin demo-store dist
