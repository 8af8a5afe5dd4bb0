package fleet

import (
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"sync"
	"time"
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
	folder Folder
	log    string
	sync   func() error // returns when the applied purges survive a power failure

	mu      sync.Mutex    // guards the fields below
	fence   int64         // of the last Store
	storing chan struct{} // closed when the fence is stored, or could not be; nil = no goroutine stores it
	err     error         // the result
	again   *time.Timer   // calls Store after a failure; nil = there was none
	closed  bool
}

// Folder is the folder of the disk tier, whose operations are bounded.
type Folder interface {
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, content []byte) error // in place
}

// NewAppliedFile returns the file of a folder.
func NewAppliedFile(folder Folder, log string, sync func() error) *AppliedFile {
	return &AppliedFile{folder: folder, log: log, sync: sync}
}

// Load implements Local.Load. If the fence belongs to another log, the result is 0: then this
// gateway applies all purges of its log.
func (p *AppliedFile) Load() (fence int64, err error) {
	text, err := p.folder.ReadFile(appliedName)
	if err != nil {
		return 0, err
	}
	number, log, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if fence, err = strconv.ParseInt(number, 10, 64); err == nil && log != p.log {
		fence = 0
	}
	return fence, err
}

// storeTime bounds the wait of a heartbeat for the disk.
const storeTime = time.Second

// errStoreLate: the fence is stored when the disk has removed the files of the purges.
var errStoreLate = errors.New("the disk takes long: the number is stored later")

// Store implements Local.Store. It waits for storeTime at most: the purges are in force, and until
// they are durable the file has an earlier fence, from which the next process applies them again.
func (p *AppliedFile) Store(fence int64) error {
	p.mu.Lock()
	p.fence = fence
	if p.storing == nil && !p.closed {
		p.storing = make(chan struct{})
		go p.store(p.storing) // ends with the operations of the disk
	}
	storing := p.storing
	p.mu.Unlock()
	if storing == nil {
		return nil
	}
	late := time.NewTimer(storeTime)
	defer late.Stop()
	select {
	case <-storing:
	case <-late.C:
		return errStoreLate
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// storeAgain is the pause after a failure. While the tier is off, an attempt takes no time.
const storeAgain = 5 * time.Second

// store stores the last fence, and again while a newer one has come. After a failure it tries again
// later, since the disk may respond again before the next purge.
func (p *AppliedFile) store(done chan struct{}) {
	for {
		p.mu.Lock()
		fence := p.fence
		p.mu.Unlock()
		err := p.sync()
		if err == nil && !p.isClosed() { // the disk may have been released meanwhile
			err = p.folder.WriteFile(appliedName, fmt.Appendf(nil, "%016d %s\n", fence, p.log))
		}
		p.mu.Lock()
		if err != nil || p.fence == fence || p.closed {
			p.storing, p.err = nil, err
			if p.again != nil {
				p.again.Stop()
			}
			if err != nil && !p.closed {
				p.again = time.AfterFunc(storeAgain, func() { _ = p.Store(p.last()) }) // the log has the first error
			}
			p.mu.Unlock()
			close(done)
			return
		}
		p.mu.Unlock()
	}
}

func (p *AppliedFile) last() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fence
}

func (p *AppliedFile) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Close ends changes of the fence: purges that arrive after the cache was closed may not reach the
// disk. It does not wait for Store. The receiver may be nil.
func (p *AppliedFile) Close() {
	if p != nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.closed = true; p.again != nil {
			p.again.Stop()
		}
	}
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
