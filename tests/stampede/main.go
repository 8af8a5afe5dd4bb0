// Command stampede lets a crowd ask gateways for one file at once, whose storage is slow, and prints what that costs the storage and
// the crowd; then the same for nginx and Varnish in front of a web server that is just as slow, where these are installed.
//
//	stampede -gateway bin/gateway -clients 500 -size 1048576 -delay 500ms -spread 1s -scenario cold
//
// Everything runs on loopback of this machine, the crowd too, so figures compare the rows of one table and nothing else.
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

	"fastdfs-gateway/tests/stampede/lab"
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
}

// The scenarios.
const (
	cold    = "cold"    // nobody has the file
	expired = "expired" // all have it, and it has just expired
	dead    = "dead"    // the same, and the storage is gone
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
	if s.clients < 1 || s.size < 1 || !slices.Contains([]string{cold, expired, dead}, s.scenario) {
		return nil, errors.New("-clients and -size are at least 1, and -scenario is cold, expired or dead")
	}
	return s, nil
}

// run makes all rows and prints each as it is done.
func run(s *settings) error {
	dir, err := os.MkdirTemp("", "stampede-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%d clients at once, file of %s, storage answers after %v and takes %v, %s; %d CPUs, %s, %s\n\n",
		s.clients, bytesText(s.size), s.delay, s.spread, s.scenario, runtime.NumCPU(), runtime.GOARCH, time.Now().Format(time.DateOnly))
	fmt.Println(tableHead)
	storages, err := newStorages(s)
	if err != nil {
		return err
	}
	defer storages.close()
	var rows []row
	for _, front := range fronts(s, storages, dir) {
		r, err := front.measure(s)
		switch {
		case errors.Is(err, lab.ErrMissing):
			fmt.Printf("| %s | %v: %s |\n", front.name, err, front.install)
			continue
		case err != nil:
			return fmt.Errorf("%s: %w", front.name, err)
		}
		fmt.Println(r)
		rows = append(rows, r)
	}
	return judge(s, rows)
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
