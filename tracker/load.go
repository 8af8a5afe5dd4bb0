package tracker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/process/panics"
)

// run does the background work: loads that are due or requested, probes of trackers that are down,
// and closing idle connections.
func (c *Client) run(ctx context.Context) {
	defer close(c.done)
	defer c.probes.Wait()
	if len(c.trackers) == 0 {
		close(c.loaded)
		return
	}
	c.load(ctx)
	close(c.loaded)
	ticker := time.NewTicker(min(c.retry.First, time.Second))
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			c.mu.Lock()
			if early := c.loadedAt.Add(minLoadInterval); early.Before(c.due) {
				c.due = early
			}
			c.mu.Unlock()
		case <-ticker.C:
			c.maintain(ctx)
		}
		c.mu.Lock()
		due := c.due
		c.mu.Unlock()
		if !time.Now().Before(due) {
			c.load(ctx)
		}
	}
}

// maintain closes idle connections and probes the trackers whose back-off is over. call records the
// results. Loads do not wait for probes, since a probe of a host that is off takes long.
func (c *Client) maintain(ctx context.Context) {
	now := time.Now()
	for _, s := range c.trackers {
		for _, p := range s.pools {
			p.Sweep(now)
		}
		if !s.probeDue(now) {
			continue
		}
		c.probes.Go(func() {
			defer panics.Contain("trying a tracker")
			_ = c.call(ctx, s, fdfs.CmdActiveTest, nil, 0, func([]byte) error { return nil })
		})
	}
}

// load loads everything. Parts that fail keep their old values; a failed load is retried soon.
func (c *Client) load(ctx context.Context) {
	c.mu.Lock()
	c.loading = true
	c.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	err := errors.Join(c.loadParameters(bounded), c.loadGroups(bounded))
	c.members.set(c.lists)

	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil && c.fails > 0:
		c.o.Log.Info("lists and settings are loaded from the trackers again")
	case err != nil && c.fails == 0 && ctx.Err() == nil:
		c.o.Log.Warn("cannot load lists and settings from the trackers: the old ones stay in force, and it is retried",
			"error", err)
	}
	c.loading, c.loadedAt = false, time.Now()
	if err == nil {
		c.fails, c.due = 0, c.loadedAt.Add(within10Percent(c.o.Refresh))
	} else {
		c.fails++
		c.due = c.loadedAt.Add(min(c.retry.Delay(c.fails), c.o.Refresh))
	}
	close(c.loadEnd)
	c.loadEnd = make(chan struct{})
}

// loadParameters loads the settings, and the storage ids if the settings use them.
func (c *Client) loadParameters(ctx context.Context) (err error) {
	defer panics.ToError(&err, "loading from a tracker")
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
		c.lists.ids = ids
	}
	return nil
}

// within10Percent returns d plus or minus up to a tenth at random, so that gateways do not load at
// the same time.
func within10Percent(d time.Duration) time.Duration {
	return d + time.Duration((rand.Float64()-0.5)/5*float64(d))
}
