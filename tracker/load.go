package tracker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/panics"
)

// maxServers bounds the storages of all groups together.
const maxServers = fdfs.MaxStorageIDs

// run does the background work: loads that are due or requested, probes of trackers that are down,
// and closing idle connections.
func (c *Client) run(ctx context.Context) {
	defer close(c.done)
	l := loader{client: c, lists: lists{ids: c.o.StorageIDs}}
	if len(c.trackers) == 0 {
		close(c.loaded)
		return
	}
	l.load(ctx)
	close(c.loaded)
	timer := time.NewTimer(time.Until(c.nextWake(l.due)))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.loadRequest:
			l.loadSoon()
		case <-c.health:
			if l.fails > 0 && c.anyUp() {
				l.due = time.Now()
			}
		case <-timer.C:
		}
		c.maintain(ctx)
		if !time.Now().Before(l.due) {
			l.load(ctx)
		}
		timer.Reset(time.Until(c.nextWake(l.due)))
	}
}

// nextWake returns when run has work again.
func (c *Client) nextWake(due time.Time) time.Time {
	wake := time.Now().Add(maintenanceInterval)
	if due.Before(wake) {
		wake = due
	}
	for _, s := range c.trackers {
		if retryAt := s.downUntil(); !retryAt.IsZero() && retryAt.Before(wake) {
			wake = retryAt
		}
	}
	return wake
}

// anyUp reports whether a tracker is up.
func (c *Client) anyUp() bool {
	return slices.ContainsFunc(c.trackers, func(s *server) bool { return s.downUntil().IsZero() })
}

// maintain closes idle connections and probes the trackers whose back-off is over. ask records the
// results.
func (c *Client) maintain(ctx context.Context) {
	now := time.Now()
	for _, s := range c.trackers {
		s.sweep(now)
		if retryAt := s.downUntil(); retryAt.IsZero() || now.Before(retryAt) {
			continue
		}
		_ = c.ask(ctx, s, 1, func(ctx context.Context, p *fdfs.Pool) (err error) {
			defer panics.ToError(&err, "trying a tracker")
			_, err = p.Call(ctx, fdfs.CmdActiveTest, 0, nil, 0)
			return err
		})
	}
}

// loader loads lists and settings. Only the goroutine of run uses it.
type loader struct {
	client *Client
	lists  lists
	fails  int       // failed loads in a row
	last   time.Time // end of the last load
	due    time.Time // time of the next load
}

// loadSoon moves the next load to the earliest allowed time.
func (l *loader) loadSoon() {
	if early := l.last.Add(minLoadInterval); early.Before(l.due) {
		l.due = early
	}
}

// load loads everything. Parts that fail keep their old values; a failed load is retried soon.
func (l *loader) load(ctx context.Context) {
	c := l.client
	c.loadBegins()
	bounded, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	err := errors.Join(l.loadParameters(bounded), l.loadGroups(bounded))
	c.members.set(l.lists)
	c.loadEnds(err != nil)
	l.last = time.Now()
	if err == nil {
		if l.fails > 0 {
			c.o.Log.Info("lists and settings are loaded from the trackers again")
		}
		l.fails, l.due = 0, l.last.Add(within10Percent(c.o.Refresh))
		return
	}
	if ctx.Err() == nil && l.fails == 0 {
		c.o.Log.Warn("cannot load lists and settings from the trackers: the old ones stay in force, and it is retried",
			"error", err)
	}
	l.fails++
	l.due = l.last.Add(min(c.retry.Delay(l.fails), c.o.Refresh))
}

// loadParameters loads the settings, and the storage ids if the settings use them.
func (l *loader) loadParameters(ctx context.Context) (err error) {
	defer panics.ToError(&err, "loading from a tracker")
	c := l.client
	if !c.o.UseParameters {
		return nil
	}
	p, err := c.Parameters(ctx)
	if err != nil {
		return err
	}
	if old := c.params.Swap(&p); old.SyncMaxDelay != p.SyncMaxDelay || old.UseStorageID != p.UseStorageID {
		c.o.Log.Info("settings of the trackers are in force", "storage_sync_file_max_delay", p.SyncMaxDelay,
			"use_storage_id", p.UseStorageID)
	}
	if !p.UseStorageID {
		return nil
	}
	ids, err := c.StorageIDs(ctx)
	if err != nil && !errors.Is(err, fdfs.ErrNotSupported) {
		return err
	}
	if len(ids) > 0 {
		l.lists.ids = ids
	}
	return nil
}

// loadGroups loads the storages of every group.
func (l *loader) loadGroups(ctx context.Context) (err error) {
	defer panics.ToError(&err, "loading from a tracker")
	groups, err := l.client.Groups(ctx)
	if err != nil {
		return err
	}
	var failures []error
	fresh, total := make([]group, 0, len(groups)), 0
	for _, info := range groups {
		storages, err := l.client.Storages(ctx, info.Name)
		if err != nil {
			failures = append(failures, err)
			storages = l.lists.storagesOf(info.Name) // keep the old ones
		}
		if total += len(storages); total > maxServers {
			return errors.Join(append(failures, fmt.Errorf("the groups have more than %d storages", maxServers))...)
		}
		fresh = append(fresh, group{info, storages})
		if ctx.Err() != nil {
			return errors.Join(failures...)
		}
	}
	l.lists.groups, l.lists.listed = fresh, l.lists.listed || len(failures) < len(groups)
	return errors.Join(failures...)
}

// within10Percent returns d plus or minus up to a tenth at random, so that gateways do not load at
// the same time.
func within10Percent(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)/5*float64(d))
}
