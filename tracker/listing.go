package tracker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/process/panics"
)

// maxServers bounds the storages in the list of one tracker.
const maxServers = fdfs.MaxStorageIDs

// keepRefreshes is the time in which groups and storages stay in a list after the tracker has
// listed them for the last time, as a multiple of Options.Refresh.
const keepRefreshes = 2

// A tracker that was just started lists only the storages that have joined it already. So a list is
// not believed at once if it lacks a group or a storage: the members are the union of the lists of
// all trackers, each of which forgets late. The list of a tracker that is down stays as it is.

// listing is the list of one tracker.
type listing struct {
	groups   map[string]*listedGroup // nil: the tracker has not replied yet
	names    []string                // of the groups in its last reply, sorted
	failedAt time.Time               // time of the last failure of the tracker before that
}

// listedGroup is a group in the list of a tracker.
type listedGroup struct {
	port     int
	at       time.Time // of the last list with this group
	loaded   time.Time // time of storages; zero: not loaded yet
	storages []listedStorage
}

// listedStorage is a storage in the list of a tracker.
type listedStorage struct {
	fdfs.StorageInfo
	at time.Time // of the last list with this storage
}

// storageKey identifies a storage while its other properties change.
type storageKey struct {
	id   uint32
	addr netip.Addr // if there is no id
}

func keyOf(s fdfs.StorageInfo) storageKey {
	if s.ID != 0 {
		return storageKey{id: s.ID}
	}
	return storageKey{addr: s.Addr}
}

// loadGroups loads the groups and their storages from all trackers that are up, at the same time.
// If none of them has sent a list, it asks those that are down. It fails if no list is complete.
func (c *Client) loadGroups(ctx context.Context) error {
	now, first := time.Now(), c.lists.groups == nil
	var up, down []int
	for i, s := range c.trackers {
		if s.downUntil().IsZero() {
			up = append(up, i)
		} else {
			down = append(down, i)
		}
	}
	changed, err := c.loadFrom(ctx, up, now)
	if err != nil && len(down) > 0 {
		var downErr error
		changed, downErr = c.loadFrom(ctx, down, now)
		if err = errors.Join(err, downErr); downErr == nil {
			err = nil
		}
	}
	c.lists.groups, c.lists.listed = union(c.listings)
	if first {
		changed = slices.ContainsFunc(c.listings, func(l listing) bool {
			return !slices.Equal(l.names, c.listings[0].names)
		})
	}
	if changed {
		c.lists.changed = now
	}
	c.lists.partial = !c.lists.changed.IsZero() && now.Sub(c.lists.changed) < c.keepTime()
	return err
}

func (c *Client) keepTime() time.Duration { return keepRefreshes * c.o.Refresh }

// loadFrom loads the lists of some trackers. The error is nil if one of the lists is complete.
// changed: a tracker has replied for the first time after a failure, or with other groups.
func (c *Client) loadFrom(ctx context.Context, trackers []int, now time.Time) (changed bool, err error) {
	errs, changes := make([]error, len(trackers)), make([]bool, len(trackers))
	var all sync.WaitGroup
	for n, i := range trackers {
		all.Go(func() { changes[n], errs[n] = c.loadListing(ctx, c.trackers[i], &c.listings[i], now) })
	}
	all.Wait()
	err = errors.Join(errs...)
	if len(trackers) == 0 {
		err = ErrUnavailable
	} else if slices.Contains(errs, nil) {
		err = nil
	}
	return slices.Contains(changes, true), err
}

// loadListing loads the list of one tracker. Groups whose storages cannot be loaded keep them.
func (c *Client) loadListing(ctx context.Context, s *server, l *listing, now time.Time) (changed bool, err error) {
	defer panics.ToError(&err, "loading from a tracker")
	failedAt := s.failedAt()
	groups, err := c.groupsOf(ctx, s)
	if err != nil {
		return false, err
	}
	next := listing{groups: map[string]*listedGroup{}, failedAt: failedAt}
	var errs []error
	total := 0
	for _, info := range groups {
		g := &listedGroup{}
		if known := l.groups[info.Name]; known != nil {
			*g = *known
		}
		g.port, g.at = info.Port, now
		switch storages, err := c.storagesOf(ctx, s, info.Name); {
		case err == nil:
			g.storages, g.loaded = withKept(storages, g.storages, now, c.keepTime()), now
		case !errors.Is(err, ErrEmpty):
			errs = append(errs, err)
		}
		if total += len(g.storages); total > maxServers {
			return false, errors.Join(append(errs, fmt.Errorf("the groups have more than %d storages", maxServers))...)
		}
		next.groups[info.Name] = g
		if ctx.Err() != nil {
			return false, errors.Join(errs...)
		}
	}
	next.names = slices.Sorted(maps.Keys(next.groups))
	for name, g := range l.groups {
		if next.groups[name] == nil && now.Sub(g.at) < c.keepTime() {
			next.groups[name] = g
		}
	}
	changed = l.failedAt != failedAt || !slices.Equal(l.names, next.names)
	*l = next
	return changed, errors.Join(errs...)
}

// withKept returns the storages of a new list, and behind them those of the list before that were
// listed a short time ago.
func withKept(storages []fdfs.StorageInfo, before []listedStorage, now time.Time, keep time.Duration) []listedStorage {
	list, listed := make([]listedStorage, 0, len(storages)), make(map[storageKey]bool, len(storages))
	for _, s := range storages {
		list, listed[keyOf(s)] = append(list, listedStorage{s, now}), true
	}
	for _, s := range before {
		if !listed[keyOf(s.StorageInfo)] && now.Sub(s.at) < keep {
			list = append(list, s)
		}
	}
	return list
}

// union merges the lists of all trackers. Of several entries for one storage the latest one counts,
// and an active one if they are of the same time. listed: the storages of a group were loaded.
func union(listings []listing) (groups []group, listed bool) {
	merged := map[string]map[storageKey]listedStorage{}
	ports, now := map[string]int{}, map[string]bool{}
	for _, l := range listings {
		for _, name := range l.names {
			now[name] = true
		}
		for name, g := range l.groups {
			if merged[name] == nil {
				merged[name] = map[storageKey]listedStorage{}
			}
			ports[name] = cmp.Or(g.port, ports[name])
			listed = listed || !g.loaded.IsZero()
			for _, s := range g.storages {
				if s.Status == fdfs.StatusActive && s.at.Before(g.loaded) {
					s.Status = fdfs.StatusOnline // the tracker does not list it any more
				}
				key := keyOf(s.StorageInfo)
				other, known := merged[name][key]
				if !known || s.at.After(other.at) || s.at.Equal(other.at) && s.Status == fdfs.StatusActive {
					merged[name][key] = s
				}
			}
		}
	}
	groups = make([]group, 0, len(merged))
	for _, name := range slices.Sorted(maps.Keys(merged)) {
		g := group{info: fdfs.GroupInfo{Name: name, Port: ports[name]}, remembered: !now[name]}
		for _, s := range merged[name] {
			g.storages = append(g.storages, s.StorageInfo)
		}
		slices.SortFunc(g.storages, func(a, b fdfs.StorageInfo) int {
			return cmp.Or(cmp.Compare(a.ID, b.ID), a.Addr.Compare(b.Addr))
		})
		groups = append(groups, g)
	}
	return groups, listed
}
