// Command real runs the built gateway with a real FastDFS: trackers and storages in network
// namespaces, files of all kinds, and checks of every promise about them that depends on FastDFS.
// README.md has the usage; the command needs root and ip(8).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// settings are the flags.
type settings struct {
	bin, gateway     string
	trunk, ids, ipv6 bool
	trackers         int
	largeMB          int
	only             *regexp.Regexp
	keep             bool
	set              []string
}

func main() {
	s, err := parseFlags(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "real:", err)
		os.Exit(2)
	}
	if reason := s.missing(); reason != "" {
		fmt.Println("SKIPPED: nothing was run beside a real FastDFS:", reason)
		return
	}
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "real:", err)
		os.Exit(1)
	}
}

func parseFlags(args []string) (*settings, error) {
	s := &settings{}
	f := flag.NewFlagSet("real", flag.ExitOnError)
	f.StringVar(&s.bin, "bin", os.Getenv("FASTDFS_BIN"),
		"folder with fdfs_trackerd and fdfs_storaged")
	f.StringVar(&s.gateway, "gateway", "../../bin/gateway", "the built gateway")
	f.BoolVar(&s.trunk, "trunk", false, "pack small files into trunk files")
	f.BoolVar(&s.ids, "ids", false, "storage ids in place of addresses in file ids")
	f.BoolVar(&s.ipv6, "ipv6", false, "IPv6 addresses only (FastDFS since 6.11); includes -ids")
	f.IntVar(&s.trackers, "trackers", 1, "number of trackers, 1 or 2")
	f.IntVar(&s.largeMB, "large", 50, "size of large files, MB")
	only := f.String("only", ".*", "only the parts whose whole names match this regular expression, as table|delete")
	f.BoolVar(&s.keep, "keep", false, "leave the folder with configurations, stores and logs behind")
	f.Func("set", "tracker.KEY=VALUE, storage.KEY=VALUE or gateway.KEY=VALUE: "+
		"a further line of these configurations, in place of the harness's own (may be repeated)",
		func(line string) error { s.set = append(s.set, line); return nil })
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	s.ids = s.ids || s.ipv6
	var err error
	if s.only, err = regexp.Compile("^(?:" + *only + ")$"); err != nil {
		return nil, err
	}
	if s.trackers < 1 || s.trackers > 2 || s.largeMB < 1 {
		return nil, errors.New("want 1 or 2 trackers, and a size of at least 1")
	}
	for _, path := range []*string{&s.bin, &s.gateway} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// missing returns the first missing requirement, or "".
func (s *settings) missing() string {
	if s.bin == "" {
		return "FASTDFS_BIN names no folder with fdfs_trackerd and fdfs_storaged"
	}
	for _, program := range []string{"fdfs_trackerd", "fdfs_storaged"} {
		if _, err := exec.LookPath(filepath.Join(s.bin, program)); err != nil {
			return fmt.Sprintf("%s is not in FASTDFS_BIN (%s)", program, s.bin)
		}
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return "ip(8) is missing (apt-get install iproute2)"
	}
	if os.Getuid() != 0 {
		return "network namespaces need root"
	}
	return ""
}

// The environment of the process that runs inside the network.
const (
	insideNetwork = "REAL_NETWORK" // name of the network
	insideFolder  = "REAL_FOLDER"  // folder with configurations, stores and logs
)

// run makes the network and a folder, and runs this program again inside the network, since a
// network namespace belongs to a thread and Go programs have many. After the end of that process,
// or SIGINT or SIGTERM, run ends all processes in the network and removes network and folder.
func run(s *settings) (err error) {
	if _, err := exec.LookPath(s.gateway); err != nil {
		return fmt.Errorf("the gateway is not built: %w", err)
	}
	if name := os.Getenv(insideNetwork); name != "" {
		return runInside(s, newNetwork(name, s), os.Getenv(insideFolder))
	}
	dir, err := os.MkdirTemp("", "real-")
	if err != nil {
		return err
	}
	if s.keep {
		fmt.Println("everything is in", dir)
	} else {
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	}
	n := newNetwork(fmt.Sprintf("real%d", os.Getpid()), s)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	defer func() { err = errors.Join(err, n.close()) }()
	if err := n.open(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", n.name, self}, os.Args[1:]...)...)
	cmd.Env = append(os.Environ(), insideNetwork+"="+n.name, insideFolder+"="+dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case err != nil:
		return fmt.Errorf("the run has failed: %w", err)
	}
	return nil
}

// part is one section of the checks.
type part struct {
	name string
	run  func(*world)
}

var parts = []part{
	{"table", (*world).tablePart},
	{"delete", (*world).deletePart},
	{"mutable", (*world).mutablePart},
}

func runInside(s *settings, n *network, dir string) error {
	w, err := newWorld(s, n, dir)
	if err != nil {
		return fmt.Errorf("cannot start the cluster: %w", err)
	}
	defer w.close()
	fmt.Printf("FastDFS of %s: trunk %v, storage ids %v, IPv6 %v, trackers %d\n", s.bin, s.trunk, s.ids, s.ipv6,
		s.trackers)
	for _, p := range parts {
		if s.only.MatchString(p.name) {
			start := time.Now()
			p.run(w)
			fmt.Printf("%s took %v\n", p.name, time.Since(start).Round(time.Millisecond))
		}
	}
	w.checkLogs()
	fmt.Println(w.report.closing())
	if failures := w.report.failures; len(failures) > 0 {
		return fmt.Errorf("%d failed:\n  %s", len(failures), strings.Join(failures, "\n  "))
	}
	return nil
}
