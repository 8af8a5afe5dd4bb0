package cache

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// PeerOpen handles a request of another gateway: it returns the metadata of a file, and a segment
// from an offset on, which can be read while it arrives. The body is nil for MetaOnly.
//
// A missing entry is fetched from the source of Options.Source, unless PeerRequest.Copy is set.
// Other gateways are never asked for it, and bytes that come from another gateway are not passed
// on, so requests cannot go in a circle. The error is ErrNotHere if this gateway neither has the
// entry nor fetches it, ErrChanged if it knows another version, ErrNotFound for the time of
// Meta.TTL, or one of the source. The stream may end in ErrNotHere or ErrNotStored too.
func (c *Cache) PeerOpen(ctx context.Context, r PeerRequest) (m Meta, body io.ReadCloser, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("cannot give %q: %w", r.Key.String(), err)
		}
	}()
	var e Entry
	var src Source // nil: nothing is fetched
	if r.Copy {
		e, err = c.storedForPeer(r)
	} else {
		e, src, err = c.getForPeer(ctx, r)
	}
	if errors.Is(err, ErrNotFound) {
		return c.metas.goneMeta(r.Key.File, time.Now()), nil, err
	}
	if err != nil || r.Key.Index == MetaOnly {
		return e.Meta, nil, err
	}
	length := e.Version.SegmentLength(r.Key.Index)
	if r.Offset < 0 || r.Offset > length {
		return Meta{}, nil, fmt.Errorf("it has %d bytes, not %d", length, r.Offset)
	}
	s := c.Open(ctx, e, src, start(r.Key)+r.Offset, length-r.Offset)
	s.forPeer = true
	if err := s.requireLeader(r.Key); err != nil {
		return Meta{}, nil, errors.Join(err, s.Close())
	}
	c.n.peerServed.Add(1)
	return e.Meta, s, nil
}

// storedForPeer returns the version of a stored segment, and the metadata of that version, which
// may have expired.
func (c *Cache) storedForPeer(r PeerRequest) (Entry, error) {
	v, held := c.holds(r.Key)
	if !held || r.Want != nil && *r.Want != v {
		return Entry{}, ErrNotHere
	}
	_, m, _ := c.metas.look(r.Key.File, time.Now(), 0)
	if m.Version != v {
		m = Meta{Version: v}
	}
	return Entry{File: r.Key.File, Meta: m}, nil
}

// getForPeer is Get for another gateway; it also returns the source of the file. For a request with
// a version no metadata is fetched.
func (c *Cache) getForPeer(ctx context.Context, r PeerRequest) (e Entry, src Source, err error) {
	if r.Want != nil {
		_, m, freshness := c.metas.look(r.Key.File, time.Now(), r.MaxAge)
		switch {
		case freshness == gone:
			return Entry{}, nil, ErrNotFound
		case freshness == fresh && !m.Version.Resembles(*r.Want):
			return Entry{}, nil, ErrChanged
		case m.Version != *r.Want:
			m = Meta{Version: *r.Want}
		}
		src, err = c.o.Source(r.Key.File, r.RequestedAs)
		return Entry{File: r.Key.File, Meta: m}, src, err
	}
	if src, err = c.o.Source(r.Key.File, r.RequestedAs); err != nil {
		return Entry{}, nil, err
	}
	o := GetOptions{Hint: NoHint, MaxAge: r.MaxAge, forPeer: true}
	if r.Key.Index != MetaOnly {
		o.Hint = start(r.Key)
	}
	e, err = c.Get(ctx, r.Key.File, src, o)
	return e, src, err
}

// requireLeader returns nil if the entry is stored, or this gateway fetches it itself.
func (s *Stream) requireLeader(key SegmentKey) error {
	if s.left == 0 || s.c.isStored(key, s.v) {
		return nil
	}
	if s.src == nil {
		return ErrNotHere
	}
	s.index, s.seen = s.offset/SegmentSize, s.c.corrupted.count.Load()
	return s.joinFill()
}
