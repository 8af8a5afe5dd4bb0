package main

import (
	"fmt"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/all/real/client"
)

// extensions have every length that FastDFS allows.
var extensions = []string{"", "z", "js", "jpg", "webp", "xhtml", "tar2gz"}

const reuseTries = 20 // uploads until one takes the slot of a deleted file

// kinds makes one file of each kind. A file that cannot be made is a failure, or is left out if
// some versions cannot make it.
func (w *world) kinds() []*file {
	var files []*file
	add := func(f *file, err error) *file {
		if err != nil {
			w.report.failed("upload", err)
			return nil
		}
		files = append(files, f)
		return f
	}
	s1, s2, s3 := w.storages[0], w.storages[1], w.storages[2]
	sizes := []int{0, 1, 4096, 65537, 600 << 10, w.s.largeMB << 20}
	if w.s.trunk { // slots of several segments of the cache, and the sizes around the largest slot
		sizes = append(sizes, 5<<20, slotMax-fdfs.SlotHeaderSize, slotMax+1)
	}
	for _, size := range sizes {
		add(w.upload(fmt.Sprintf("%d bytes", size), s1, 0, "bin", w.content(size)))
	}
	for _, ext := range extensions { // packed files with -trunk
		add(w.upload(fmt.Sprintf("extension %q", ext), s1, 1, ext, w.content(3000+len(ext))))
	}
	add(w.upload("from the replica", s2, 1, "png", w.content(5000)))
	add(w.upload("of group2", s3, 0, "txt", w.content(5000)))
	add(w.upload("of group2, large", s3, 0, "bin", w.content(2<<20)))
	if master := add(w.upload("master", s1, 0, "jpg", w.content(7000))); master != nil {
		add(w.uploadSlave("slave", master, "_150x150", "jpg", w.content(900)))
		add(w.uploadSlave("slave, other extension", master, "_small", "png", w.content(70000)))
		add(w.uploadSlave("slave, empty", master, "_empty", "jpg", nil))
	}
	if f := add(w.upload("with metadata", s1, 0, "jpg", w.content(2500))); f != nil {
		w.report.failed("metadata", client.SetMetadata(s1.addr(), f.id, "width", "150"))
	}
	w.appenders(add)
	w.deleted(add)
	return files
}

// appenders makes appenders, and appends to, modifies, truncates and regenerates some of them.
func (w *world) appenders(add func(*file, error) *file) {
	s1, s2 := w.storages[0], w.storages[1]
	add(w.uploadAppender("appender", s1, "log", w.content(3000)))
	add(w.uploadAppender("appender, empty", s1, "log", nil))
	add(w.uploadAppender("appender from the replica", s2, "log", w.content(70000)))
	if f := add(w.uploadAppender("appender, appended", s1, "log", w.content(3000))); f != nil {
		w.report.failed("append", w.append(f, w.content(4000)))
	}
	if f := add(w.uploadAppender("appender, modified", s1, "log", w.content(3000))); f != nil {
		part := w.content(500)
		w.report.failed("modify", client.Modify(s1.addr(), f.id, 1000, part))
		f.want = append(append(append([]byte(nil), f.want[:1000]...), part...), f.want[1500:]...)
	}
	if f := add(w.uploadAppender("appender, truncated", s1, "log", w.content(3000))); f != nil {
		w.report.failed("truncate", client.Truncate(s1.addr(), f.id, 1234))
		f.want = f.want[:1234]
	}
	w.regenerated(add)
}

// regenerated turns an appender into a normal file, which FastDFS supports since 6.02.
func (w *world) regenerated(add func(*file, error) *file) {
	f, err := w.uploadAppender("appender before it was regenerated", w.storages[0], "log", w.content(2000))
	if w.report.failed("upload", err) {
		return
	}
	if err := w.waitReplicated(f.id); w.report.failed("regenerate", err) {
		return
	}
	id, err := client.Regenerate(f.from.addr(), f.id)
	if err != nil {
		w.report.skip("regenerated", fmt.Sprintf("this version cannot: %v", err))
		return
	}
	add(&file{kind: "regenerated", id: id, want: f.want, from: f.from}, nil)
	f.gone = true
	add(f, nil)
}

// deleted makes files and deletes them. With -trunk, another file takes the slot of a deleted one.
func (w *world) deleted(add func(*file, error) *file) {
	s1 := w.storages[0]
	var list []*file
	for _, kind := range []string{"deleted", "deleted, slot taken again"} {
		if f := add(w.upload(kind, s1, 0, "txt", w.content(9000))); f != nil {
			list = append(list, f)
		}
	}
	if f := add(w.uploadAppender("deleted appender", s1, "log", w.content(9000))); f != nil {
		list = append(list, f)
	}
	for _, f := range list {
		if w.report.failed("delete", w.waitReplicated(f.id)) || w.report.failed("delete", w.delete(f)) ||
			w.report.failed("delete", w.waitGone(f.id)) {
			return
		}
	}
	if !w.s.trunk {
		return
	}
	for range reuseTries {
		f := add(w.upload("in the slot of a deleted one", s1, 0, "txt", w.content(9000)))
		if f == nil {
			return
		}
		for _, old := range list[:2] {
			if sameSlot(f.id, old.id) {
				return
			}
		}
		time.Sleep(poll)
	}
	w.report.skip("slot taken again", fmt.Sprintf("none of %d uploads took the slot of a deleted file", reuseTries))
}

func sameSlot(a, b string) bool {
	x, errX := fdfs.Parse(a)
	y, errY := fdfs.Parse(b)
	return errX == nil && errY == nil && x.Kind == fdfs.KindTrunk && x.DiskName() == y.DiskName() &&
		x.PathIndex == y.PathIndex &&
		x.Trunk.ID == y.Trunk.ID && x.Trunk.Offset == y.Trunk.Offset
}
