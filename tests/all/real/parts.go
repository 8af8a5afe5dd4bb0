package main

import (
	"bytes"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"fastdfs-gateway/tests/all/real/client"
)

// Limits of the program, with room for the clock of this test.
const (
	deletedLimit = 1100 * time.Millisecond // until 404 at a gateway whose host has deleted the file
	mutableLimit = 2500 * time.Millisecond // until a changed appender comes through the cache: mutable_ttl is 1 s
)

// deletePart deletes files that are requested all the time: a normal one, an appender, and with
// -trunk a packed one.
func (w *world) deletePart() {
	s1 := w.storages[0]
	normal := w.content(w.unpacked())
	f, err := w.upload("normal", s1, 0, "bin", normal)
	if !w.report.failed("delete", err) {
		w.deleteHot(f)
	}
	if f, err = w.uploadAppender("appender", s1, "log", w.content(50000)); !w.report.failed("delete", err) {
		w.deleteHot(f)
	}
	if w.s.trunk {
		if f, err = w.upload("packed", s1, 0, "jpg", w.content(30000)); !w.report.failed("delete", err) {
			w.deleteHot(f)
		}
	}
	w.deleteUnreplicated()
}

// deleteUnreplicated deletes a file at its source while the storages of the group do not replicate:
// the replica keeps the file, and the gateway on the host of the source still responds 404.
func (w *world) deleteUnreplicated() {
	s1 := w.storages[0]
	f, err := w.upload("normal, replication closed", s1, 0, "bin", w.content(w.unpacked()))
	if w.report.failed("delete", err) || w.report.failed("delete", w.waitReplicated(f.id)) ||
		w.report.failed("delete", asError(f.whole(get(w.gatewayAt(s1)+"/"+f.id)))) ||
		w.report.failed("delete", w.restartWith(s1, "sync_start_time="+clock(12*time.Hour),
			"sync_end_time="+clock(12*time.Hour+time.Minute))) {
		return
	}
	if !w.report.failed("delete", client.Delete(s1.addr(), f.id)) {
		took, wrong := f.untilGone(w.gatewayAt(s1), time.Now())
		_, err := client.Size(w.replicaOf(f).addr(), f.id)
		w.report.check("delete", wrong == "" && took <= deletedLimit && err == nil,
			"%s: 404 at its source after %v while the replica has it (%v) %s", f.kind, took, err, wrong)
	}
	w.report.failed("delete", w.restartWith(s1))
}

// clock returns the time of day after d in the format of storage.conf.
func clock(d time.Duration) string { return time.Now().Add(d).Format("15:04") }

// restartWith kills a storage and starts it with further lines of storage.conf, which replace those
// of the same keys.
func (w *world) restartWith(n *node, more ...string) error {
	if err := w.kill(n); err != nil {
		return err
	}
	set := slices.Clone(w.s.set)
	for _, line := range more {
		set = append(set, "storage."+line)
	}
	if err := w.storageConf(n, filepath.Dir(n.conf)).with("storage", set).write(n.conf); err != nil {
		return err
	}
	if err := w.startStorage(n); err != nil {
		return err
	}
	return await(startLimit, n.host.name+" does not come back", func() error {
		_, err := client.Upload(n.addr(), 0, "txt", []byte("back"))
		return err
	})
}

const hotGets = 20 // requests that make a file hot

// deleteHot deletes a file at its source, and waits for 404 there and at the replica's gateway.
func (w *world) deleteHot(f *file) {
	if w.report.failed("delete", w.waitReplicated(f.id)) {
		return
	}
	replica := w.replicaOf(f)
	for range hotGets {
		for _, n := range []*node{f.from, replica} {
			if wrong := f.whole(get(w.gatewayAt(n) + "/" + f.id)); wrong != "" {
				w.report.check("delete", false, "%s before it was deleted: %s", f.kind, wrong)
				return
			}
		}
	}
	if w.report.failed("delete", client.Delete(f.from.addr(), f.id)) {
		return
	}
	deleted := time.Now()
	var both sync.WaitGroup
	both.Go(func() {
		took, wrong := f.untilGone(w.gatewayAt(f.from), deleted)
		w.report.check("delete", wrong == "" && took <= deletedLimit, "%s: 404 at its source after %v %s", f.kind, took,
			wrong)
	})
	both.Go(func() {
		if w.report.failed("delete", w.waitGone(f.id)) {
			return
		}
		there := time.Now()
		took, wrong := f.untilGone(w.gatewayAt(replica), there)
		w.report.check("delete", wrong == "" && took <= deletedLimit,
			"%s: 404 at its replica %v after the replica had deleted it, which took %v %s",
			f.kind, took, there.Sub(deleted).Round(time.Millisecond), wrong)
	})
	both.Wait()
}

// goneLimit bounds the waiting for a change.
const goneLimit = 8 * time.Second

// untilGone requests a file until the response is 404, and returns the time since deleted. Earlier
// responses must have the right bytes.
func (f *file) untilGone(server string, deleted time.Time) (took time.Duration, wrong string) {
	for {
		r := get(server + "/" + f.id)
		took = time.Since(deleted).Round(time.Millisecond)
		switch {
		case r.status == http.StatusNotFound:
			return took, wrong
		case took > goneLimit:
			return took, "and it is still there"
		}
		cut := r.err != nil && bytes.HasPrefix(f.want, r.body) // deleted meanwhile
		if text := f.whole(r); text != "" && !cut {
			wrong = text
		}
		time.Sleep(poll)
	}
}

// mutablePart changes an appender and replaces a slave while the edge has them in its cache.
func (w *world) mutablePart() {
	s1 := w.storages[0]
	f, err := w.uploadAppender("appender", s1, "log", w.content(300<<10))
	if w.report.failed("mutable", err) {
		return
	}
	w.changeHot(f, "appended", func() ([]byte, error) {
		more := w.content(100 << 10)
		return append(bytes.Clone(f.want), more...), client.Append(s1.addr(), f.id, more)
	})
	w.changeHot(f, "modified", func() ([]byte, error) {
		part := w.content(1 << 10)
		want := bytes.Clone(f.want)
		copy(want[2000:], part)
		return want, client.Modify(s1.addr(), f.id, 2000, part)
	})
	w.changeHot(f, "truncated", func() ([]byte, error) {
		return f.want[:5000], client.Truncate(s1.addr(), f.id, 5000)
	})
	master, err := w.upload("master", s1, 0, "jpg", w.content(2000))
	if w.report.failed("mutable", err) {
		return
	}
	slave, err := w.uploadSlave("slave", master, "_100x100", "jpg", w.content(900))
	if w.report.failed("mutable", err) {
		return
	}
	w.changeHot(slave, "replaced", func() ([]byte, error) {
		content := w.content(1100)
		if err := client.Delete(s1.addr(), slave.id); err != nil {
			return nil, err
		}
		_, err := client.UploadSlave(s1.addr(), master.id, "_100x100", "jpg", content)
		return content, err
	})
}

// changeHot changes a file that the edge has in its cache. Each response must be all of the old
// version or all of the new one.
func (w *world) changeHot(f *file, what string, change func() ([]byte, error)) {
	name := "mutable"
	if w.report.failed(name, w.waitSame(f)) {
		return
	}
	url := w.edge.url + "/" + f.id
	if err := await(goneLimit, "the edge has another version", func() error {
		return asError(f.whole(get(url)))
	}); w.report.failed(name, err) {
		return
	}
	old := f.want
	want, err := change()
	if w.report.failed(name, err) {
		return
	}
	f.want = want
	changed := time.Now()
	for {
		r := get(url)
		took := time.Since(changed).Round(time.Millisecond)
		isNew := f.whole(r) == ""
		isOld := r.err == nil && r.status == http.StatusOK && bytes.Equal(r.body, old)
		between := r.status == http.StatusNotFound && what == "replaced" // deleted for a moment
		switch {
		case isNew || took > goneLimit:
			w.report.check(name, isNew && took <= mutableLimit, "%s %s: new at the edge after %v", f.kind, what, took)
			return
		case !isOld && !between && r.err == nil: // a change aborts a response
			w.report.check(name, false, "%s %s: neither the old version nor the new: %s", f.kind, what, f.whole(r))
			return
		}
		time.Sleep(poll)
	}
}

func asError(text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("%s", text)
}
