package app

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// This file tells systemd about the state of the service (sd_notify(3)). It does nothing where
// NOTIFY_SOCKET is not set.

// notify sends lines, unless the service is another process. If systemd does not get them, its own
// timeout ends a start or reload.
func (a *App) notify(lines ...string) {
	if a.upgrade.done.Load() {
		return
	}
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		a.log.Warn("cannot tell systemd about the state of the service", "state", lines[0], "err", err)
	}
}

// notifyServing reports readiness and the main PID to systemd. The process that this one replaces
// ends only after that.
func (a *App) notifyServing() {
	lines := []string{daemon.SdNotifyReady}
	if a.o.Replaces != nil {
		lines = append(lines, fmt.Sprintf("MAINPID=%d", os.Getpid()))
	}
	a.notify(lines...)
	a.o.Replaces.Serving()
}

// notifyReloading reports the begin of a reload, by the clock that Type=notify-reload compares.
func (a *App) notifyReloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("BUG: no monotonic clock: " + err.Error())
	}
	a.notify(daemon.SdNotifyReloading, fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
}

// pingWatchdog sends a ping to systemd twice in each WatchdogSec=. Each ping first reads the counts
// of the components, which waits for their locks.
func (a *App) pingWatchdog() {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		a.log.Warn("cannot tell how often the watchdog of systemd is to be pinged", "err", err)
	}
	if every <= 0 {
		return
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for {
		a.counts()
		a.notify(daemon.SdNotifyWatchdog)
		select {
		case <-a.stopping:
			return
		case <-tick.C:
		}
	}
}
