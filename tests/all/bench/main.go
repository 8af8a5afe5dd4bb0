// Command bench measures the gateway beside nginx on the same files: processor time for a request,
// requests per second, latency and memory, in runs that take turns (A B A B), so that other load of
// the machine affects both.
//
//	bench -gateway bin/gateway -rounds 5 -time 3s -cases 'KiB|304' -out docs/benchmarks.md
//	bench -gateway bin/gateway -against /tmp/older/gateway -format /tmp/figures
//	bench -profile cmd/gateway/default.pgo
//
// Everything runs on one machine, wrk and the storages of other hosts too. So the server and wrk
// share the processors that bound the requests per second, and processor time is the steadier
// figure. Processor time is the sum over all processes and threads of the server, in user and
// kernel mode, divided by the number of requests.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"fastdfs-gateway/tests/docs"
	"fastdfs-gateway/tests/lab"
)

// settings are the flags.
type settings struct {
	gateway     string
	against     string
	rounds      int
	time        time.Duration
	connections int
	pattern     *regexp.Regexp
	all         bool // no case is left out
	out         string
	format      string
	dir         string
	profile     string
}

func main() {
	s, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&s.gateway, "gateway", "bin/gateway", "the built gateway")
	f.StringVar(&s.against, "against", "", "another built gateway to measure it against; default: nginx")
	f.IntVar(&s.rounds, "rounds", 5, "runs of each side")
	f.DurationVar(&s.time, "time", 3*time.Second, "of a run, in whole seconds")
	f.IntVar(&s.connections, "connections", 64, "of wrk; 4 for 100 MiB")
	f.StringVar(&s.out, "out", "", "document whose figures are written; only when no case is left out")
	f.StringVar(&s.format, "format", "",
		"write the figures of the sides for benchstat, to this name with .new and .old behind it")
	f.StringVar(&s.dir, "dir", "", "folder for the files, which take 2 GB; default: a temporary one")
	f.StringVar(&s.profile, "profile", "",
		"write a profile of the gateway for the compiler to this file, in place of everything else")
	cases := f.String("cases", "", "regular expression: only cases whose name matches")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if s.pattern, err = regexp.Compile(*cases); err != nil {
		return nil, fmt.Errorf("-cases: %w", err)
	}
	s.all = *cases == ""
	if s.rounds < 1 || s.time < time.Second || s.connections < 1 {
		return nil, errors.New("-rounds and -connections are at least 1, and -time is 1s")
	}
	return s, nil
}

// run measures and prints.
func run(s *settings) (err error) {
	for _, name := range []string{"wrk", "nginx"} {
		if _, err := lab.LookUp(name); err != nil && (name == "wrk" || s.against == "" && s.profile == "") {
			return fmt.Errorf("%w; on Debian: apt-get install wrk nginx-light", err)
		}
	}
	if s.gateway, err = filepath.Abs(s.gateway); err != nil {
		return err
	}
	dir, err := os.MkdirTemp(s.dir, "bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	w, err := newWorld(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	sides, err := w.sides(s)
	if err != nil {
		return err
	}
	if s.profile != "" {
		return w.writeProfile(sides[0], s)
	}
	return w.measureAll(sides, s)
}

// sides returns the two servers to compare.
func (w *world) sides(s *settings) ([2]side, error) {
	ours := func(c *testCase) ask { return c.gateway }
	gateway := side{name: "gateway", ask: ours, start: func(f flavour) (*process, error) {
		return w.startGateway(s.gateway, f)
	}}
	if s.against == "" {
		return [2]side{gateway, {name: "nginx", ask: func(c *testCase) ask { return c.nginx }, start: w.startNginx}},
			nil
	}
	path, err := filepath.Abs(s.against)
	return [2]side{gateway, {name: "other", ask: ours, start: func(f flavour) (*process, error) {
		return w.startGateway(path, f)
	}}}, err
}

// coldRate is the highest number of files of other hosts that are fetched in a second.
const coldRate = 6000

// measureAll runs the cases, and prints and writes the results.
func (w *world) measureAll(sides [2]side, s *settings) error {
	cases, err := w.cases(s.pattern.MatchString, min(int(s.time.Seconds())*s.rounds*coldRate, 120_000))
	if err != nil {
		return err
	}
	fmt.Print(machine(s), "\n")
	var results []*result
	if len(cases) > 0 {
		fmt.Println(tableHead(sides))
	}
	for i := range cases {
		r, err := w.measure(&cases[i], sides, s)
		if err != nil {
			return fmt.Errorf("%s: %w", cases[i].name, err)
		}
		fmt.Println(r.row())
		results = append(results, r)
	}
	return s.write(sides, results)
}

// write writes the results to the files of the flags -format and -out.
func (s *settings) write(sides [2]side, results []*result) error {
	if s.format != "" {
		for suffix, text := range map[string]string{
			".new": lines(results, func(r *result) samples { return r.a }),
			".old": lines(results, func(r *result) samples { return r.b }),
		} {
			if err := os.WriteFile(s.format+suffix, []byte(text), 0o644); err != nil {
				return err
			}
		}
	}
	if s.out == "" || !s.all {
		return nil
	}
	return docs.WriteSection(s.out, "make bench", "figures", machine(s)+"\n"+table(sides, results))
}
