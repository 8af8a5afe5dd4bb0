package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/all/real/client"
)

// world is the running programs: the cluster and the gateways.
type world struct {
	s        *settings
	network  *network
	dir      string
	report   *report
	trackers []*host
	storages []*node // s1 and s2 are group1, s3 is group2
	gateways []*server

	edge, byHTTP, redirecting, uncached *server
	seed                                int // number of contents so far
}

// node is a storage.
type node struct {
	host  *host
	group string
	paths []string
	conf  string // its storage.conf
}

func (n *node) addr() string { return join(n.host.addr, storagePort) }

// server is a gateway.
type server struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	url  string // http://host:port
	log  string
}

const (
	startLimit = 3 * time.Minute // for a cluster to take files, and for the storages of a group to replicate
	poll       = 20 * time.Millisecond
)

// newWorld starts all programs, and waits until storages accept and replicate files.
func newWorld(s *settings, n *network, dir string) (*world, error) {
	w := &world{s: s, network: n, dir: dir, report: &report{}}
	for _, name := range []string{"t1", "t2"}[:s.trackers] {
		w.trackers = append(w.trackers, n.hosts[name])
	}
	for _, spec := range []struct {
		name, group string
		paths       int
	}{{"s1", "group1", 2}, {"s2", "group1", 2}, {"s3", "group2", 1}} {
		node := &node{host: n.hosts[spec.name], group: spec.group, conf: filepath.Join(dir, spec.name, "storage.conf")}
		for i := range spec.paths {
			node.paths = append(node.paths, filepath.Join(dir, spec.name, fmt.Sprintf("store%d", i)))
		}
		w.storages = append(w.storages, node)
	}
	if err := w.startCluster(); err != nil {
		return nil, err
	}
	if err := w.startServers(); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

// startCluster starts trackers, then storages.
func (w *world) startCluster() error {
	if err := errors.Join(w.writeIDs(), mimeTypes.write(filepath.Join(w.dir, "mime.types"))); err != nil {
		return err
	}
	for _, t := range w.trackers {
		if err := w.startTracker(t); err != nil {
			return err
		}
	}
	for _, n := range w.storages {
		base := filepath.Dir(n.conf)
		if err := w.storageConf(n, base).with("storage", w.s.set).write(n.conf); err != nil {
			return err
		}
		for _, path := range n.paths {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
		}
		if err := w.startStorage(n); err != nil {
			return err
		}
	}
	return w.waitReady()
}

func (w *world) startTracker(t *host) error {
	dir := filepath.Join(w.dir, t.name)
	conf := filepath.Join(dir, "tracker.conf")
	if err := w.trackerConf(dir).with("tracker", w.s.set).write(conf); err != nil {
		return err
	}
	return w.daemon(t, "fdfs_trackerd", conf)
}

func (w *world) startStorage(n *node) error { return w.daemon(n.host, "fdfs_storaged", n.conf) }

// daemon starts a program that goes into the background by itself. The output of the program goes
// to a file, which the program may keep open.
func (w *world) daemon(h *host, program, conf string) error {
	out, err := os.OpenFile(filepath.Join(w.dir, h.name+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := h.command(filepath.Join(w.s.bin, program), conf, "start")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("cannot start %s on %s (see %s): %w", program, h.name, out.Name(), err)
	}
	return nil
}

// kill kills a storage, whose process has its configuration among its arguments, and waits for its
// end.
func (w *world) kill(n *node) error {
	list := n.host.pids(n.conf)
	if len(list) == 0 {
		return fmt.Errorf("%s: no process of fdfs_storaged", n.host.name)
	}
	for _, pid := range list {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return awaitEnd(list)
}

// awaitEnd waits until processes have ended, and their sockets with them: a process that is about
// to end has no arguments any more, but still holds its port.
func awaitEnd(list []int) error {
	return await(startLimit, "a process does not end", func() error {
		for _, pid := range list {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			if _, rest, _ := strings.Cut(string(text), ") "); err == nil && !strings.HasPrefix(rest, "Z") {
				return fmt.Errorf("process %d lives", pid)
			}
		}
		return nil
	})
}

// waitReady waits until each storage accepts a file and the storages of group1 have replicated each
// other's: at the start, and after a disturbance.
func (w *world) waitReady() error {
	content := w.content(1000)
	for _, n := range w.storages {
		var id string
		err := await(startLimit, n.host.name+" takes no file", func() (err error) {
			id, err = client.Upload(n.addr(), 0, "txt", content)
			return err
		})
		if err != nil {
			return err
		}
		if err := w.waitReplicated(id); err != nil {
			return err
		}
	}
	return nil
}

// waitReplicated waits until all storages of a file's group have the file.
func (w *world) waitReplicated(id string) error {
	return w.awaitAt(id, "does not get", func(n *node) error {
		_, err := client.Size(n.addr(), id)
		return err
	})
}

// waitSame waits until all storages of a file's group have the file, and for a file that can
// change, until they have the version of the source.
func (w *world) waitSame(f *file) error {
	if id, err := fdfs.Parse(f.id); err != nil || id.Immutable() {
		return errors.Join(err, w.waitReplicated(f.id))
	}
	return w.awaitAt(f.id, "has another version of", func(n *node) error {
		want, err := client.Download(f.from.addr(), f.id)
		if err != nil {
			return err
		}
		content, err := client.Download(n.addr(), f.id)
		if err == nil && !bytes.Equal(content, want) {
			return fmt.Errorf("%d bytes, the source has %d", len(content), len(want))
		}
		return err
	})
}

// waitGone waits until no storage of a file's group has the file.
func (w *world) waitGone(id string) error {
	return w.awaitAt(id, "keeps", func(n *node) error {
		_, err := client.Size(n.addr(), id)
		switch {
		case errors.Is(err, fdfs.ErrNotFound):
			return nil
		case err == nil:
			return errors.New("it is there")
		}
		return err
	})
}

// awaitAt calls try for each storage of a file's group until it succeeds.
func (w *world) awaitAt(id, what string, try func(*node) error) error {
	for _, n := range w.group(id) {
		err := await(startLimit, fmt.Sprintf("%s %s %s", n.host.name, what, id), func() error { return try(n) })
		if err != nil {
			return err
		}
	}
	return nil
}

// group returns the storages of a file's group.
func (w *world) group(id string) []*node {
	return slices.DeleteFunc(slices.Clone(w.storages), func(n *node) bool {
		return len(id) < 7 || id[:7] != n.group+"/"
	})
}

// await calls try until it succeeds.
func await(limit time.Duration, what string, try func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(poll) {
		err := try()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s, for %v: %w", what, limit, err)
		}
	}
}

// startServers starts the gateways.
func (w *world) startServers() error {
	var err error
	for _, n := range w.storages {
		if _, err = w.startGateway(n.host, n, "proxy", gatewayPort); err != nil {
			return err
		}
	}
	edge, s3 := w.network.hosts["edge"], w.storages[2]
	if w.uncached, err = w.startGateway(edge, nil, "proxy", uncachedPort); err != nil {
		return err
	}
	if w.edge, err = w.startGateway(edge, nil, "proxy", gatewayPort); err != nil {
		return err
	}
	w.byHTTP, err = w.startGateway(edge, nil, "proxy", httpPort, "upstream=http",
		fmt.Sprintf("upstream_http_port=%d", gatewayPort))
	if err != nil {
		return err
	}
	w.redirecting, err = w.startGateway(s3.host, s3, "redirect", redirectPort,
		fmt.Sprintf("redirect_port=%d", gatewayPort))
	return err
}

func (w *world) startGateway(h *host, n *node, mode string, port int, own ...string) (*server, error) {
	dir := filepath.Join(w.dir, fmt.Sprintf("gateway-%s-%d", h.name, port))
	conf := filepath.Join(dir, "mod_fastdfs.conf")
	if err := w.gatewayConf(dir, n, mode, h.addr, port, own...).write(conf); err != nil {
		return nil, err
	}
	s := &server{name: filepath.Base(dir), url: "http://" + join(h.addr, port), log: filepath.Join(dir, "log")}
	if err := s.start(h.command(w.s.gateway, "serve", "-c", conf)); err != nil {
		return nil, err
	}
	w.gateways = append(w.gateways, s)
	return s, s.await("http://" + join(h.addr, port+adminAbove) + "/readyz")
}

func (s *server) start(cmd *exec.Cmd) error {
	out, err := os.Create(s.log)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd, s.done = cmd, make(chan struct{})
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { // ends with the process, for which stop waits
		_ = cmd.Wait()
		close(s.done)
	}()
	return nil
}

// await waits until a URL has a response with a status below 500.
func (s *server) await(url string) error {
	return await(startLimit, s.name+" does not respond (see "+s.log+")", func() error {
		resp, err := http.Get(url)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if resp.StatusCode >= 500 {
			return errors.New(resp.Status)
		}
		return nil
	})
}

func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		_ = s.cmd.Process.Kill()
		<-s.done
	}
}

// close stops the servers. network.close kills the daemons.
func (w *world) close() {
	for _, s := range w.gateways {
		s.stop()
	}
}

// checkLogs checks that no log of a gateway has a panic or a BUG line, and that no gateway has
// ended by itself.
func (w *world) checkLogs() {
	for _, s := range w.gateways {
		text, err := os.ReadFile(s.log)
		bad := err != nil || bytes.Contains(text, []byte("BUG:")) || bytes.Contains(text, []byte("panic:"))
		select {
		case <-s.done:
			bad = true // ended by itself
		default:
		}
		if bad {
			w.report.check("logs", false, "%s: %v, see %s", s.name, err, s.log)
		}
	}
}
