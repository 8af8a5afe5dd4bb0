package cache

import (
	"context"
	"errors"
	"time"

	"fastdfs-gateway/internal/cache/tier"
)

// knownVariant returns the version of a variant that this gateway has; zero = none.
func (c *Cache) knownVariant(file string) (v Version) {
	if !tier.IsVariant(file) {
		return v
	}
	if m, _, ok := c.metas.peek(file); ok && !m.Gone { // it may have expired
		return m.Version
	}
	v, _ = c.holdsSegment(tier.KeyAt(file, 0))
	return v
}

// stat requests the metadata from the source. The error is ErrChanged if its version is not want,
// unless want is zero.
func (c *Cache) stat(f *fill, want Version) (Meta, error) {
	ctx, cancel := context.WithTimeout(f.step(), statTimeout)
	defer cancel()
	v, err := f.src.Stat(ctx, want)
	if err == nil && want != (Version{}) && v != want {
		err = ErrChanged
	}
	if errors.Is(err, ErrNotFound) {
		c.storeGone(f)
	}
	return Meta{Version: v, Checked: time.Now()}, err
}

// confirm asks the source whether expired metadata of a peer is still valid. If the source fails,
// the metadata is used within stale_if_error.
func (c *Cache) confirm(f *fill, m Meta) error {
	confirmed, err := c.stat(f, m.Version)
	switch {
	case err == nil:
		return c.setMeta(f, confirmed)
	case sourceFails(f, err):
		return c.useExpired(f, m, err)
	}
	return err
}

// useExpired uses expired metadata within stale_if_error; else it returns the error of the source.
func (c *Cache) useExpired(f *fill, m Meta, err error) error {
	if !c.metas.isUsable(m, time.Now()) {
		return err
	}
	err = c.setMeta(f, m)
	c.metas.failed(f.key.File, time.Now())
	return err
}

// sourceFails reports whether an error is one of the source, and none of the file.
func sourceFails(f *fill, err error) bool {
	return f.ctx.Err() == nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrChanged)
}

// loadMetaElsewhere finds metadata while the source fails. That of this gateway may be lost with an
// earlier process: then the next gateway may know it, or the disk has the version, which is used
// within stale_if_error after the start. The error is that of the source.
func (c *Cache) loadMetaElsewhere(f *fill, next string, err error) error {
	if next != "" && !f.forPeer && c.loadFromPeer(f, next, false) == nil {
		return nil
	}
	_, _, known := c.metas.peek(f.key.File) // the request has its own rules for it
	v, held := c.holdsSegment(tier.KeyAt(f.key.File, 0))
	if known || !held {
		return err
	}
	m := Meta{Version: v}
	m.Checked = c.began.Add(-c.metas.ttl(m))
	return c.useExpired(f, m, err)
}
