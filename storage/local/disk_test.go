package local

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/process/sys"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/testing/eventually"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hangingStore is a test store whose first store path looks up each name on its disk, which
// responds when the test lets it.
type hangingStore struct {
	*testing.T
	cache *FileCache
	mu    sync.Mutex // guards hangs
	hangs map[string]chan struct{}
}

func newHangingStore(t *testing.T, s *testStore) *hangingStore {
	nothing := FileCacheOptions{MaxFiles: -1, MaxBody: -1}
	h := &hangingStore{T: t, cache: newTestCache(t, s, nothing), hangs: map[string]chan struct{}{}}
	l := h.cache.local
	dir := l.groups["group1"][0].dir.Load()
	dir.disk.onHost = false
	open := l.opener
	l.opener = func(dirfd int, name string, how *unix.OpenHow) (int, error) {
		if dirfd == dir.fd {
			h.mu.Lock()
			wait := h.hangs[name]
			h.mu.Unlock()
			if wait != nil {
				<-wait
			}
		}
		return open(dirfd, name, how)
	}
	return h
}

// hang makes the look-up of files hang until the result is closed.
func (h *hangingStore) hang(ids ...fdfs.FileID) chan struct{} {
	wait := make(chan struct{})
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		h.hangs[id.DiskName()] = wait
	}
	return wait
}

// open opens a file and returns the time and the error of that.
func (h *hangingStore) open(id fdfs.FileID) (time.Duration, error) {
	began := time.Now()
	f, err := h.cache.Open(id)
	if err == nil {
		err = f.Close()
	}
	return time.Since(began), err
}

func (h *hangingStore) requireOpen(id fdfs.FileID) {
	h.Helper()
	took, err := h.open(id)
	require.NoError(h, err)
	require.Zero(h, took)
}

func (h *hangingStore) requireFails(id fdfs.FileID, after time.Duration) {
	h.Helper()
	took, err := h.open(id)
	require.ErrorIs(h, err, ErrNoResponse)
	require.ErrorIs(h, err, ErrUnavailable)
	require.Equal(h, after, took)
}

// TestDiskHangs: while the disk of a store path hangs, requests for its files fail after diskTime,
// and later ones at once, but for one in each diskTime. They use a bounded number of threads. Other
// store paths are not concerned. Ready names the store path. Everything is served when the disk
// responds again.
func TestDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		h := newHangingStore(t, s)
		other := s.write(s.id(fdfs.KindNormal, "other", func(f *fdfs.Fields) { f.PathIndex = 1 }), "other")
		var ids []fdfs.FileID
		for i := range 3 * maxRunning {
			ids = append(ids, s.normal(fmt.Sprintf("content %d", i)))
		}
		wait := h.hang(ids...)
		var requests sync.WaitGroup
		for _, id := range ids {
			requests.Go(func() { h.requireFails(id, diskTime) })
		}
		time.Sleep(diskTime / 2)
		h.requireOpen(other)
		requests.Wait()
		d := h.cache.local.groups["group1"][0].dir.Load().disk
		require.Len(t, d.places, maxRunning)
		h.requireFails(ids[0], 0)
		h.requireFails(s.normal("new"), 0)
		h.requireOpen(other)
		err := h.cache.local.Ready()
		require.ErrorIs(t, err, ErrNoResponse)
		require.EqualError(t, err, "store path 0 of group group1 ("+s.paths["group1"][0]+
			"): store cannot be read: the disk does not respond")
		close(wait)
		synctest.Wait()
		require.NoError(t, h.cache.local.Ready())
		for _, id := range append(ids, other) {
			h.requireOpen(id)
		}
		require.Empty(t, d.late)
		require.Empty(t, d.places)
	})
}

// TestFileHangs: one file that hangs does not keep others of its store path from being served. If
// nothing else was requested meanwhile, the next request after diskTime shows that the disk
// responds.
func TestFileHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newTestStore(t)
		h := newHangingStore(t, s)
		id, other := s.normal("content"), s.normal("other")
		wait := h.hang(id)
		h.requireFails(id, diskTime)
		h.requireFails(other, 0)
		time.Sleep(diskTime)
		h.requireOpen(other)
		h.requireFails(id, 0)
		h.requireOpen(other)
		close(wait)
		synctest.Wait()
		h.requireOpen(id)

		wait = h.hang(id)
		var request sync.WaitGroup
		request.Go(func() { h.requireFails(id, diskTime) })
		time.Sleep(diskTime / 2)
		h.requireOpen(other)
		request.Wait()
		h.requireOpen(other)
		close(wait)
		synctest.Wait()
	})
}

// TestDiskIsSlow: operations wait for a place as long as others end.
func TestDiskIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(false)
		slow := func() int { time.Sleep(diskTime * 3 / 4); return 1 }
		var all sync.WaitGroup
		for range 4 * maxRunning {
			all.Go(func() {
				n, err := await(d, &storePath{}, "file", diskTime, slow, func(int) { t.Error("discarded") })
				require.NoError(t, err)
				require.Equal(t, 1, n)
			})
		}
		all.Wait()
	})
}

// TestLateResult: a result that comes too late is discarded.
func TestLateResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, discarded := newDisk(false), 0
		_, err := await(d, &storePath{}, "file", diskTime, func() int { time.Sleep(2 * diskTime); return 7 },
			func(n int) { discarded = n })
		require.ErrorIs(t, err, ErrNoResponse)
		time.Sleep(diskTime)
		synctest.Wait() // for the race detector, too
		require.Equal(t, 7, discarded)
		require.Empty(t, d.late)
	})
}

// TestReadsOfHangingFile: while a file hangs, reads fail whose bytes are not in the memory of the
// kernel.
func TestReadsOfHangingFile(t *testing.T) {
	s := newTestStore(t)
	content := string(contenttest.Bytes(1 << 20))
	id := s.normal(content)
	c := newTestCache(t, s, noBodies)
	f, err := c.Open(id)
	require.NoError(t, err)
	defer f.Close()
	p := make([]byte, 100_000)
	read := func() error {
		n, err := f.disk.ReadAt(p, 5)
		require.Equal(t, content[5:5+n], string(p[:n]))
		return err
	}
	d := f.disk.disk
	d.late[f.name] = 1
	require.NoError(t, read())
	require.NoError(t, f.disk.Await(0, 1<<20, diskTime))
	if _, err := sys.PreadNoWait(f.disk.fd, make([]byte, 1), 5); err == unix.EOPNOTSUPP {
		t.Skip("this file system cannot tell")
	}
	// A page in use stays, and each attempt makes the kernel read ahead.
	isRejected := func(try func() error) func() bool {
		return func() bool {
			file, err := os.OpenFile(s.disk(id), os.O_RDWR, 0)
			require.NoError(t, err)
			require.NoError(t, file.Sync())
			require.NoError(t, unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED))
			require.NoError(t, file.Close())
			return errors.Is(try(), ErrNoResponse)
		}
	}
	eventually.True(t, isRejected(func() error { return f.disk.Await(0, 1<<20, diskTime) }))
	eventually.True(t, isRejected(read))
	d.forget(f.name)
	require.NoError(t, f.disk.Await(0, 1<<20, diskTime))
	require.NoError(t, read())
}
