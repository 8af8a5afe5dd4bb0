package main

import (
	"math/rand/v2"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/fdfstest"
)

// storages are slow FastDFS storages with one file.
type storages struct {
	cluster *fdfstest.Cluster
	content []byte
	id      fdfs.FileID
}

func newStorages(s *settings) (*storages, error) {
	cluster, err := fdfstest.Start(fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 2}}})
	if err != nil {
		return nil, err
	}
	content := contentOf(s.size)
	id, err := cluster.Put(fdfstest.FileSpec{Group: "group1", Content: content, Ext: "bin",
		Created: time.Now().Add(-24 * time.Hour)})
	if err != nil {
		cluster.Close()
		return nil, err
	}
	return &storages{cluster, content, id}, nil
}

func (s *storages) close() { s.cluster.Close() }

// slow sets the delay and the rate of the storages.
func (s *storages) slow(o *settings) {
	rate := 0
	if o.spread > 0 {
		rate = max(1, int(float64(o.size)/o.spread.Seconds()))
	}
	for _, one := range s.cluster.Storages() {
		one.SetFaults(
			fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Delay: o.delay, Rate: rate},
			fdfstest.Faults{Commands: []byte{fdfstest.CmdFileInfo}, Delay: o.delay},
		)
	}
}

func (s *storages) kill() {
	for _, one := range s.cluster.Storages() {
		one.Kill()
	}
}

// revive brings killed storages back for the next row.
func (s *storages) revive() {
	for _, one := range s.cluster.Storages() {
		_ = one.Revive() // its port is free: the node reserves it
	}
}

func (s *storages) reset() {
	for _, one := range s.cluster.Storages() {
		one.ResetCounts()
	}
}

func (s *storages) counts() counts {
	files := s.cluster.Downloads(s.id)
	c := counts{downloads: int64(files.Downloads), bytes: files.Bytes}
	for _, one := range s.cluster.Storages() {
		c.questions += int64(one.Counts().Requests[fdfstest.CmdFileInfo])
	}
	return c
}

// contentOf returns content that depends only on its size.
func contentOf(size int) []byte {
	content := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(content) // never fails
	return content
}
