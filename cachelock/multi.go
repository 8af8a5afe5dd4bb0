package cachelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxKeys bounds the locks of one AcquireAll.
const maxKeys = 1024

// AcquireAll acquires several locks, all or none. One script acquires the keys of one shard; all
// clients acquire several shards one after the other, in the same order. If a lock is held, those
// already acquired are released, so no waiter holds a part. With Options.Shards 1 every request is
// one script. The HeldError has the key of the held lock.
func (c *Client) AcquireAll(ctx context.Context, keys []string, o LockOptions) (*Lock, error) {
	keys = slices.Compact(slices.Sorted(slices.Values(keys)))
	switch {
	case len(keys) == 0 || len(keys) > maxKeys:
		return nil, invalid("1 to %d locks can be taken together, not %d", maxKeys, len(keys))
	case o.Owner != "" || o.Fair:
		return nil, invalid("locks taken together can be neither reentrant nor fair")
	}
	if err := checkKeys(keys); err != nil {
		return nil, err
	}
	groups := c.byShard(keys)
	if err := o.check(c); err != nil {
		return nil, err
	}
	return c.acquireOrWait(ctx, keys[0], o, func(ctx context.Context, waiter string) (*Lock, error) {
		w := newRequest(keys, waiter, &o)
		start := time.Now()
		h, err := c.acquireGroups(ctx, groups, w)
		if err != nil {
			return nil, err
		}
		return c.granted(ctx, keys, w.token, h, h.fences[keys[0]], start, o)
	})
}

// byShard sorts keys into groups of one shard each.
func (c *Client) byShard(keys []string) [][]string {
	slices.SortStableFunc(keys, func(a, b string) int { return strings.Compare(c.shardOf(a), c.shardOf(b)) })
	var groups [][]string
	for _, key := range keys {
		if n := len(groups); n > 0 && c.shardOf(groups[n-1][0]) == c.shardOf(key) {
			groups[n-1] = append(groups[n-1], key)
		} else {
			groups = append(groups, []string{key})
		}
	}
	return groups
}

// acquireGroups acquires one group after the other.
func (c *Client) acquireGroups(ctx context.Context, groups [][]string, w lockRequest) (*shardHolds, error) {
	all := &shardHolds{fences: map[string]int64{}}
	for _, keys := range groups {
		w.keys = keys
		h, fence, err := c.store.acquire(ctx, w)
		if err != nil {
			if len(all.holdings) > 0 && all.releaseKeys(ctx) != nil {
				c.releaseInBackground(all, w.ttl)
			}
			return nil, err
		}
		all.holdings = append(all.holdings, h)
		for _, key := range keys {
			all.fences[key] = fence
		}
	}
	return all, nil
}

// shardHolds implements holding for locks of several shards.
type shardHolds struct {
	holdings []holding
	fences   map[string]int64
}

var _ holding = (*shardHolds)(nil)

func (s *shardHolds) extend(ctx context.Context, ttl time.Duration) error {
	for _, h := range s.holdings {
		if err := h.extend(ctx, ttl); err != nil {
			return err
		}
	}
	return nil
}

func (s *shardHolds) releaseKeys(ctx context.Context) error {
	var errs []error
	for _, h := range s.holdings {
		errs = append(errs, h.releaseKeys(ctx))
	}
	return errors.Join(errs...)
}

// FenceOf returns the fence of one of several locks: each shard has its own counter.
func (l *Lock) FenceOf(key string) (int64, error) {
	if !slices.Contains(l.keys, key) {
		return 0, fmt.Errorf("%w: %q is none of the locks", ErrInvalid, key)
	}
	if s, ok := l.holding.(*shardHolds); ok {
		return s.fences[key], nil
	}
	return l.fence, nil
}
