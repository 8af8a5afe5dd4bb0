// Command compare measures the working tree against another revision of this repository, in runs
// that take turns, and lets benchstat judge: Go benchmarks first, then cases of tests/bench with
// wrk.
//
//	compare -ref v1.0.0 -count 8 -packages ./storage/local,./internal/httpserver/guard -cases '^4 KiB'
//
// The other revision is unpacked into a temporary folder; the repository is not touched.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// benchstat is fetched as a Go module when it is used.
const benchstat = "golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da"

// settings are the flags.
type settings struct {
	ref      string
	packages []string
	bench    string
	count    int
	cases    string
	rounds   int
}

func main() {
	s := &settings{}
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	f.StringVar(&s.ref, "ref", "HEAD", "the revision to compare with")
	packages := f.String("packages", "./storage/local,./internal/httpserver/guard,./internal/fdfs,./antisteal",
		"packages whose benchmarks run; empty = none")
	f.StringVar(&s.bench, "bench", ".", "which benchmarks, as for go test")
	f.IntVar(&s.count, "count", 6, "how often each benchmark runs in each revision")
	f.StringVar(&s.cases, "cases", "^(4 KiB|64 KiB) file$|404", "which cases of tests/bench; empty = none")
	f.IntVar(&s.rounds, "rounds", 6, "runs of each case in each revision")
	if err := f.Parse(os.Args[1:]); err != nil {
		os.Exit(2)
	}
	if *packages != "" {
		s.packages = strings.Split(*packages, ",")
	}
	if err := s.run(); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// run does everything in a folder of its own.
func (s *settings) run() error {
	dir, err := os.MkdirTemp("", "bench-compare-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	here, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	before, now := &revision{name: "old", dir: filepath.Join(dir, "tree")}, &revision{name: "new", dir: here}
	if err := before.unpack(s.ref, dir); err != nil {
		return err
	}
	for _, r := range []*revision{before, now} {
		r.out = filepath.Join(dir, r.name)
		if err := os.Mkdir(r.out, 0o700); err != nil {
			return err
		}
	}
	for _, steps := range []func(before, now *revision) error{s.benchmarks, s.served} {
		if err := steps(before, now); err != nil {
			return err
		}
	}
	return command(here, os.Stdout, "go", "run", benchstat, "old="+before.figures(), "new="+now.figures())
}

// revision is a source tree and what was measured with it.
type revision struct {
	name string
	dir  string // of the tree
	out  string // for programs and figures
}

func (r *revision) figures() string { return filepath.Join(r.out, "figures") }

// unpack makes the tree of a revision.
func (r *revision) unpack(ref, dir string) error {
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return err
	}
	archive := filepath.Join(dir, "tree.tar")
	if err := command(".", os.Stderr, "git", "archive", "--format=tar", "-o", archive, ref); err != nil {
		return err
	}
	return command(r.dir, os.Stderr, "tar", "-xf", archive)
}

// benchmarks runs the Go benchmarks of each package that both revisions have, in turn.
func (s *settings) benchmarks(before, now *revision) error {
	for i, pkg := range s.packages {
		if _, err := os.Stat(filepath.Join(before.dir, pkg)); errors.Is(err, os.ErrNotExist) {
			fmt.Fprintf(os.Stderr, "compare: %s has no %s\n", s.ref, pkg)
			continue
		}
		program := "test" + strconv.Itoa(i)
		for _, r := range []*revision{before, now} {
			// Built in its own folder, since it may belong to another module.
			if err := command(filepath.Join(r.dir, pkg), os.Stderr, "go", "test", "-c", "-o",
				filepath.Join(r.out, program), "."); err != nil {
				return err
			}
		}
		for range s.count {
			for _, r := range []*revision{before, now} {
				if err := r.measure(pkg, program, s.bench); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measure runs the benchmarks of one package once.
func (r *revision) measure(pkg, program, bench string) error {
	out, err := os.OpenFile(r.figures(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	return command(filepath.Join(r.dir, pkg), out, filepath.Join(r.out, program), "-test.run", "^$", "-test.bench",
		bench, "-test.benchmem")
}

// served runs cases of tests/bench with the gateways of both revisions.
func (s *settings) served(before, now *revision) error {
	if s.cases == "" {
		return nil
	}
	for _, r := range []*revision{before, now} {
		cmd := exec.Command("go", "build", "-trimpath", "-o", filepath.Join(r.out, "gateway"), "./cmd/gateway")
		cmd.Dir, cmd.Env, cmd.Stderr = r.dir, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("cannot build the gateway of the %s revision: %w", r.name, err)
		}
	}
	bench, format := filepath.Join(now.out, "bench"), filepath.Join(now.out, "served")
	if err := command(filepath.Join(now.dir, "tests/bench"), os.Stderr, "go", "build", "-o", bench, "."); err != nil {
		return err
	}
	err := command(now.dir, os.Stderr, bench, "-gateway", filepath.Join(now.out, "gateway"),
		"-against", filepath.Join(before.out, "gateway"), "-cases", s.cases, "-rounds", strconv.Itoa(s.rounds),
		"-format", format)
	for _, r := range []*revision{before, now} {
		if err == nil {
			err = appendFile(r.figures(), format+"."+r.name)
		}
	}
	return err
}

// appendFile puts the content of a file behind another's.
func appendFile(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = out.WriteString("\npkg: fastdfs-gateway/tests/bench\n" + string(text))
	return errors.Join(err, out.Close())
}

// command runs a program in a folder.
func command(dir string, out io.Writer, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return nil
}
