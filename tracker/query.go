package tracker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// Limits of replies in bytes.
const (
	listLimit  = 1 << 20 // about 2000 storages of a group, 9000 groups, or a page of storage ids
	paramLimit = 64 << 10
)

// ErrEmpty is the error for an empty list. A tracker that has just been set up has no groups, or
// groups without storages: another tracker, or the same one later, has a list. A group whose
// storages were all deleted stays in the list of groups until it is deleted itself.
var ErrEmpty = errors.New("the tracker's list is empty")

// Groups requests all groups that a tracker lists, at least one.
func (c *Client) Groups(ctx context.Context) (groups []fdfs.GroupInfo, err error) {
	err = c.each(ctx, func(s *server) (err error) {
		groups, err = c.groupsOf(ctx, s)
		return err
	})
	return groups, err
}

// Storages requests the storages of a group that a tracker lists, at least one, with any status.
func (c *Client) Storages(ctx context.Context, group string) (storages []fdfs.StorageInfo, err error) {
	err = c.each(ctx, func(s *server) (err error) {
		storages, err = c.storagesOf(ctx, s, group)
		return err
	})
	return storages, err
}

// groupsOf requests the groups from one tracker.
func (c *Client) groupsOf(ctx context.Context, s *server) ([]fdfs.GroupInfo, error) {
	groups, err := listOf(ctx, c, s, fdfs.CmdListGroups, nil, fdfs.ParseGroups)
	if err != nil {
		return nil, fmt.Errorf("cannot list the groups: %w", err)
	}
	return groups, nil
}

// storagesOf requests the storages of a group from one tracker.
func (c *Client) storagesOf(ctx context.Context, s *server, group string) ([]fdfs.StorageInfo, error) {
	storages, err := listOf(ctx, c, s, fdfs.CmdListStorages, fdfs.AppendGroup(nil, group), fdfs.ParseStorages)
	if err != nil {
		return nil, fmt.Errorf("cannot list the storages of %q: %w", group, err)
	}
	return storages, nil
}

// listOf requests a list from one tracker. The error is ErrEmpty for an empty one.
func listOf[T any](ctx context.Context, c *Client, s *server, cmd fdfs.Command, body []byte,
	parse func([]byte) ([]T, error)) (list []T, err error) {
	err = c.call(ctx, s, cmd, body, listLimit, func(reply []byte) (err error) {
		if list, err = parse(reply); err == nil && len(list) == 0 {
			err = ErrEmpty
		}
		return err
	})
	return list, err
}

// StorageIDs requests the list of storage ids, at most fdfs.MaxStorageIDs, page by page. All pages
// come from one tracker, since the order of the lines may differ on another one. The list is empty
// if the cluster has none.
func (c *Client) StorageIDs(ctx context.Context) (ids []fdfs.StorageID, err error) {
	err = c.each(ctx, func(s *server) error {
		ids = nil
		for total := 1; len(ids) < total; {
			body := fdfs.AppendStorageIDs(nil, len(ids))
			err := c.call(ctx, s, fdfs.CmdStorageIDs, body, listLimit, func(reply []byte) error {
				all, page, err := fdfs.ParseStorageIDs(reply)
				if err == nil && (len(ids)+len(page) > all || len(page) == 0 && len(ids) < all) {
					err = fmt.Errorf("%w: a page of %d storage ids from %d on, of %d in all", fdfs.ErrProtocol,
						len(page), len(ids), all)
				}
				if err == nil {
					total, ids = all, append(ids, page...)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot load the storage ids: %w", err)
	}
	return ids, nil
}

// Parameters requests the shared settings. Current returns those of the last load without a
// request.
func (c *Client) Parameters(ctx context.Context) (p Parameters, err error) {
	err = c.each(ctx, func(s *server) error {
		return c.call(ctx, s, fdfs.CmdParameters, nil, paramLimit, func(reply []byte) (err error) {
			p, err = parseParameters(string(reply))
			return err
		})
	})
	if err != nil {
		return Parameters{}, fmt.Errorf("cannot load the parameters: %w", err)
	}
	return p, nil
}

// each calls ask for one tracker after the other until ask succeeds.
func (c *Client) each(ctx context.Context, ask func(s *server) error) error {
	if len(c.trackers) == 0 {
		return fmt.Errorf("%w: none is configured", ErrUnavailable)
	}
	var failures []error
	for _, s := range c.order() {
		err := ask(s)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		failures = append(failures, err)
	}
	err := errors.Join(failures...)
	if _, rejected := errors.AsType[fdfs.StatusError](err); rejected {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// order returns the trackers in turn: those that are up, then the others by the end of their
// back-off.
func (c *Client) order() []*server {
	first := int(c.next.Add(1) % uint32(len(c.trackers)))
	order := slices.Concat(c.trackers[first:], c.trackers[:first])
	slices.SortStableFunc(order, func(a, b *server) int { return a.downUntil().Compare(b.downUntil()) })
	return order
}

// call sends a request to the addresses of one tracker until one has replied, beginning with the
// one that replied last. parse may be called for each of them.
func (c *Client) call(ctx context.Context, s *server, cmd fdfs.Command, body []byte, limit int64,
	parse func(reply []byte) error) (err error) {
	for _, i := range s.addresses() {
		start, pool := time.Now(), s.pools[i]
		slow := fmt.Errorf("tracker %s did not reply within %v", pool.Addr(), c.o.Timeout)
		bounded, cancel := context.WithTimeoutCause(ctx, c.o.Timeout, slow)
		var reply []byte
		reply, err = pool.Call(bounded, cmd, 0, body, limit)
		cancel()
		if err == nil {
			if err = parse(reply); err != nil {
				err = fmt.Errorf("tracker %s: %w", pool.Addr(), err)
			}
		}
		if _, rejected := errors.AsType[fdfs.StatusError](err); err == nil || rejected || errors.Is(err, ErrEmpty) {
			if s.replied(i, time.Since(start)) {
				c.o.Log.Info("tracker is back", "tracker", s.name())
				c.LoadSoon()
			}
			return err
		}
		if ctx.Err() != nil || errors.Is(err, fdfs.ErrClosed) {
			return err // not a failure of the tracker
		}
	}
	if s.failed(err, c.retry) {
		c.o.Log.Warn("tracker does not reply; it is tried again from time to time", "tracker", s.name(), "error", err)
	}
	return err
}
