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
# The module of the tests that need other programs or more time: go.mod of the program does not name
# what only they need.
ALL := tests/all

.PHONY: help build need need-bench outdated run run-cluster stampede test test-all test-packages lint lint-quick \
	lint-text lint-dead keys fuzz attack soak bench profile bench-compare check dist clean

# How the program is compiled. The tests have the same flags: what was compiled is not compiled again.
COMPILE := CGO_ENABLED=0 GOFLAGS="$$($(GO) env GOFLAGS) -trimpath '-pgo=$(CURDIR)/cmd/gateway/default.pgo'"

help: ## this list
	@sed -n 's/^\([a-z0-9-]*\):.*## /\1\t/p' Makefile | expand -t 16

build: ## build bin/gateway
	@[ -e $(BIN) ] || echo "The first build takes some minutes: it compiles all modules."
	$(COMPILE) $(GO) build -ldflags '-s -w -X fastdfs-gateway/internal/process/early.Version=$(VERSION)' -o $(BIN) ./cmd/gateway

# Serves a small store that the program makes itself, and prints URLs to try.
run: build ## make a demonstration store and serve it
	$(BIN) demo -dir demo-store

# A tracker, three storages in two groups and three gateways without a store that share a Redis, all
# on loopback.
run-cluster: build ## a tracker, three storages, three gateways and a Redis, on loopback
	$(GO) build -o bin/runcluster ./tests/runcluster
	bin/runcluster -gateway $(BIN)

# Many clients ask for one cold file at once: the load of the storage and the waits of the clients.
# STAMPEDE takes other sizes and numbers:
# make stampede STAMPEDE='-clients 2000 -size 4096 -scenario expired'
stampede: build ## many clients ask for one cold file at once: STAMPEDE="-clients 2000"
	$(GO) build -C $(ALL) -o $(CURDIR)/bin/stampede ./bench/stampede
	bin/stampede -gateway $(BIN) $(STAMPEDE)

outdated: ## list the modules of go.mod that are behind their latest version
	@for dir in . $(ALL); do \
		$(GO) list -C $$dir -m -e -u -f '{{if .Update}}{{.Path}} {{.Version}} -> {{.Update.Version}}{{end}}' \
			$$(sed -n 's/^\t\([^ ]*\) v[0-9].*/\1/p' $$dir/go.mod); \
	done | sort -u

# Packages with and without the race detector, and the built program end to end. Needs a C compiler
# and redis-server, and installs them.
test: need build ## the tests of all packages and of the built program: five minutes
	@$(COMPILE) $(GO) run ./tests/run

need:
	@tests/need

# Before the build, which takes minutes.
need-bench:
	@for program in wrk $(if $(findstring -against,$(BENCH)),,nginx); do \
		PATH="$$PATH:/usr/sbin:/sbin" command -v $$program >/dev/null || missing="$$missing $$program"; \
	done; test -z "$$missing" || { echo "make bench needs$$missing; on Debian: apt-get install wrk nginx-light" >&2; exit 1; }

# What needs other programs or more time: tests/all, and the race detector for the packages that make
# test runs without it.
test-all: build ## the other tests, beside nginx, a browser, Prometheus and others: after make test
	@tests/need all
	@$(COMPILE) $(GO) run ./tests/run -all

# Packages and image are made, installed on a Debian that boots in a container, upgraded and
# removed: two to four minutes, twice that at the first time. Needs Debian and root.
test-packages: ## tests of what make dist makes; Debian and root
	@tests/need packages
	$(GO) test -C $(ALL) -count=1 -timeout 20m ./packages -packages

lint: lint-text lint-dead ## golangci-lint, dead code, spelling and words
	@for module in . $(ALL); do \
		echo "lint $$module"; (cd $$module && $(GO) run $(GOLANGCI) run ./...) || exit 1; \
	done

# The same without golangci-lint, which takes minutes to build on a host that has not built it yet:
# CI runs this.
lint-quick: lint-text lint-dead ## gofmt, vet, staticcheck, dead code, spelling and words
	@test -z "$$(gofmt -l .)" || { gofmt -d .; exit 1; }
	@for module in . $(ALL); do \
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

# Every fuzz target for FUZZTIME. Without a limit, Go spends a minute to shorten each new input.
fuzz: ## every fuzz target for FUZZTIME=20s each
	@for module in . $(ALL); do for pkg in $$($(GO) list -C $$module ./...); do \
		for target in $$($(GO) test -C $$module -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
			echo "$$pkg $$target"; $(GO) test -C $$module -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) \
				-fuzzminimizetime 10x $$pkg || exit 1; \
		done; \
	done; done

# The built gateway under attack on raw sockets: make attack ATTACK=1h SEED=7. tests/all/attack says
# what is done to it.
ATTACK ?= 10m
SEED   ?= 1
attack: build ## mutated requests for ATTACK=10m with SEED=1
	$(GO) test -C $(ALL) -count=1 -timeout 0 -v ./attack -args -attack.for=$(ATTACK) -attack.seed=$(SEED)

# Gateways under mixed traffic for long, while storages and Redis go away: tests/all/soak. SOAKOUT takes
# soak.csv.
SOAK    ?= 1h
SOAKOUT ?= bin
soak: build ## mixed traffic and disturbances for SOAK=1h, with samples in bin/soak.csv
	$(GO) test -C $(ALL) -count=1 -timeout 0 -v ./soak -args -soak.for=$(SOAK) -soak.out=$(abspath $(SOAKOUT))

# The gateway beside nginx on the same files, with wrk: writes docs/benchmarks.md. BENCH takes other
# rounds, and cases, which are only printed:
# make bench BENCH="-rounds 3 -time 2s -cases '^4 KiB|304'".
bench: need-bench build ## compare with nginx and write docs/benchmarks.md
	$(GO) build -C $(ALL) -o $(CURDIR)/bin/bench ./bench
	bin/bench -gateway $(BIN) -out docs/benchmarks.md $(BENCH)

# The profile that go build reads (https://go.dev/doc/pgo): small responses, which cost mostly time of
# the program. A profile of all cases is mostly of sendfile, and gains less.
PROFILE ?= ^4 KiB file$$|^4 KiB trunk|^64 KiB file$$|range|^304|^404|token|, a connection each$$|^4 KiB file by|mix
profile: build ## write cmd/gateway/default.pgo, the profile that go build reads
	$(GO) build -C $(ALL) -o $(CURDIR)/bin/bench ./bench
	bin/bench -gateway $(BIN) -time 8s -cases '$(PROFILE)' -profile cmd/gateway/default.pgo

# The working tree beside another revision, judged by benchstat:
# make bench-compare REF=v1.0.0 COMPARE='-packages ./storage/local -cases mix'
REF ?= HEAD
bench-compare: ## compare with revision REF=HEAD: COMPARE="-packages ./storage/local"
	GO='$(GO)' tests/all/bench/compare -ref $(REF) $(COMPARE)

check: lint test test-all ## lint and all tests

# Tarballs, packages, SBOM and checksums in dist/: the same commit makes the same bytes. VERSION=v1.2.3
# sets the version, SOURCE_DATE_EPOCH the time of all files.
dist: ## release in dist/: tarballs, Debian and RPM packages, SBOM, checksums
	$(GO) run ./packaging/mkdist -version '$(VERSION)' -out dist

clean: ## remove what make has built
	rm -rf bin demo-store dist
