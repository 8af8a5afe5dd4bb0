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
// No symbolic link leads out of the folder. The file has one line:
//
//	0001732280000123456 0123456789abcdef
//
// The fields are the fence, and Log of the fleet whose log of purges it belongs to. The line has
// one length and is overwritten in place, when the purge has reached the disk: after a power
// failure there is this fence or an earlier one. A file that is renamed may be empty then, which
// would drop all that is stored.
type AppliedFile struct {
	folder, log string
	sync        func() error // returns when the purges that were applied survive a power failure

	mu     sync.Mutex // guards the file
	closed atomic.Bool
}

// NewAppliedFile opens nothing yet.
func NewAppliedFile(folder, log string, sync func() error) *AppliedFile {
	return &AppliedFile{folder: folder, log: log, sync: sync}
}

// Load is for Local. Behind a fence of another log, all purges of this one are to be applied: the
// result is 0.
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

// Store is for Local.
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

// Close keeps the fence as it is: purges that arrive after the cache was closed may not reach the
// disk. It does not wait for Store, and may be called for nil.
func (p *AppliedFile) Close() {
	if p != nil {
		p.closed.Store(true)
	}
}

// in calls f with the folder.
func (p *AppliedFile) in(f func(folder *os.Root) error) error {
	root, err := os.OpenRoot(p.folder)
	if err != nil {
		return err
	}
	return errors.Join(f(root), root.Close())
}

// Log names the log of purges: the Redis, and the keys there.
func (f *Fleet) Log() string { return f.log }

// logOf is the Log of a fleet with these options. Versions hash the options as they are configured,
// without the defaults that New fills in, so that an upgrade finds its own log again.
func logOf(o *Options) string {
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%q %q %d %q %q", o.Mode, o.MasterName, o.DB, o.KeyPrefix, o.Addresses) // never fails
	return fmt.Sprintf("%016x", h.Sum64())
}
