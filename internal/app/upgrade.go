package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/process/panics"
	"fastdfs-gateway/internal/process/upgrade"

	"golang.org/x/sys/unix"
)

// This file replaces the process by a new one, in the steps that the documentation of package
// upgrade lists.

// upgradeState is the state of an upgrade, of which a process has at most one at a time.
type upgradeState struct {
	begun atomic.Bool     // an upgrade is running, or has succeeded
	done  atomic.Bool     // another process serves, or is about to
	life  context.Context // ends with Stop
	end   context.CancelFunc
}

// errUpgrading is the error for a change that would be lost with this process.
var errUpgrading = errors.New("a new process is taking over from this one: ask again")

// Upgrade starts a new process of the program, which reads the configuration and takes over the
// listeners. After that this process waits for the end of its running responses, without a time
// limit, and Ended yields. If the new process fails before it is ready, this one continues to
// serve, and the log has the reason. Upgrade does not wait.
func (a *App) Upgrade() {
	if !a.upgrade.begun.CompareAndSwap(false, true) {
		a.log.Error("upgrade rejected", "err", errUpgrading)
		return
	}
	a.running.Go(func() {
		next, err := a.startNext()
		if err == nil {
			if err = a.loading.take(turnTime); err != nil {
				next.Abort()
			}
		}
		if err != nil {
			a.upgrade.begun.Store(false)
			a.log.Error("upgrade failed, this process goes on", "err", err)
			return
		}
		if err := a.handOver(next); err != nil {
			a.reportEnd(err)
			return
		}
		a.reportEnd(a.drain(next))
	})
}

// startNext starts the new process, and returns when it is ready.
func (a *App) startNext() (*upgrade.Successor, error) {
	switch {
	case a.o.NoStarter != nil:
		return nil, a.o.NoStarter
	case a.o.Starter == nil:
		return nil, errors.New("only gateway serve can be upgraded")
	case os.Getpid() == 1:
		return nil, errors.New("this is process 1, whose end is the end of the container: replace that")
	}
	if groups := a.components.Load().upstreams.Trackers.Members().Remembered(); len(groups) > 0 {
		return nil, fmt.Errorf("no tracker lists %s any more, and a new process would deny its files: try again when "+
			"the trackers list it, or in some minutes", strings.Join(groups, ", "))
	}
	if err := a.loading.take(turnTime); err != nil { // a reload may close listeners
		return nil, err
	}
	sockets, names, err := a.copySockets()
	a.loading.leave()
	links, errLinks := a.o.Replaces.Links()
	defer func() {
		for _, fd := range slices.Concat(sockets, links) {
			_ = unix.Close(fd) // the new process has copies
		}
	}()
	if err = errors.Join(err, errLinks); err != nil {
		return nil, err
	}
	a.log.Info("upgrade: starting a new process", "program", a.o.Starter.Program)
	return a.o.Starter.Start(a.upgrade.life, sockets, names, links)
}

// copySockets returns descriptors of all sockets, and their names, for the new process.
func (a *App) copySockets() (sockets []int, names []string, err error) {
	for _, ln := range a.listeners() {
		fd, name, err := ln.File(ln.role.key())
		if err != nil {
			return sockets, names, err
		}
		sockets, names = append(sockets, fd), append(names, name)
	}
	return sockets, names, nil
}

// releaseTime bounds the wait for a purge that is being applied.
const releaseTime = 5 * time.Second

// handOver releases the resources that one process at a time may have, stops accepting, and lets
// the new process serve. This process accepts while it waits for a disk: it stops when the new one
// can have the folder of the cache, or has to go without. After an error neither process serves.
// The caller has taken loading.
func (a *App) handOver(next *upgrade.Successor) error {
	defer a.loading.leave()
	if err := a.upgrade.life.Err(); err != nil {
		next.Abort()
		return err
	}
	a.upgrade.done.Store(true)
	ended, cancelNow := context.WithCancel(context.Background())
	cancelNow()
	for _, ln := range a.listeners() {
		ln.SetOwned(false) // no Close removes the file of a unix socket
	}
	_ = a.admin.Shutdown(ended) // it closes the listeners, and does not wait
	ctx, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	if a.fleet != nil {
		a.fleet.HandOver(ctx)
		a.applied.Close()
	}
	a.releaseDisk()
	a.closeListeners(rolePeers, roleFiles, roleFilesTLS)
	a.o.Replaces.Leave()
	// The new process becomes a child of the process that reaps orphans: systemd sees its end, even
	// if this process runs longer.
	a.o.Starter.Close() // no further process is started
	if err := next.Go(); err != nil {
		return fmt.Errorf("the new process %d has ended when it was to serve: %w", next.PID, err)
	}
	a.running.Go(func() {
		defer panics.Contain("following the purges of the new process")
		next.Follow(func(path string) { a.purgeLocal(cache.Match(path)) })
	})
	return nil
}

// releaseDisk releases the folder of the cache for the new process.
func (a *App) releaseDisk() {
	if a.cache == nil || a.cache.Disk() == nil {
		return
	}
	if err := a.cache.Disk().Release(); err != nil {
		a.log.Warn("the new process begins without the cache on disk, and gets it later", "err", err)
	}
}

// drainMemory is the limit in bytes of the memory tier of a process that another one has replaced:
// its last responses may take hours, and the other process needs memory too.
const drainMemory = 32 << 20

// shrinkCache frees the memory of the cache beyond drainMemory.
func (a *App) shrinkCache() {
	if a.cache == nil {
		return
	}
	limits := a.cacheLimits(a.config())
	limits.Memory = min(limits.Memory, drainMemory)
	a.cache.Adjust(limits)
	debug.FreeOSMemory()
}

// drain returns when the last response has ended, or Stop was called. The error is that of a new
// process that ended before it served.
func (a *App) drain(next *upgrade.Successor) error {
	defer next.Close()
	ctx := a.upgrade.life
	a.log.Info("a new process serves, this one ends its responses", "pid", next.PID,
		"connections", a.server.Connections())
	if err := next.AwaitServing(ctx); err != nil {
		return err
	}
	if a.fleet != nil {
		a.fleet.Leave() // where the new process has another name, or another Redis
	}
	a.shrinkCache()
	err := a.server.Drain(ctx)
	if err == nil && a.fleet != nil {
		err = a.fleet.StopPeers(ctx)
	}
	if err == nil {
		err = a.admin.Shutdown(ctx)
	}
	if err != nil && ctx.Err() == nil {
		a.log.Warn("cannot end all responses", "err", err)
	}
	return nil
}
