package main

import (
	"bytes"
	"math/rand/v2"

	"fastdfs-gateway/tests/all/real/client"
)

// file is one file of the cluster, and the content that a client must get.
type file struct {
	kind string
	id   string
	want []byte
	gone bool // every gateway must respond 404
	from *node
}

// content returns bytes that no other file has.
func (w *world) content(size int) []byte {
	w.seed++
	random := rand.NewChaCha8([32]byte{byte(w.seed), byte(w.seed >> 8)})
	b := make([]byte, size)
	_, _ = random.Read(b) // never fails
	return b
}

// unpacked returns the size in bytes of a file that storages do not pack.
func (w *world) unpacked() int {
	if w.s.trunk {
		return slotMax + 1
	}
	return 600 << 10
}

// upload stores a normal file.
func (w *world) upload(kind string, n *node, pathIndex byte, ext string, content []byte) (*file, error) {
	id, err := client.Upload(n.addr(), pathIndex, ext, content)
	return &file{kind: kind, id: id, want: content, from: n}, err
}

func (w *world) uploadAppender(kind string, n *node, ext string, content []byte) (*file, error) {
	id, err := client.UploadAppender(n.addr(), 0, ext, content)
	return &file{kind: kind, id: id, want: content, from: n}, err
}

func (w *world) uploadSlave(kind string, master *file, prefix, ext string, content []byte) (*file, error) {
	id, err := client.UploadSlave(master.from.addr(), master.id, prefix, ext, content)
	return &file{kind: kind, id: id, want: content, from: master.from}, err
}

// append adds to an appender.
func (w *world) append(f *file, content []byte) error {
	f.want = append(bytes.Clone(f.want), content...)
	return client.Append(f.from.addr(), f.id, content)
}

// delete removes a file.
func (w *world) delete(f *file) error {
	f.gone = true
	return client.Delete(f.from.addr(), f.id)
}
