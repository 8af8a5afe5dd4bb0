package app

import (
	"cmp"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// storeCheckEvery is how often the store paths are checked, for disks that are mounted late or
// replaced.
const storeCheckEvery = 10 * time.Second

// ready returns why requests cannot be served; nil when they can.
func (a *App) ready() error {
	if a.draining.Load() {
		return i18n.Errorf("stopping")
	}
	p := a.components.Load()
	if len(p.cfg.Groups) == 0 && len(p.cfg.TrackerServers) > 0 && !p.upstreams.Trackers.Members().Known() {
		return i18n.Errorf("no tracker has replied yet, and there is no store here")
	}
	return a.storeReady()
}

// storeReady returns why store paths cannot be read; nil when they can.
func (a *App) storeReady() error {
	p := a.components.Load()
	return cmp.Or(a.storeReplaced(p.cfg), p.store.Ready())
}

// watchStore logs when the store paths become unreadable and readable. If Landlock keeps this
// process from a folder that was put in place, a new process takes over.
func (a *App) watchStore() {
	tick := time.NewTicker(storeCheckEvery)
	defer tick.Stop()
	last := ""
	for {
		text := ""
		if err := a.storeReady(); err != nil {
			text = err.Error()
		}
		if text != last {
			if last = text; text != "" {
				a.log.Error("store is not ready", "err", text)
				if a.storeReplaced(a.config()) != nil {
					a.Upgrade()
				}
			} else {
				a.log.Info("store is ready")
			}
		}
		select {
		case <-a.stopping:
			return
		case <-tick.C:
			a.warnOfNames()
		}
	}
}
