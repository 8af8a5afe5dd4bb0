// Command stampede sends requests of many clients for one file to gateways at once, where the
// storage of the file is slow, and prints the cost for the storage and the clients.
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
}

// The scenarios.
const (
	cold    = "cold"    // no gateway has the file
	expired = "expired" // all gateways have the file, and the entry has just expired
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

const tableHead = "| gateways | downloads | metadata requests | storage bytes / size | first byte p50 / p99 | " +
	"whole body p50 / p99 | outcome |\n| --- | --- | --- | --- | --- | --- | --- |"

// run measures all rows and prints each when it is complete.
func run(s *settings) error {
	dir, err := os.MkdirTemp("", "stampede-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	fmt.Printf("%d clients at once, file of %d bytes, storage replies after %v and takes %v, %s; %d CPUs, %s, %s\n\n",
		s.clients, s.size, s.delay, s.spread, s.scenario, runtime.NumCPU(), runtime.GOARCH,
		time.Now().Format(time.DateOnly))
	fmt.Println(tableHead)
	var errs []error
	for _, n := range s.nodes {
		r, err := measure(s, n, dir)
		if err != nil {
			return fmt.Errorf("%d gateways: %w", n, err)
		}
		fmt.Println(r)
		errs = append(errs, r.judge(s))
	}
	return errors.Join(errs...)
}
