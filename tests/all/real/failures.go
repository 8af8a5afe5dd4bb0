package main

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/all/real/client"
)

// renewLimit is the time until the gateway uses a new address.
const renewLimit = 10 * time.Second

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
