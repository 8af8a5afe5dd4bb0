package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/tools/demo/storewriter"
)

// object is a requested file.
type object struct {
	path string // of its URL
	name string // file id without the group
	size int64
	sum  [sha256.Size]byte
}

// created is the creation time of all files: long enough ago that none is still being replicated.
var created = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// group is the group of the store.
const group = "group1"

// store writes files as FastDFS does, below one store path. It is for one goroutine.
type store struct {
	root  string // the store path
	w     storewriter.Writer
	count int // of contents
}

func newStore(root string) *store {
	return &store{root: root, w: storewriter.Writer{Root: func(string, int) string { return root }, Created: created}}
}

// content returns n bytes, which are different for each file.
func (s *store) content(n int) []byte {
	s.count++
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(s.count), byte(s.count >> 8), byte(s.count >> 16), 1}).Read(b) // never fails
	return b
}

// plain writes a normal file.
func (s *store) plain(size int) (object, error) { return s.plainOf(s.content(size)) }

func (s *store) plainOf(content []byte) (object, error) {
	id, err := s.w.Put(s.w.Fields(fdfs.KindNormal, "bin", content), content)
	return objectOf(id, content), err
}

// packed writes a file into a slot of the trunk file.
func (s *store) packed(content []byte) (object, error) {
	o, _, err := s.slot(content)
	return o, err
}

// slot is packed, and returns the id too.
func (s *store) slot(content []byte) (object, fdfs.FileID, error) {
	f := s.w.Fields(fdfs.KindTrunk, "bin", content)
	f.High, f.Low = 0, 0
	s.w.NextSlot(&f)
	id, err := s.w.Put(f, content)
	return objectOf(id, content), id, err
}

// missing returns a deleted file. Its folder exists: FastDFS makes all folders at first.
func (s *store) missing() (object, error) {
	id, err := fdfs.Encode(s.w.Fields(fdfs.KindNormal, "bin", []byte("missing")))
	if err != nil {
		return object{}, err
	}
	folder := filepath.Join(s.root, "data", filepath.Dir(id.DiskName()))
	return objectOf(id, nil), os.MkdirAll(folder, 0o755)
}

func objectOf(id fdfs.FileID, content []byte) object {
	return object{path: "/" + id.String(), name: id.Logic, size: int64(len(content)), sum: sha256.Sum256(content)}
}

// check reads the body of a response and compares it.
func (o *object) check(body io.Reader) error {
	h := sha256.New()
	n, err := io.Copy(h, body)
	if err != nil {
		return err
	}
	if n != o.size || [sha256.Size]byte(h.Sum(nil)) != o.sum {
		return fmt.Errorf("%s: got %d bytes that are not the %d of the file", o.path, n, o.size)
	}
	return nil
}

// popular draws count indexes below n by Zipf's law with exponent 1.1: a few files are very
// popular. The indexes are the same in every run.
func popular(n, count int) []int {
	z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(n-1))
	drawn := make([]int, count)
	for i := range drawn {
		drawn[i] = int(z.Uint64())
	}
	return drawn
}

// mixSize returns the size of the i-th most popular file of the mix: from 256 bytes to 120 KiB, and
// 21 KiB on average, independent of the popularity.
func mixSize(i int) int {
	r := rand.New(rand.NewPCG(uint64(i), 3))
	return 1 << 10 << r.IntN(6) * (1 + r.IntN(15)) / 4
}
