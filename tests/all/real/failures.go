package main

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/all/real/client"
)

const (
	slowRate      = "80mbit" // of a storage during a disturbed download: 50 MB take 5 s
	gapLimit      = 4 * time.Second
	redirectLimit = 700 * time.Millisecond
	renewLimit    = 10 * time.Second // until the gateway uses a new address
)

// freezePart disturbs downloads in the middle: it pauses the sending storage, cuts off its host,
// kills it, and pauses the sending web server.
func (w *world) freezePart() {
	s1, s2 := w.storages[0], w.storages[1]
	for _, n := range []*node{s1, s2} {
		if err := n.host.limit(slowRate); err != nil {
			w.report.skip("freeze", fmt.Sprintf("the kernel cannot slow a device down: %v", err))
			return
		}
		defer func() { w.report.failed("freeze", n.host.unlimit()) }()
	}
	w.coldBehindFrozenServer()
	f, err := w.upload("large", s1, 0, "bin", w.content(w.s.largeMB<<20))
	if w.report.failed("freeze", err) || w.report.failed("freeze", w.waitSame(f)) {
		return
	}
	w.disturb(w.edge, f, "frozen", func(n *node) error { return w.signal(n, syscall.SIGSTOP) },
		func(n *node) error { return w.signal(n, syscall.SIGCONT) })
	w.disturb(w.edge, f, "host cut off", func(n *node) error { return w.network.cut(n.host) },
		func(n *node) error { return w.network.mend(n.host) })
	w.disturb(w.edge, f, "killed", w.kill, w.startStorage)
	w.disturb(w.byHTTP, f, "web server frozen", func(n *node) error { return w.beside[n].signal(syscall.SIGSTOP) },
		func(n *node) error { return w.beside[n].signal(syscall.SIGCONT) })
}

// coldBehindFrozenServer requests a small file that no cache has, while the web server of its
// source accepts connections and sends nothing.
func (w *world) coldBehindFrozenServer() {
	f, err := w.upload("small", w.storages[0], 0, "jpg", w.content(5000))
	if w.report.failed("freeze", err) || w.report.failed("freeze", w.waitSame(f)) {
		return
	}
	server := w.beside[f.from]
	if w.report.failed("freeze", server.signal(syscall.SIGSTOP)) {
		return
	}
	r := get(w.byHTTP.url + "/" + f.id)
	w.report.failed("freeze", server.signal(syscall.SIGCONT))
	wrong := f.whole(r)
	w.report.check("freeze", wrong == "" && r.took <= gapLimit, "cold file behind a frozen web server: all took %v %s",
		r.took.Round(time.Millisecond), wrong)
}

// disturb downloads a file through a gateway at the edge, and calls strike, and after the download
// heal, for the storage whose host sends the file.
func (w *world) disturb(edge *server, f *file, what string, strike, heal func(*node) error) {
	if w.report.failed("freeze", w.purge(edge, "all=1")) {
		return
	}
	done := make(chan response, 1)
	begin := time.Now()
	go func() { done <- get(edge.url + "/" + f.id) }() // ends with the response, which is awaited below
	time.Sleep(300 * time.Millisecond)
	s1, s2 := w.storages[0], w.storages[1]
	victim := s1
	if busiest(s1.host, s2.host) == s2.host {
		victim = s2
	}
	select {
	case r := <-done:
		w.report.check("freeze", false, "the download was over after %v, before %s could be disturbed", r.took,
			victim.host.name)
		return
	default:
	}
	struck := time.Since(begin).Round(time.Millisecond)
	w.report.failed("freeze", strike(victim))
	r := <-done
	w.report.failed("freeze", heal(victim))
	wrong := f.whole(r)
	w.report.check("freeze", wrong == "" && r.gap <= gapLimit, "%s %s after %v: longest gap %v, all took %v %s",
		victim.host.name, what, struck, r.gap.Round(time.Millisecond), r.took.Round(time.Millisecond), wrong)
	w.report.failed("freeze", w.waitReady())
}

// redirectPart requests a redirect to a host that has just been cut off.
func (w *world) redirectPart() {
	s1, s2 := w.storages[0], w.storages[1]
	f, err := w.upload("redirected", s1, 0, "jpg", w.content(5000))
	if w.report.failed("redirect", err) || w.report.failed("redirect", w.waitSame(f)) {
		return
	}
	url := w.redirecting.url + "/" + f.id
	// Earlier parts have disturbed the source.
	err = await(goneLimit, "clients are not sent to the source", func() error {
		if place := do(stay, http.MethodGet, url).header.Get("Location"); !strings.Contains(place,
			"//"+join(s1.host.addr, gatewayPort)+"/") {
			return fmt.Errorf("the Location field is %q", place)
		}
		return nil
	})
	if w.report.failed("redirect", err) || w.report.failed("redirect", w.network.cut(s1.host)) {
		return
	}
	r := do(stay, http.MethodGet, url)
	place := r.header.Get("Location")
	want := "//" + join(s2.host.addr, gatewayPort) + "/"
	w.report.check("redirect", r.err == nil && strings.Contains(place, want) && r.took <= redirectLimit,
		"source is dead: status %d after %v to %q, want the replica %s %v", r.status, r.took.Round(time.Millisecond),
		place, want, r.err)
	w.report.failed("redirect", w.network.mend(s1.host))
	w.report.failed("redirect", w.waitReady())
}

// addressPart moves s2 to another address, and kills s1, so that s2 is the only storage of the
// group.
func (w *world) addressPart() {
	const name = "address"
	s1, s2 := w.storages[0], w.storages[1]
	var files []*file
	for _, n := range []*node{s1, s2} {
		f, err := w.upload("of "+n.host.name, n, 0, "jpg", w.content(9000))
		if w.report.failed(name, err) || w.report.failed(name, w.waitSame(f)) {
			return
		}
		files = append(files, f)
	}
	warm := files[1].whole(get(w.edge.url + "/" + files[1].id)) // the edge has the addresses of the cluster
	if w.report.failed(name, asError(warm)) || w.report.failed(name, w.moveStorage(s2)) ||
		w.report.failed(name, w.kill(s1)) ||
		w.report.failed(name, w.purge(w.edge, "all=1")) {
		return
	}
	start := time.Now()
	active := make(chan error, 1) // gets one value when the trackers have the new address
	var tracked time.Duration
	go func() { // ends within startLimit, and is awaited below
		err := w.awaitActive(s2)
		tracked = time.Since(start)
		active <- err
	}()
	var served []time.Duration
	for _, f := range files {
		err := await(startLimit, "the edge", func() error { return asError(f.whole(get(w.edge.url + "/" + f.id))) })
		w.report.failed(name, err)
		served = append(served, time.Since(start))
	}
	if w.report.failed(name, <-active) {
		return
	}
	for i, f := range files {
		late := max(0, served[i]-tracked).Round(time.Millisecond)
		w.report.check(name, late <= renewLimit,
			"a file %s: right after %v, of which the trackers took %v and the gateway %v", f.kind,
			served[i].Round(time.Millisecond), tracked.Round(time.Millisecond), late)
	}
	w.report.failed(name, w.startStorage(s1))
	w.report.failed(name, w.waitReady())
}

// awaitActive waits until all trackers list a storage as active at its address. FastDFS takes up to
// 30 s, which do not count as time of the gateway.
func (w *world) awaitActive(n *node) error {
	for _, t := range w.trackers {
		err := await(startLimit, t.name+" does not list "+n.host.name+" as active at its new address", func() error {
			reply, err := client.Call(join(t.addr, trackerPort), fdfs.CmdListStorages, fdfs.AppendGroup(nil, n.group))
			if err != nil {
				return err
			}
			list, err := fdfs.ParseStorages(reply)
			if err != nil {
				return err
			}
			for _, s := range list {
				if s.Addr == n.host.addr && s.Status == fdfs.StatusActive {
					return nil
				}
			}
			return fmt.Errorf("the tracker lists %v", list)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// newByte is the last byte of the address that s2 moves to.
const newByte = 32

// moveStorage gives the host of a storage another address, writes the storage ids, and waits until
// the storage accepts files there. The host loses its address before the process ends, so clients
// get no FIN or RST on their connections to the storage. The gateways and the nginx of that host
// listen on the old address and are unreachable from then on.
func (w *world) moveStorage(n *node) error {
	if err := w.network.move(n.host, newByte); err != nil {
		return err
	}
	if err := w.kill(n); err != nil {
		return err
	}
	if w.s.ids {
		if err := w.writeIDs(); err != nil {
			return err
		}
		for _, t := range w.trackers {
			if err := w.daemonRestart(t); err != nil {
				return err
			}
		}
	}
	if err := w.startStorage(n); err != nil {
		return err
	}
	return await(startLimit, n.host.name+" takes no file at its new address", func() error {
		_, err := client.Upload(n.addr(), 0, "txt", []byte("moved"))
		return err
	})
}

// daemonRestart restarts a tracker.
func (w *world) daemonRestart(t *host) error {
	list := t.pids("tracker.conf")
	for _, pid := range list {
		if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
			return err
		}
	}
	if err := awaitEnd(list); err != nil {
		return err
	}
	return w.startTracker(t)
}

// linksPart makes a link. This part comes last: FastDFS 6.16 stops replicating the files of a
// storage that gets a link.
func (w *world) linksPart() {
	s1 := w.storages[0]
	target, err := w.upload("target", s1, 0, "jpg", w.content(w.unpacked()))
	if w.report.failed("links", err) {
		return
	}
	id, err := client.CreateLink(s1.addr(), target.id, "jpg")
	if err != nil {
		w.report.skip("links", fmt.Sprintf("this version makes none by command 20: %v", err))
		return
	}
	f := &file{kind: "link", id: id, want: target.want, from: s1}
	for _, t := range []namedURL{{"source", w.gatewayAt(s1)}, {"other group", w.gatewayAt(w.storages[2])},
		{"edge", w.edge.url}} {
		wrong := requests(f, t.url)
		w.report.check("links", wrong == "", "at %s %s", t.name, wrong)
	}
}

type namedURL struct{ name, url string }

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
