package tier

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// OpenDisk opens a Disk, which the caller closes. If the disk hangs or fails, or for any error but
// one of Check with DiskOptions.Successor, the tier is empty until the folder could be opened.
func OpenDisk(o DiskOptions) (*Disk, error) {
	o.Max, o.Queue, o.Retry = cmp.Or(o.Max, 10<<30), cmp.Or(o.Queue, 32<<20), cmp.Or(o.Retry, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.failure == nil {
		o.failure = func(string) error { return nil }
	}
	d := &Disk{o: o, jobs: make(chan *job, maxJobs), index: newIndex(),
		removals: make(chan struct{}, 1), flushes: make(chan chan struct{}), purged: make(map[Match]struct{}),
		pending: make(Files[job])}
	d.io = newDiskIO(&d.o)
	d.life, d.end = context.WithCancel(context.Background())
	d.tasks.Go(d.attend)
	err := d.openOnce()
	_, rejected := errors.AsType[*rejectedError](err)
	switch {
	case err == nil, o.Successor && errors.Is(err, ErrInUse):
		return d, nil
	case errors.Is(err, errOff), isDiskFailure(err), o.Successor && !rejected:
		o.Logger.Error("the disk cannot be used for the cache, which is in memory only until it can", "path", o.Path,
			"err", err)
		return d, nil
	}
	return nil, errors.Join(fmt.Errorf("cannot use %q for the cache: %w", o.Path, err), d.Close())
}

// rejectedError is an error of DiskOptions.Check.
type rejectedError struct{ error }

func (r *rejectedError) Unwrap() error { return r.error }

// Await opens the folder, unless it is open. A process that replaces another one calls it when that
// has released the folder, or could not.
func (d *Disk) Await() {
	if err := d.openOnce(); err != nil {
		d.o.Logger.Warn("the cache has no disk for now", "path", d.o.Path, "err", err)
	}
}

// openOnce opens the folder, unless it is open.
func (d *Disk) openOnce() error {
	if d.root.Load() != nil {
		return nil
	}
	return doOnly(d.io, "open the folder", untilOff, d.openFolder)
}

// openFolder is open in a goroutine that may hang.
func (d *Disk) openFolder() error {
	if !d.opening.TryLock() {
		return errOff // another attempt has not ended
	}
	defer d.opening.Unlock()
	if d.root.Load() != nil {
		return nil
	}
	if d.o.Check != nil {
		if err := d.o.Check(); err != nil {
			return &rejectedError{err}
		}
	}
	root, err := openRoot(d.o.Path)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.life.Err() != nil {
		return errors.Join(errClosed, root.Close())
	}
	d.root.Store(root)
	d.o.Logger.Info("the cache uses its disk", "path", d.o.Path) // also after a disk that has hung
	d.tasks.Go(d.work)
	d.tasks.Go(d.list)
	return nil
}

// errClosed: the tier was closed or released.
var errClosed = errors.New("closed")

// probePause is the time between two attempts to open the folder, or to use a disk that was off.
const probePause = time.Second

// attend is the goroutine that opens the folder if OpenDisk could not, and turns the tier on again
// when no operation is stuck and a probe of all kinds of operations ends in time.
func (d *Disk) attend() {
	for {
		var tick <-chan time.Time
		if d.root.Load() == nil || d.io.isOff.Load() {
			tick = time.After(probePause)
		}
		select {
		case <-d.life.Done():
			return
		case <-d.io.wake:
			continue
		case <-tick:
		}
		if d.io.stuck.Load() > 0 {
			continue
		}
		began := time.Now()
		err := d.io.supervise("probe", func() error {
			if root := d.root.Load(); root != nil {
				return root.probe()
			}
			return d.openFolder()
		})
		if err != nil || time.Since(began) >= hangTime {
			continue
		}
		d.io.turnOn()
	}
}

// endTime bounds the wait of Release and Close for the operations that are running.
const endTime = 2 * time.Second

// finish ends the background work, and then calls last. It waits for both, unless the disk hangs or
// endTime is over: then last is called later.
func (d *Disk) finish(last func(*diskRoot) error) error {
	d.mu.Lock()
	d.end()
	d.mu.Unlock()
	off := d.io.offChannel()
	done := make(chan error, 1)
	go func() { // ends with the operations that are running
		d.tasks.Wait()
		d.opening.Lock()
		defer d.opening.Unlock()
		var err error
		if root := d.root.Load(); root != nil {
			err = last(root)
		}
		done <- err
	}()
	late := time.NewTimer(endTime)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	default:
	}
	select {
	case err := <-done:
		return err
	case <-off:
	case <-late.C:
	}
	return errOff
}

// Release removes the files of purges and evictions that are left, and leaves the folder to another
// process. Afterwards this process writes and removes nothing there; the queue is dropped. Get
// still finds and reads files until the other process removes them. After an error the folder is
// released when the running operations have ended.
func (d *Disk) Release() error { return d.finish((*diskRoot).unlock) }

// Close ends the background work as Release does, and closes the folder. Views stay usable.
func (d *Disk) Close() error {
	err := d.finish((*diskRoot).Close)
	if err == errOff { // no failure of Close: what is running ends with the process
		return nil
	}
	return err
}

// isDiskFailure reports whether an error is due to a disk that is full or failing, or a file system
// that is corrupted (EUCLEAN, EBADMSG), and not to a wrong configuration.
func isDiskFailure(err error) bool {
	failures := []error{unix.ENOSPC, unix.EDQUOT, unix.EROFS, unix.EIO, unix.EUCLEAN, unix.EBADMSG}
	return slices.ContainsFunc(failures, func(failure error) bool { return errors.Is(err, failure) })
}
