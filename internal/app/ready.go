package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/storage/local"
)

// storeCheckEvery is the interval of the checks of the store paths, for disks that are mounted late
// or replaced.
const storeCheckEvery = 2 * time.Second

// upgradeEvery is the least time between attempts of watchStore to upgrade.
const upgradeEvery = 10 * time.Second

// storeCheckTime bounds the wait for a check: the check of a disk that hangs may not end. It is
// longer than Store.Ready takes, whose error names the store path.
const storeCheckTime = 3 * time.Second

// ready returns the reason for which this gateway cannot serve requests; nil if it can.
func (a *App) ready() error {
	if a.upgrade.life.Err() != nil {
		return i18n.Errorf("stopping")
	}
	p := a.components.Load()
	if len(p.cfg.Groups) == 0 && len(p.cfg.TrackerServers) > 0 && !p.upstreams.Trackers.Members().Known() {
		return i18n.Errorf("no tracker has replied yet, and there is no store here")
	}
	_, err := a.checkStore()
	return err
}

// checkStore returns the reason for which store paths cannot be read; nil if they can. replaced is
// true if another folder or disk is at a store path since the start, and Landlock keeps this
// process from it.
func (a *App) checkStore() (replaced bool, err error) {
	p := a.components.Load()
	return a.storesWithin(fmt.Sprintf("%p", p.store), func() (any, error) {
		err := p.store.Ready()
		if errors.Is(err, local.ErrNoResponse) {
			return false, err // storeReplaced would wait for the disk too
		}
		if err := a.storeReplaced(p.cfg); err != nil {
			return true, err
		}
		return false, err
	})
}

// storesRespond returns an error that names a store path of a configuration that does not respond:
// use of the configuration would not return.
func (a *App) storesRespond(cfg *config.Config) error {
	if data := a.firstHanging(dataFolders(cfg)); data != "" {
		return i18n.Errorf("store path %q does not respond", filepath.Dir(data))
	}
	return nil
}

// firstHanging returns the first of some paths whose disk does not respond; empty = all respond.
func (a *App) firstHanging(paths []string) string {
	for _, path := range paths {
		_, err := a.storesWithin("access "+path, func() (any, error) {
			_, _ = os.Stat(path) // it may be missing, but not hang
			return false, nil
		})
		if err != nil {
			return path
		}
	}
	return ""
}

// check returns the problems that Check finds, or none if a disk does not respond within
// storeCheckTime.
func (a *App) check(cfg *config.Config) []config.Problem {
	problems, late := bounded(storeCheckTime, func() []config.Problem { return cfg.Check(time.Now()) })
	if late != nil {
		a.log.Warn("a disk does not respond: the paths of the configuration are not checked")
	}
	return problems
}

// storesWithin runs a check of store paths, and waits for at most storeCheckTime. One check of a
// name runs at a time, so that a disk that hangs holds one thread for each name.
func (a *App) storesWithin(name string, check func() (any, error)) (replaced bool, err error) {
	select {
	case result := <-a.storeCheck.DoChan(name, check):
		return result.Val.(bool), result.Err
	case <-time.After(storeCheckTime):
		return false, i18n.Errorf("a store path does not respond")
	}
}

// watchStore logs when the store paths become unreadable and readable, and warns once of each of
// the setupProblems. If another folder has replaced one, and Landlock keeps this process from it,
// watchStore upgrades to a new process, and tries again if that fails. If the first check already
// finds such a folder, it starts none: a new process would not do better. It does the same when the
// disks respond that hung at the start.
func (a *App) watchStore() {
	tick := time.NewTicker(storeCheckEvery)
	defer tick.Stop()
	last, needed, tried := "", false, time.Time{} // needed: an upgrade
	var warned []string
	for first := true; ; first = false {
		text := ""
		replaced, err := a.checkStore()
		if err != nil {
			text = err.Error()
		}
		if text != last {
			if last, needed = text, replaced && !first; text != "" {
				a.log.Error("store is not ready", "err", text)
			} else {
				a.log.Info("store is ready")
			}
		}
		warned = a.warnOfSetup(warned)
		if (needed || a.leftOutRespond()) && time.Since(tried) >= upgradeEvery && !a.upgrade.begun.Load() {
			tried = time.Now()
			a.Upgrade()
		}
		select {
		case <-a.stopping:
			return
		case <-tick.C:
			a.warnOfNames()
		}
	}
}
