package local

import (
	"sync"
	"time"

	"fastdfs-gateway/internal/fdfs"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// A check of a slot whose content does not match costs the most, since both variants of the CRC32
// are computed: about 12 ms of processor time for 16 MiB, after a HEAD of a few bytes. One uploaded
// file can contain slot headers for many thousands of ids that fail. So failed checks are limited
// by their bytes per second.
//
// Only checks in trunk files with forged slots are limited. A trunk file is suspect for a while
// after a check in it has failed. A check in a suspect trunk file takes its bytes from the budget
// before it begins, and returns them unless the content is wrong. Checks in other trunk files do
// not need the budget, nor do requests for slots that are open in the FileCache.

const (
	// failedRate is the number of bytes of failed checks per second: four slots of the largest
	// default size, about 5 % of one core.
	failedRate = 64 << 20
	// failedBurst is the budget of failed checks when none has failed lately. It has room for
	// concurrent checks of several slots of the largest default size, most of which match.
	failedBurst = 256 << 20
	// freeCheck is the size of the largest slot whose check is never limited and waits for no other
	// check. Such a check costs no more than a few requests.
	freeCheck = 64 << 10
	// suspectFor is the time for which a trunk file is suspect after a failed check. Before the
	// first failure and after that time, concurrent checks begin without budget: maxLargeReads in
	// each store path.
	suspectFor = 10 * time.Minute
	// mostSuspects bounds the memory for suspect trunk files to a few MiB.
	mostSuspects = 1 << 14
)

// slotLimit limits failed checks. It is safe for concurrent use.
type slotLimit struct {
	mu       sync.Mutex                       // guards the fields below
	bytes    int64                            // budget at the time at; negative after checks without budget
	at       time.Time                        // of bytes
	suspects *simplelru.LRU[inode, time.Time] // time of the last failed check
}

func newSlotLimit() *slotLimit {
	suspects, _ := simplelru.NewLRU[inode, time.Time](mostSuspects, nil) // fails for a size of 0
	return &slotLimit{bytes: failedBurst, at: time.Now(), suspects: suspects}
}

// takeBytes takes the bytes of a check from the budget, if the trunk file is suspect. The caller
// calls end with the result of the check. The error is ErrSlotLimit if the budget is too small.
func (l *slotLimit) takeBytes(f *File) (end func(error), err error) {
	if f.content.Kind != fdfs.KindTrunk || f.size <= freeCheck {
		return func(error) {}, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, paid := time.Now(), false
	if l.suspect(f, now) {
		l.refill(now)
		// A slot of more than the whole budget is rejected until the budget is full, and then
		// overdraws it.
		if l.bytes < min(f.size, failedBurst) {
			return nil, ErrSlotLimit
		}
		l.bytes -= f.size
		paid = true
	}
	return func(result error) { l.endCheck(f, paid, result) }, nil
}

// suspect reports whether a check in the trunk file of f has failed lately. l.mu is held.
func (l *slotLimit) suspect(f *File, now time.Time) bool {
	failed, found := l.suspects.Peek(f.seen.inode)
	return found && now.Sub(failed) < suspectFor
}

// refill adds the bytes of the time since the last call. l.mu is held.
func (l *slotLimit) refill(now time.Time) {
	added := min(now.Sub(l.at).Seconds(), 2*failedBurst/failedRate) * failedRate
	l.bytes, l.at = min(l.bytes+int64(added), failedBurst), now
}

// endCheck accounts for the result of a check.
func (l *slotLimit) endCheck(f *File, paid bool, result error) {
	failed := result == ErrSlotContent
	if !failed && !paid {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.refill(now)
	if paid {
		l.bytes = min(l.bytes+f.size, failedBurst)
	}
	if failed {
		// The debt is bounded, so that checks are possible again after a few seconds.
		l.bytes = max(l.bytes-f.size, -failedBurst)
		l.suspects.Add(f.seen.inode, now)
	}
}
