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

// maxServers bounds what is kept of all groups together.
const maxServers = fdfs.MaxStorageIDs

// run is the background work: loads when they are due or asked for, tries dead trackers, and closes idle connections.
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
		case <-c.wanted:
			l.asked()
		case <-c.health:
			if l.fails > 0 && c.anyUp() {
				l.due = time.Now()
			}
		case <-timer.C:
		}
		c.revive(ctx)
		if !time.Now().Before(l.due) {
			l.load(ctx)
		}
		timer.Reset(time.Until(c.nextWake(l.due)))
	}
}

// nextWake is when there is something to do again.
func (c *Client) nextWake(due time.Time) time.Time {
	wake := time.Now().Add(housekeeping)
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

// anyUp tells whether a tracker is up.
func (c *Client) anyUp() bool {
	return slices.ContainsFunc(c.trackers, func(s *server) bool { return s.downUntil().IsZero() })
}

// revive closes idle connections and tries the dead trackers that are due. What comes of it is noted where they are asked.
func (c *Client) revive(ctx context.Context) {
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
	fails  int       // loads that failed, since the last good one
	last   time.Time // of the last load
	due    time.Time // of the next
}

// asked makes the next load come as soon as it may.
func (l *loader) asked() {
	if early := l.last.Add(soonest); early.Before(l.due) {
		l.due = early
	}
}

// load asks for everything. What cannot be had stays as it was; a load that failed is tried again soon.
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
		c.o.Log.Warn("cannot load lists and settings from the trackers; what is known stays in force, and it is tried again", "error", err)
	}
	l.fails++
	l.due = l.last.Add(min(c.retry.Delay(l.fails), c.o.Refresh))
}

// loadParameters loads the settings, and the storage ids where these want them.
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
		c.o.Log.Info("settings of the trackers are in force", "storage_sync_file_max_delay", p.SyncMaxDelay, "use_storage_id", p.UseStorageID)
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

// loadGroups loads the members of every group.
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
			storages = l.lists.storagesOf(info.Name) // as they were
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

// within10Percent is d, at random up to a tenth more or less, so that gateways do not load together.
func within10Percent(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)/5*float64(d))
}
