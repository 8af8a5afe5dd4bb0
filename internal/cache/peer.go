package cache

import (
	"context"
	"fmt"
)

// PeerOpen gives another gateway a segment, from an offset in it on, that is here or is on its way: what comes of a flight can be read
// as it arrives. It never starts a fetch, and never gives what this gateway itself reads from another one. want is the version; nil
// when it is not known. It is ErrNotHere when there is nothing to give; the stream ends in that error when the segment was evicted
// meanwhile.
func (c *Cache) PeerOpen(ctx context.Context, key SegmentKey, want *Version, offset int64) (Version, *Stream, error) {
	c.mu.Lock()
	f := c.flights[key]
	if f != nil && !c.enter(f, nil, 0) {
		f = nil
	}
	c.mu.Unlock()
	v, from, err := c.forPeer(ctx, f, key, want)
	if f != nil && from != f {
		c.quit(f)
	}
	if err != nil {
		return Version{}, nil, fmt.Errorf("cannot give %q: %w", key.String(), err)
	}
	length := v.SegmentLength(key.Index)
	if offset < 0 || offset > length {
		if from != nil {
			c.quit(from)
		}
		return Version{}, nil, fmt.Errorf("cannot give %q from %d on: it has %d bytes", key.String(), offset, length)
	}
	s := c.Open(ctx, Entry{File: key.File, Version: v}, nil, key.Index*SegmentSize+offset, length-offset)
	s.f = from
	c.n.peerServed.Add(1)
	return v, s, nil
}

// forPeer finds the version that can be given, and the flight if it comes from that.
func (c *Cache) forPeer(ctx context.Context, f *flight, key SegmentKey, want *Version) (Version, *flight, error) {
	if f != nil {
		r, err := f.awaitRole(ctx)
		if err != nil {
			return Version{}, nil, err
		}
		if r == giving {
			v, err := f.await(ctx)
			if err != nil || want != nil && v != *want {
				return Version{}, nil, ErrNotHere
			}
			return v, f, nil
		}
	}
	v, held := c.tiers.Holds(key)
	if m, known := c.records.peek(key.File); want == nil && (!known || m.Version != v) || want != nil && v != *want || !held {
		return Version{}, nil, ErrNotHere
	}
	return v, nil, nil
}
