package app

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// This file reports the state of the service to systemd (sd_notify(3)), if NOTIFY_SOCKET is set.

// notify sends lines to systemd, unless the main process of the service is another one by now. If
// systemd does not receive them, the timeout of the unit ends a start or reload.
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

// notifyReloading reports the beginning of a reload, with its time on the monotonic clock, which
// Type=notify-reload requires.
func (a *App) notifyReloading() {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("BUG: no monotonic clock: " + err.Error())
	}
	a.notify(daemon.SdNotifyReloading, fmt.Sprintf("MONOTONIC_USEC=%d", now.Nano()/1000))
}

// pingWatchdog sends a ping to systemd twice in each WatchdogSec=. Before each ping it reads the
// counts of the components, which takes their locks: after a deadlock systemd restarts the gateway.
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
