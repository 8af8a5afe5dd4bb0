package tier

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/process/panics"
)

// An operation on the disk that takes longer than hangTime turns the tier off. This process may not
// have run meanwhile, so the operation gets graceTime to end.
const (
	hangTime  = 4 * time.Second
	graceTime = time.Second

	// readTime bounds the wait of a reader, which goes on with the source then, as at a store path.
	// The other readers do not wait any more, unless the disk completes an operation.
	readTime = 2 * time.Second
)

// maxOperations bounds the operations of readers at a time, and with them the threads that a disk
// holds when it hangs.
const maxOperations = 128

// errOff is the error of an operation while the disk hangs, or for which a reader waits no longer.
var errOff = errors.New("the cache's disk hangs")

// diskIO bounds the time of every operation on the disk of a Disk: none is done without it. When an
// operation takes too long the tier is off for everybody at once: all that wait for the disk give
// up, and no further operation of a reader begins. Disk.attend turns the tier on again.
//
// Background goroutines call supervise, and may hang; all others call do.
type diskIO struct {
	o     *DiskOptions
	slots chan struct{} // one value for each operation of do
	wake  chan struct{} // holds one value after turnOff
	hangs atomic.Uint64 // number of calls of turnOff that had an effect
	isOff atomic.Bool   // changed with mu held
	stuck atomic.Int64  // operations that take too long and have not ended; changed with mu held

	mu     sync.Mutex    // guards the fields below
	off    chan struct{} // closed when the tier is turned off; another one after turnOn
	ended  uint64        // number of operations of do that have ended
	silent bool          // a reader has given up, and none of them has ended since it began
}

func newDiskIO(o *DiskOptions) *diskIO {
	return &diskIO{o: o, slots: make(chan struct{}, maxOperations), wake: make(chan struct{}, 1),
		off: make(chan struct{})}
}

// supervise calls an operation, and turns the tier off if the operation takes too long.
func (x *diskIO) supervise(op string, call func() error) error {
	const ended, hangs = 1, 2
	var state atomic.Int32
	timer := time.AfterFunc(hangTime, func() {
		time.Sleep(graceTime)
		x.turnOff(op, func() bool { return state.CompareAndSwap(0, hangs) })
	})
	defer func() {
		timer.Stop()
		if state.Swap(ended) == hangs {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.stuck.Add(-1)
		}
	}()
	if err := x.o.failure(op); err != nil {
		return err
	}
	return call()
}

// untilOff is the limit of operations whose caller waits until the tier is off.
const untilOff = 0

// do returns the result of an operation, or errOff as soon as the tier is off or the limit is over:
// readTime for a reader, untilOff for others. The operation has a goroutine, which ends with it; a
// late result that is an io.Closer is closed there.
func do[T any](x *diskIO, op string, limit time.Duration, call func() (T, error)) (v T, err error) {
	var late <-chan time.Time
	if limit != untilOff {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	off, before, err := x.awaitPlace(op, late)
	if err != nil {
		return v, err
	}
	left := make(chan struct{})
	defer close(left)
	type outcome struct {
		v   T
		err error
	}
	done := make(chan outcome)
	go func() {
		defer func() { <-x.slots }()
		var o outcome
		o.err = x.supervise(op, func() (err error) {
			defer panics.ToError(&err, "using the cache's disk")
			o.v, err = call()
			return err
		})
		x.endOperation()
		select {
		case done <- o:
		case <-left:
			if c, ok := any(o.v).(io.Closer); ok && o.err == nil {
				_ = c.Close() // nothing was written
			}
		}
	}()
	select {
	case o := <-done:
		return o.v, o.err
	case <-off:
	case <-late:
		x.giveUp(before)
	}
	return v, errOff
}

// doOnly is do for an operation without a result.
func doOnly(x *diskIO, op string, limit time.Duration, call func() error) error {
	_, err := do(x, op, limit, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// endOperation records the end of an operation of do.
func (x *diskIO) endOperation() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ended, x.silent = x.ended+1, false
}

// giveUp records that a reader has left, which saw the number of ended operations before its own.
func (x *diskIO) giveUp(before uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.silent = x.silent || x.ended == before
}

// awaitPlace waits for the place of an operation, and returns the channel that is closed when the
// tier is turned off, and the number of ended operations. If no place becomes free in time, the
// disk is as good as one that hangs; a reader, which has leave, gives up earlier, when it receives
// from that.
func (x *diskIO) awaitPlace(op string, leave <-chan time.Time) (off <-chan struct{}, ended uint64, err error) {
	x.mu.Lock()
	off, ended = x.off, x.ended
	silent := x.silent && leave != nil
	x.mu.Unlock()
	if silent || x.isOff.Load() {
		return nil, 0, errOff
	}
	select {
	case x.slots <- struct{}{}:
		return off, ended, nil
	default:
	}
	late := time.NewTimer(hangTime + graceTime)
	defer late.Stop()
	select {
	case x.slots <- struct{}{}:
		return off, ended, nil
	case <-late.C:
		x.turnOff(op, nil)
	case <-leave:
	case <-off:
	}
	return nil, 0, errOff
}

// offChannel returns a channel that is closed while the tier is off, or when it is turned off.
func (x *diskIO) offChannel() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.off
}

// turnOff turns the tier off for an operation that takes too long: with hangs one that has not
// ended if hangs returns true, else one that could not begin.
func (x *diskIO) turnOff(op string, hangs func() bool) {
	x.mu.Lock()
	if hangs != nil {
		if !hangs() {
			x.mu.Unlock()
			return
		}
		x.stuck.Add(1)
	}
	begins := !x.isOff.Swap(true)
	if begins {
		x.hangs.Add(1)
		close(x.off)
	}
	x.mu.Unlock()
	if begins {
		x.o.Logger.Error("the cache's disk hangs: there is no cache on disk until it responds", "path", x.o.Path,
			"operation", op)
		select {
		case x.wake <- struct{}{}:
		default: // a value is there
		}
	}
}

// turnOn turns the tier on again if no operation is stuck.
func (x *diskIO) turnOn() {
	x.mu.Lock()
	ends := x.stuck.Load() == 0 && x.isOff.Swap(false)
	if ends {
		x.off = make(chan struct{})
	}
	x.mu.Unlock()
	if ends {
		x.o.Logger.Warn("the cache's disk responds again, the cache uses it", "path", x.o.Path)
	}
}
