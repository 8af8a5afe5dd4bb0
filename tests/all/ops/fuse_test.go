package ops

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// hangable is a file system in user space that passes everything through to a folder, unless it
// hangs. A process in such a call can be killed.
type hangable struct {
	dir  string
	dev  int
	done sync.WaitGroup

	mu    sync.Mutex // guards the fields below; held while a request is served
	hangs bool
	ended bool
	nodes map[uint64]string
	ids   map[string]uint64
	files map[uint64]*os.File
	lists map[uint64][]os.DirEntry
	last  uint64 // node or handle
}

// mountHangable mounts a file system on a new folder, until the end of the test.
func mountHangable(t *testing.T) (fs *hangable, mount string) {
	t.Helper()
	needRoot(t)
	mount = t.TempDir()
	fs = &hangable{dir: t.TempDir(), nodes: map[uint64]string{1: "."}, ids: map[string]uint64{".": 1},
		files: map[uint64]*os.File{}, lists: map[uint64][]os.DirEntry{}, last: 1}
	var err error
	if fs.dev, err = unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		t.Skipf("skipped: no file system in user space: %v", err)
	}
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fs.dev)
	if err := unix.Mount("hangable", mount, "fuse.hangable", 0, options); err != nil {
		t.Skipf("skipped: cannot mount a file system: %v", err)
	}
	fs.done.Go(fs.serve)
	t.Cleanup(func() {
		fs.mu.Lock()
		fs.ended = true
		fs.mu.Unlock()
		require.NoError(t, unix.Unmount(mount, unix.MNT_FORCE|unix.MNT_DETACH))
		fs.done.Wait()
		require.NoError(t, unix.Close(fs.dev)) // ends all calls that hang
	})
	return fs, mount
}

// Hang ends all responses, or begins them again, also to the calls that hang.
func (h *hangable) Hang(hangs bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hangs = hangs
}

// serve serves requests until the end.
func (h *hangable) serve() {
	buf := make([]byte, 1<<20)
	for {
		poll := []unix.PollFd{{Fd: int32(h.dev), Events: unix.POLLIN}}
		_, _ = unix.Poll(poll, 50) // a failure shows in the read
		h.mu.Lock()
		if !h.hangs && !h.ended {
			if n, err := unix.Read(h.dev, buf); err == nil {
				h.respond(buf[:n])
			}
		}
		hangs, ended := h.hangs, h.ended
		h.mu.Unlock()
		switch {
		case ended:
			return
		case hangs:
			time.Sleep(10 * time.Millisecond)
		}
	}
}

var le = binary.LittleEndian

// respond serves one request of the protocol in linux/fuse.h.
func (h *hangable) respond(b []byte) {
	code, unique, node := le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:])
	if code == 2 || code == 42 || code == 36 { // FORGET, BATCH_FORGET, INTERRUPT have no response
		return
	}
	out, err := h.call(code, node, b[40:])
	errno := unix.Errno(0)
	if err != nil && !errors.As(err, &errno) {
		errno = unix.EIO
	}
	if errno != 0 {
		out = nil
	}
	head := le.AppendUint32(nil, uint32(16+len(out)))
	head = le.AppendUint32(head, uint32(-int32(errno)))
	head = le.AppendUint64(head, unique)
	_, _ = unix.Write(h.dev, append(head, out...)) // fails if the caller was killed
}

// texts returns the strings at the end of a request.
func texts(b []byte) (list []string) {
	for _, s := range bytes.Split(b, []byte{0}) {
		list = append(list, string(s))
	}
	return list
}

func (h *hangable) path(node uint64) string { return filepath.Join(h.dir, h.nodes[node]) }

func (h *hangable) call(code uint32, node uint64, b []byte) ([]byte, error) {
	in := func(name string) string { return filepath.Join(h.nodes[node], name) }
	switch code {
	case 26: // INIT
		out := make([]byte, 64)
		le.PutUint32(out, 7)
		le.PutUint32(out[4:], 31)
		le.PutUint32(out[12:], 1<<5) // BIG_WRITES
		le.PutUint32(out[20:], 128<<10)
		return out, nil
	case 1: // LOOKUP
		return h.entry(in(texts(b)[0]))
	case 3: // GETATTR
		attr, err := h.attr(node)
		return append(make([]byte, 16), attr...), err
	case 4: // SETATTR
		return h.setAttr(node, b)
	case 9: // MKDIR
		name := in(texts(b[8:])[0])
		if err := os.Mkdir(filepath.Join(h.dir, name), 0o700); err != nil {
			return nil, err
		}
		return h.entry(name)
	case 10: // UNLINK
		return nil, os.Remove(filepath.Join(h.dir, in(texts(b)[0])))
	case 12, 45: // RENAME, RENAME2
		names := texts(b[map[uint32]int{12: 8, 45: 16}[code]:])
		return nil, h.rename(in(names[0]), filepath.Join(h.nodes[le.Uint64(b)], names[1]))
	case 35: // CREATE
		return h.create(in(texts(b[16:])[0]), int(le.Uint32(b)))
	case 14: // OPEN
		return h.open(node, int(le.Uint32(b)))
	case 27: // OPENDIR
		list, err := os.ReadDir(h.path(node))
		h.last++
		h.lists[h.last] = list
		return append(le.AppendUint64(nil, h.last), make([]byte, 8)...), err
	case 17: // STATFS
		out := make([]byte, 80)
		for i := range 5 { // blocks and files, all of them free
			le.PutUint64(out[8*i:], 1<<30)
		}
		le.PutUint32(out[40:], 4096)
		le.PutUint32(out[44:], 255)
		return out, nil
	}
	return h.callFile(code, b)
}

// callFile serves the requests that begin with the handle of an open file or folder.
func (h *hangable) callFile(code uint32, b []byte) ([]byte, error) {
	if len(b) < 8 {
		return nil, unix.ENOSYS
	}
	handle := le.Uint64(b)
	switch code {
	case 15: // READ
		out := make([]byte, le.Uint32(b[16:]))
		n, _ := h.files[handle].ReadAt(out, int64(le.Uint64(b[8:]))) // a shorter response at the end
		return out[:n], nil
	case 16: // WRITE
		n, err := h.files[handle].WriteAt(b[40:40+le.Uint32(b[16:])], int64(le.Uint64(b[8:])))
		return le.AppendUint64(nil, uint64(n)), err
	case 18: // RELEASE
		err := h.files[handle].Close()
		delete(h.files, handle)
		return nil, err
	case 28: // READDIR
		return h.names(handle, int(le.Uint64(b[8:])), int(le.Uint32(b[16:]))), nil
	case 29: // RELEASEDIR
		delete(h.lists, handle)
		return nil, nil
	case 20, 25, 30: // FSYNC, FLUSH, FSYNCDIR
		return nil, nil
	}
	return nil, unix.ENOSYS
}

// attr returns a struct fuse_attr.
func (h *hangable) attr(node uint64) (out []byte, err error) {
	var s unix.Stat_t
	if err := unix.Lstat(h.path(node), &s); err != nil {
		return nil, err
	}
	for _, v := range []int64{int64(node), s.Size, s.Blocks, s.Atim.Sec, s.Mtim.Sec, s.Ctim.Sec} {
		out = le.AppendUint64(out, uint64(v))
	}
	for _, v := range []int64{s.Atim.Nsec, s.Mtim.Nsec, s.Ctim.Nsec, int64(s.Mode), int64(s.Nlink), 0, 0, 0, 4096, 0} {
		out = le.AppendUint32(out, uint32(v))
	}
	return out, nil
}

// entry returns a struct fuse_entry_out, whose node the kernel asks for again at each use.
func (h *hangable) entry(name string) ([]byte, error) {
	id, ok := h.ids[name]
	if !ok {
		h.last++
		id = h.last
		h.ids[name], h.nodes[id] = id, name
	}
	attr, err := h.attr(id)
	return append(append(le.AppendUint64(nil, id), make([]byte, 32)...), attr...), err
}

func (h *hangable) setAttr(node uint64, b []byte) ([]byte, error) {
	var errs []error
	if valid := le.Uint32(b); valid&8 != 0 {
		errs = append(errs, os.Truncate(h.path(node), int64(le.Uint64(b[16:]))))
	}
	attr, err := h.attr(node)
	return append(make([]byte, 16), attr...), errors.Join(append(errs, err)...)
}

func (h *hangable) rename(from, to string) error {
	if err := os.Rename(filepath.Join(h.dir, from), filepath.Join(h.dir, to)); err != nil {
		return err
	}
	if id, ok := h.ids[from]; ok {
		delete(h.ids, from)
		h.ids[to], h.nodes[id] = id, to
	}
	return nil
}

// create returns a struct fuse_entry_out and a struct fuse_open_out.
func (h *hangable) create(name string, flags int) ([]byte, error) {
	f, err := os.OpenFile(filepath.Join(h.dir, name), flags|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	entry, err := h.entry(name)
	if err != nil {
		return nil, err
	}
	open, err := h.open(h.ids[name], flags)
	return append(entry, open...), err
}

// open returns a struct fuse_open_out.
func (h *hangable) open(node uint64, flags int) ([]byte, error) {
	f, err := os.OpenFile(h.path(node), flags&unix.O_ACCMODE, 0)
	if err != nil {
		return nil, err
	}
	h.last++
	h.files[h.last] = f
	return append(le.AppendUint64(nil, h.last), make([]byte, 8)...), nil
}

// names returns entries of a folder from a position on, each as a struct fuse_dirent.
func (h *hangable) names(handle uint64, from, size int) (out []byte) {
	list := h.lists[handle]
	for i := from; i < len(list); i++ {
		name := list[i].Name()
		e := le.AppendUint64(nil, uint64(i+1))
		e = le.AppendUint64(e, uint64(i+1))
		e = le.AppendUint32(e, uint32(len(name)))
		e = le.AppendUint32(e, 0)
		e = append(e, name...)
		e = append(e, make([]byte, (8-len(e)%8)%8)...)
		if len(out)+len(e) > size {
			break
		}
		out = append(out, e...)
	}
	return out
}
