// Run runs the tests of the project. It prints a line for each package as it ends, then what failed
// with the commands that repeat it, what was skipped, and one line of numbers:
//
//	go run ./tests/run        what make test runs
//	go run ./tests/run -all   what make test-all runs: the rest
//
// The exit code is 1 if a test failed.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/tests/lab"
)

// module is the path of the module of the program, and all of the module of the tests that
// need other programs or more time.
const (
	module = "fastdfs-gateway"
	all    = "tests/all"
)

// raced are the packages in which goroutines share state. make test runs them with the race
// detector, and all others without. Those that take longest are first.
var raced = []string{"./internal/fleet", "./cachelock/...", "./internal/gateway", "./internal/app",
	"./internal/cache/...", "./internal/httpserver", "./internal/httpserver/eventloop",
	"./internal/httpserver/http2server", "./internal/origin", "./storage/client/..."}

// first are the packages that take longest: the other processors have work until they end.
var first = []string{module + "/tests/e2e/ops", module + "/tests/e2e/http", module + "/tests/e2e/fleet",
	module + "/tests/e2e/cache", module + "/tests/e2e/origin"}

// long makes the random histories of locks as long as make test-all has time for.
var long = []string{"LOCK_SEEDS=40", "FOLDER_CHECKS=3000"}

// step is one call of go test.
type step struct {
	module   string // folder of the module, relative to the root
	race     bool
	run      string   // tests by name; empty = all
	env      []string // NAME=VALUE
	packages []string
}

func main() {
	rest := flag.Bool("all", false, "the tests of make test-all")
	flag.Parse()
	err := lab.Built()
	var steps []step
	if err == nil {
		steps, err = plan(*rest)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	start := time.Now()
	r := newReport(os.Stdout)
	for _, s := range steps {
		r.runStep(s)
	}
	r.summarize(time.Since(start))
	if r.broken > 0 {
		os.Exit(1)
	}
}

// plan returns the steps of make test, or of make test-all.
func plan(rest bool) ([]step, error) {
	withRace, err := list(raced...)
	if err != nil {
		return nil, err
	}
	packages, err := list("./...")
	if err != nil {
		return nil, err
	}
	plain := slices.DeleteFunc(packages, func(p string) bool { return slices.Contains(withRace, p) })
	if rest {
		// The tests of the built program would check their clients and stand-ins only.
		units := slices.DeleteFunc(plain, func(p string) bool { return strings.HasPrefix(p, module+"/tests/") })
		return []step{
			{module: all, packages: []string{"./..."}},
			{module: ".", race: true, packages: units},
			{module: ".", env: long, packages: []string{"./cachelock"}},
		}, nil
	}
	plain = append(slices.Clone(first), slices.DeleteFunc(plain, func(p string) bool {
		return slices.Contains(first, p)
	})...)
	return []step{
		{module: ".", packages: plain},
		{module: ".", race: true, packages: withRace},
		// The race detector allocates: tests that allow no allocation skip with it.
		{module: ".", run: "Allocat", packages: []string{"./internal/gateway"}},
	}, nil
}

// list returns the import paths of packages that have tests.
func list(patterns ...string) ([]string, error) {
	const withTests = `{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}`
	out, err := exec.Command("go", append([]string{"list", "-f", withTests}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list %v: %w", patterns, err)
	}
	return strings.Fields(string(out)), nil
}

// command returns the command that runs packages of a step alone; tests is a pattern of -run, empty
// for all tests.
func (s step) command(tests string, packages ...string) string {
	args := append(slices.Clone(s.env), "go test")
	if s.module != "." || strings.Contains(strings.Join(packages, " "), "/tests/e2e/") {
		args = append([]string{"make build &&"}, args...) // else skipped after a change of the program
	}
	if s.module != "." {
		args = append(args, "-C", s.module)
	}
	args = append(args, "-vet=off", "-count=1")
	if s.race {
		args = append(args, "-race")
	}
	if tests == "" {
		tests = s.run
	}
	if tests != "" {
		args = append(args, "-run", "'"+tests+"'")
	}
	for _, p := range packages {
		args = append(args, s.relative(p))
	}
	return strings.Join(args, " ")
}

// relative returns an import path as a path below the module of the step.
func (s step) relative(path string) string {
	path = strings.TrimPrefix(path, module)
	if s.module != "." {
		path = strings.TrimPrefix(path, "/"+s.module)
	}
	if strings.HasPrefix(path, "/") {
		path = "." + path
	}
	return path
}

// runStep runs a step and reads its events.
func (r *report) runStep(s step) {
	args := []string{"test"}
	if s.module != "." {
		args = append(args, "-C", s.module) // the first flag
	}
	// go vet is left to make lint. -ldflags=-s saves a third of the time to link.
	args = append(args, "-vet=off", "-json", "-count=1", "-ldflags=-s", "-timeout=30m")
	env := s.env
	if s.race { // cgo as well, which make switches off
		args, env = append(args, "-race", "-pgo=off"), append(env, "CGO_ENABLED=1")
	}
	if s.run != "" {
		args = append(args, "-run", s.run)
	}
	cmd := exec.Command("go", append(args, s.packages...)...)
	// A program with the race detector sleeps for a second before it ends, unless told otherwise.
	// Huge pages for the detector's shadow memory save page faults, and so does the threshold in
	// bytes above which it maps the shadow of a new buffer anew in place of clearing it.
	cmd.Env = append(slices.Concat(os.Environ(), env),
		"GORACE=atexit_sleep_ms=20 no_huge_pages_for_shadow=0 clear_shadow_mmap_threshold=1048576 "+os.Getenv("GORACE"))
	var rest strings.Builder
	cmd.Stderr = &rest
	broken := r.broken
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err == nil {
		lines := bufio.NewReader(out)
		for {
			line, readErr := lines.ReadBytes('\n') // the error is the end of the output
			r.add(s, line)
			if readErr != nil {
				break
			}
		}
		err = cmd.Wait()
	}
	if err != nil && r.broken == broken { // no event tells of it
		r.broken++
		fmt.Fprintf(r.out, "%sgo test: %v\n", rest.String(), err)
		r.repeat = append(r.repeat, s.command("", s.packages...))
	}
}
