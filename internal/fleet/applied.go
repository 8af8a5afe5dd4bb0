package fleet

import (
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// appliedName is the name of an AppliedFile in its folder.
const appliedName = "purges-applied"

// AppliedFile keeps the fence of the last purge that was applied, in the folder of the disk tier.
// Symbolic links that lead out of the folder are not followed. The file has one line:
//
//	1732280000123456 0123456789abcdef
//
// The fields are the fence, and the Log of the fleet that has given the fence. The line has a
// fixed length and is overwritten in place after the purge has reached the disk: after a power
// failure the file holds this fence or an earlier one. A renamed file may be empty then, and the
// whole disk tier would be purged.
type AppliedFile struct {
	folder, log string
	sync        func() error // returns when the applied purges survive a power failure

	mu     sync.Mutex // guards the file
	closed atomic.Bool
}

// NewAppliedFile returns the file of a folder. Load and Store open it.
func NewAppliedFile(folder, log string, sync func() error) *AppliedFile {
	return &AppliedFile{folder: folder, log: log, sync: sync}
}

// Load implements Local.Load. If the fence belongs to another log, the result is 0: then this
// gateway applies all purges of its log.
func (p *AppliedFile) Load() (fence int64, err error) {
	err = p.in(func(folder *os.Root) error {
		text, err := folder.ReadFile(appliedName)
		if err != nil {
			return err
		}
		number, log, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
		if fence, err = strconv.ParseInt(number, 10, 64); err == nil && log != p.log {
			fence = 0
		}
		return err
	})
	return fence, err
}

// Store implements Local.Store.
func (p *AppliedFile) Store(fence int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed.Load() {
		return nil
	}
	if err := p.sync(); err != nil || p.closed.Load() { // the disk may have been released meanwhile
		return err
	}
	return p.in(func(folder *os.Root) error {
		f, err := folder.OpenFile(appliedName, os.O_WRONLY|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(f, "%016d %s\n", fence, p.log)
		return errors.Join(err, f.Close())
	})
}

// Close ends changes of the fence: purges that arrive after the cache was closed may not reach the
// disk. It does not wait for Store. The receiver may be nil.
func (p *AppliedFile) Close() {
	if p != nil {
		p.closed.Store(true)
	}
}

// in calls f with the opened folder.
func (p *AppliedFile) in(f func(folder *os.Root) error) error {
	root, err := os.OpenRoot(p.folder)
	if err != nil {
		return err
	}
	return errors.Join(f(root), root.Close())
}

// Log returns an identifier of the log of purges, made from the addresses of Redis and the keys
// there.
func (f *Fleet) Log() string { return f.log }

// logOf returns the Log of a fleet with these options. It hashes the configured options, without
// the defaults that New fills in: the result is the same in every version of the program, so an
// upgraded gateway continues from its stored fence.
func logOf(o *Options) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %q %d %q %q", o.Mode, o.MasterName, o.DB, o.KeyPrefix, o.Addresses) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}
