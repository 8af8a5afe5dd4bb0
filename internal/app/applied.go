package app

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"fastdfs-gateway/internal/fleet"
)

// appliedFile keeps the number of the last purge that was applied beside the files that it was
// about. No symbolic link leads out of the folder.
//
// It is written when the purge is on the disk for good, and has one length, so that it is
// overwritten in place: after a power failure there is this number or one before it. A file that is
// renamed may be empty then, which would drop all that is stored.
type appliedFile struct {
	folder string       // empty = there is no cache on disk
	sync   func() error // returns when the purges that were applied survive a power failure

	mu     sync.Mutex // guards what follows, and the file
	paused bool
	log    string // of logOf: that the number is of
}

// appliedName is the name of the file in the folder.
const appliedName = "purges-obeyed"

// loader sets the folder, and returns what loads the number; nil without a folder. moved: the
// number is one of another log than this one. Earlier versions did not note of which it is.
func (p *appliedFile) loader(folder, log string) (load func() (int64, error), moved bool) {
	if p.folder = folder; folder == "" {
		return nil, false
	}
	_, of, _ := p.read()
	return p.load, of != "" && of != log
}

func (p *appliedFile) load() (int64, error) {
	n, _, err := p.read()
	return n, err
}

func (p *appliedFile) read() (n int64, log string, err error) {
	err = p.in(func(folder *os.Root) error {
		text, err := folder.ReadFile(appliedName)
		if err != nil {
			return err
		}
		number, of, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		n, err = strconv.ParseInt(number, 10, 64)
		log = of
		return err
	})
	return n, log, err
}

// follow says of which log the numbers are from now on.
func (p *appliedFile) follow(log string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = log
}

// in calls f with the folder.
func (p *appliedFile) in(f func(folder *os.Root) error) error {
	root, err := os.OpenRoot(p.folder)
	if err != nil {
		return err
	}
	return errors.Join(f(root), root.Close())
}

func (p *appliedFile) store(n int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.paused {
		return nil
	}
	if err := p.sync(); err != nil {
		return err
	}
	return p.in(func(folder *os.Root) error {
		f, err := folder.OpenFile(appliedName, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(f, "%016d %s\n", n, p.log)
		return errors.Join(err, f.Close())
	})
}

// pause removes the file until resume: two logs of purges are followed, and no number tells what
// was applied of both. A process that starts without the file drops what is on disk.
func (p *appliedFile) pause() error {
	if p.folder == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = true
	err := p.in(func(folder *os.Root) error { return folder.Remove(appliedName) })
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// close keeps the number as it is: what is purged when the cache was closed may stay on the disk.
func (p *appliedFile) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = true
}

// resume writes the number of the one fleet that is followed from now on; nil = there is none. One
// that has not read its log writes it then.
func (p *appliedFile) resume(f *fleet.Fleet) error {
	if p.folder == "" {
		return nil
	}
	p.mu.Lock()
	p.paused = false
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	select {
	case <-f.Synced():
		return p.store(f.Stats().Applied)
	default:
		return nil
	}
}
