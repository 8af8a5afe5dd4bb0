// Command stampede sends requests of many clients for one file to gateways at once, where the
// storage of the file is slow, and prints the cost for the storage and the clients. Then it does
// the same with nginx and Varnish, if installed, in front of a web server that is equally slow.
//
//	stampede -gateway bin/gateway -clients 500 -size 1048576 -delay 500ms -spread 1s -scenario cold
//
// Everything runs on loopback of this machine, the clients too, so figures compare the rows of one
// table and nothing else.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/tests/lab"
)

// settings are the flags.
type settings struct {
	gateway  string
	clients  int
	size     int
	delay    time.Duration
	spread   time.Duration
	scenario string
	nodes    []int
	proxies  bool
	rounds   int
}

// The scenarios.
const (
	cold    = "cold"    // no front has the file
	expired = "expired" // all fronts have the file, and the entry has just expired
	dead    = "dead"    // as expired, and the storage is killed
)

func main() {
	s, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "stampede:", err)
		os.Exit(2)
	}
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "stampede:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("stampede", flag.ContinueOnError)
	f.StringVar(&s.gateway, "gateway", "bin/gateway", "the built gateway")
	f.IntVar(&s.clients, "clients", 500, "how many ask at once")
	f.IntVar(&s.size, "size", 1<<20, "of the file, in bytes")
	f.DurationVar(&s.delay, "delay", 500*time.Millisecond, "before the storage's first byte")
	f.DurationVar(&s.spread, "spread", time.Second, "over which the storage sends the file")
	f.StringVar(&s.scenario, "scenario", cold, "cold, expired or dead (expired, and the storage is gone)")
	nodes := f.String("nodes", "1,2,3", "numbers of gateways to try")
	f.BoolVar(&s.proxies, "proxies", true, "compare with nginx and Varnish")
	f.IntVar(&s.rounds, "rounds", 1, "how often all is measured in turn; a row shows the median")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	for _, text := range strings.Split(*nodes, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("-nodes: %q is no number of gateways", text)
		}
		s.nodes = append(s.nodes, n)
	}
	if s.clients < 1 || s.size < 1 || s.rounds < 1 || !slices.Contains([]string{cold, expired, dead}, s.scenario) {
		return nil, errors.New("-clients, -size and -rounds are at least 1, and -scenario is cold, expired or dead")
	}
	return s, nil
}

// run measures all rows and prints each when it is complete.
func run(s *settings) error {
	dir, err := os.MkdirTemp("", "stampede-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf(
		"%d clients at once, file of %s, storage replies after %v and takes %v, %s; median of %d; %d CPUs, %s, %s\n\n",
		s.clients, bytesText(s.size), s.delay, s.spread, s.scenario, s.rounds, runtime.NumCPU(), runtime.GOARCH,
		time.Now().Format(time.DateOnly))
	fmt.Println(tableHead)
	storages, err := newStorages(s)
	if err != nil {
		return err
	}
	defer storages.close()
	rows, err := measure(s, fronts(s, storages, dir))
	if err != nil {
		return err
	}
	return judge(s, rows)
}

// measure returns the rows. Rounds go over all fronts in turn, so that other load of the machine
// affects all of them.
func measure(s *settings, list []front) ([]row, error) {
	var rows []row
	found := make([][]row, len(list))
	for round := range s.rounds {
		for i := range list {
			r, err := list[i].measure(s)
			last := round == s.rounds-1
			switch {
			case errors.Is(err, lab.ErrMissing) && !last:
				continue
			case errors.Is(err, lab.ErrMissing):
				fmt.Printf("| %s | %v: %s |\n", list[i].name, err, list[i].install)
				continue
			case err != nil:
				return nil, fmt.Errorf("%s: %w", list[i].name, err)
			}
			if found[i] = append(found[i], r); last {
				rows = append(rows, median(found[i]))
				fmt.Println(rows[len(rows)-1])
			}
		}
	}
	return rows, nil
}

func bytesText(n int) string {
	switch {
	case n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + " MiB"
	case n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return strconv.Itoa(n) + " bytes"
}
