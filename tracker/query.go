package tracker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/internal/fdfs"
)

// Limits of answers in bytes.
const (
	listLimit  = 1 << 20 // about 2000 storages of a group, 9000 groups, or a page of storage ids
	paramLimit = 64 << 10
)

// errEmpty: the tracker has just been set up. Another tracker, or the same one later, has a list.
var errEmpty = errors.New("the tracker's list is empty")

// Groups requests all groups, at least one.
func (c *Client) Groups(ctx context.Context) ([]fdfs.GroupInfo, error) {
	groups, err := request(ctx, c, fdfs.CmdListGroups, nil, listLimit, filled(fdfs.ParseGroups))
	if err != nil {
		return nil, fmt.Errorf("cannot list the groups: %w", err)
	}
	return groups, nil
}

// Storages requests the storages of a group, at least one, with any status.
func (c *Client) Storages(ctx context.Context, group string) ([]fdfs.StorageInfo, error) {
	body := fdfs.AppendGroup(nil, group)
	storages, err := request(ctx, c, fdfs.CmdListStorages, body, listLimit, filled(fdfs.ParseStorages))
	if err != nil {
		return nil, fmt.Errorf("cannot list the storages of %q: %w", group, err)
	}
	return storages, nil
}

// filled refuses an empty list.
func filled[T any](parse func([]byte) ([]T, error)) func([]byte) ([]T, error) {
	return func(answer []byte) ([]T, error) {
		list, err := parse(answer)
		if err == nil && len(list) == 0 {
			err = errEmpty
		}
		return list, err
	}
}

// StorageIDs requests the list of storage ids, at most fdfs.MaxStorageIDs, page by page. It is
// empty if the cluster has none.
func (c *Client) StorageIDs(ctx context.Context) (ids []fdfs.StorageID, err error) {
	for total := 1; len(ids) < total; {
		body := fdfs.AppendStorageIDs(nil, len(ids))
		page, err := request(ctx, c, fdfs.CmdStorageIDs, body, listLimit,
			func(answer []byte) ([]fdfs.StorageID, error) {
				all, page, err := parsePage(answer)
				if err == nil && (len(ids)+len(page) > all || len(page) == 0 && len(ids) < all) {
					err = fmt.Errorf("%w: a page of %d storage ids from %d on, of %d in all", fdfs.ErrProtocol,
						len(page), len(ids), all)
				}
				total = all
				return page, err
			})
		if err != nil {
			return nil, fmt.Errorf("cannot load the storage ids: %w", err)
		}
		ids = append(ids, page...)
	}
	return ids, nil
}

// parsePage reads a page of storage ids.
func parsePage(answer []byte) (total int, page []fdfs.StorageID, err error) {
	total, count, text, err := fdfs.ParseStorageIDs(answer)
	if err != nil {
		return 0, nil, err
	}
	for line := range strings.Lines(text) {
		if line = strings.Trim(line, " \t\r\n\x00"); line == "" {
			continue
		}
		id, err := fdfs.ParseStorageIDLine(line)
		if err != nil {
			return 0, nil, fmt.Errorf("%w: storage ids: %w", fdfs.ErrProtocol, err)
		}
		page = append(page, id)
	}
	if len(page) != count {
		return 0, nil, fmt.Errorf("%w: %d lines of storage ids where %d were promised", fdfs.ErrProtocol, len(page),
			count)
	}
	return total, page, nil
}

// Parameters requests the shared settings. Current returns those of the last load without a
// request.
func (c *Client) Parameters(ctx context.Context) (Parameters, error) {
	p, err := request(ctx, c, fdfs.CmdParameters, nil, paramLimit, func(answer []byte) (Parameters, error) {
		return parseParameters(string(answer))
	})
	if err != nil {
		return Parameters{}, fmt.Errorf("cannot load the parameters: %w", err)
	}
	return p, nil
}

// request asks one tracker after the other until parse accepts an answer. parse may be called
// several times.
func request[T any](ctx context.Context, c *Client, cmd fdfs.Command, body []byte, limit int64,
	parse func(answer []byte) (T, error)) (value T, err error) {
	order := c.order()
	if len(order) == 0 {
		return value, fmt.Errorf("%w: none is configured", ErrUnavailable)
	}
	var failures []error
	for i, s := range order {
		err := c.ask(ctx, s.server, len(order)-i, func(ctx context.Context, p *fdfs.Pool) error {
			answer, err := p.Call(ctx, cmd, 0, body, limit)
			if err != nil {
				return err
			}
			if value, err = parse(answer); err != nil {
				return fmt.Errorf("tracker %s: %w", p.Addr(), err)
			}
			return nil
		})
		if isDecisive(err) {
			return value, err
		}
		if ctx.Err() != nil {
			return value, context.Cause(ctx)
		}
		failures = append(failures, err)
	}
	return value, fmt.Errorf("%w: %w", ErrUnavailable, errors.Join(failures...))
}

// candidate is a tracker with the end of its back-off; zero = it is up.
type candidate struct {
	*server
	retryAt time.Time
}

// order returns the trackers in turn: those that are up, then the others by the end of their
// back-off.
func (c *Client) order() []candidate {
	n := uint32(len(c.trackers))
	order := make([]candidate, n)
	first := c.next.Add(1)
	for i := range n {
		s := c.trackers[(first+i)%n]
		order[i] = candidate{s, s.downUntil()}
	}
	slices.SortStableFunc(order, func(a, b candidate) int { return a.retryAt.Compare(b.retryAt) })
	return order
}

// ask tries the addresses of one tracker; left is the number of trackers that have not been asked
// yet, including this one.
func (c *Client) ask(ctx context.Context, s *server, left int, call func(context.Context, *fdfs.Pool) error) error {
	before, leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	n := len(s.pools)
	first := int(s.preferred.Load())
	for i := range n {
		at := (first + i) % n
		start := time.Now()
		err = c.attempt(ctx, s.pools[at], left-1+n-i, call)
		if err == nil || isStatus(err) || errors.Is(err, errEmpty) {
			s.preferred.Store(int32(at))
			if s.answered(time.Since(start)) {
				c.o.Log.Info("tracker is back", "tracker", s.name())
				signal(c.health)
			}
			return err
		}
		if ctx.Err() != nil || errors.Is(err, fdfs.ErrClosed) {
			return err // this says nothing about the tracker
		}
	}
	if s.failed(before, err, c.retry) {
		c.o.Log.Warn("tracker does not answer; it is tried again from time to time", "tracker", s.name(), "error", err)
		signal(c.health)
	}
	return err
}

// attempt gives one address its share of the time; left is the number of addresses that have not
// been asked.
func (c *Client) attempt(ctx context.Context, p *fdfs.Pool, left int,
	call func(context.Context, *fdfs.Pool) error) error {
	limit := c.o.Timeout
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/time.Duration(max(left, 1)))
	}
	slow := fmt.Errorf("tracker %s gave no answer within %v", p.Addr(), limit.Round(time.Millisecond))
	ctx, cancel := context.WithTimeoutCause(ctx, limit, slow)
	defer cancel()
	return call(ctx, p)
}
