package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"

	"github.com/redis/go-redis/v9"
)

const (
	maxValue = 4 << 10        // bytes of an entry's value
	maxFile  = 256            // bytes of a file's name; those of FastDFS have 144 at most
	maxHold  = time.Hour      // of a lease: it is not renewed for longer
	maxEntry = 24 * time.Hour // of any entry
)

// Entries live as long as they are of use. Facts that are older than a cache believes are read by nobody; where a segment is stays
// true until that gateway evicts it, and then says so.
const (
	metaTTL     = time.Hour
	locationTTL = maxEntry
)

// purgedTTL is how long the fence of a purge has to be kept: as long as something older may be published, plus as long as that lives.
const purgedTTL = maxHold + maxEntry

// metaValue is cache.Meta as it stands in Redis, in JSON.
type metaValue struct {
	Version versionValue  `json:"v"`
	Gone    bool          `json:"gone,omitempty"`
	Checked int64         `json:"checked"` // milliseconds since 1970
	Took    time.Duration `json:"took"`    // nanoseconds
}

// locationValue is cache.Location as it stands in Redis, in JSON.
type locationValue struct {
	Holder  string       `json:"holder"`
	Version versionValue `json:"v"`
}

// versionValue is cache.Version as it stands in Redis, in JSON.
type versionValue struct {
	Size      int64  `json:"size"`
	ModTime   int64  `json:"mtime"` // nanoseconds since 1970
	CRC32     uint32 `json:"crc"`
	Immutable bool   `json:"immutable,omitempty"`
	Linked    bool   `json:"linked,omitempty"`
}

// PublishMeta implements cache.Lease.
func (l *lease) PublishMeta(ctx context.Context, file string, m cache.Meta) error {
	value := metaValue{Version: versionValue(m.Version), Gone: m.Gone, Checked: m.Checked.UnixMilli(), Took: m.Took}
	return l.publish(ctx, l.f.keys.meta(file), file, value, metaTTL)
}

// PublishLocation implements cache.Lease.
func (l *lease) PublishLocation(ctx context.Context, key string, at cache.Location) error {
	value := locationValue{Holder: l.f.o.Advertise, Version: versionValue(at.Version)}
	return l.publish(ctx, l.f.keys.location(key), fileOf(key), value, locationTTL)
}

// publish writes an entry unless the lease was lost, or the file was purged since it was taken: both are cache.ErrLost.
func (l *lease) publish(ctx context.Context, name, file string, value any, ttl time.Duration) error {
	if l.lock.Context().Err() != nil {
		return cache.ErrLost
	}
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("cannot encode what is known about %q: %w", file, err)
	}
	purged, err := l.f.purgedAbove(file)
	if err != nil {
		return err
	}
	names := append([]string{name, l.f.keys.lock(l.lock.Key())}, purged...)
	var written int
	err = l.f.ask(ctx, "publish", func(ctx context.Context) (err error) {
		written, err = publishScript.Run(ctx, l.f.rdb, names, l.lock.Fence(), l.lock.Token(), text, l.f.o.Advertise, millis(ttl)).Int()
		return err
	})
	if err == nil && written == 0 {
		return cache.ErrLost
	}
	return err
}

// Meta implements cache.Fleet.
func (f *Fleet) Meta(ctx context.Context, file string) (cache.Meta, bool, error) {
	var v metaValue
	found, err := f.read(ctx, f.keys.meta(file), file, &v)
	if err != nil || !found {
		return cache.Meta{}, false, err
	}
	m := cache.Meta{Version: cache.Version(v.Version), Gone: v.Gone, Checked: time.UnixMilli(v.Checked), Took: max(v.Took, 0)}
	return m, true, nil
}

// Location implements cache.Fleet. A location that cannot be asked, this gateway's own included, is none.
func (f *Fleet) Location(ctx context.Context, key string) (cache.Location, bool, error) {
	var v locationValue
	found, err := f.read(ctx, f.keys.location(key), fileOf(key), &v)
	if err != nil || !found || f.reachable(v.Holder) == "" {
		return cache.Location{}, false, err
	}
	return cache.Location{Holder: v.Holder, Version: cache.Version(v.Version)}, true, nil
}

// read reads an entry into v. One that cannot be understood is none: a later version of the program may have written it.
func (f *Fleet) read(ctx context.Context, name, file string, v any) (bool, error) {
	purged, err := f.purgedAbove(file)
	if err != nil {
		return false, err
	}
	var text string
	err = f.ask(ctx, "read what other gateways know", func(ctx context.Context) (err error) {
		text, err = readScript.Run(ctx, f.rdb, append([]string{name}, purged...)).Text()
		return err
	})
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return len(text) <= maxValue && json.Unmarshal([]byte(text), v) == nil, nil
}

// dropLocation forgets that a gateway has a segment, if it is still the one that is named.
func (f *Fleet) dropLocation(ctx context.Context, key, holder string) error {
	return f.ask(ctx, "drop a location", func(ctx context.Context) error {
		return dropScript.Run(ctx, f.rdb, []string{f.keys.location(key)}, holder).Err()
	})
}

// fileOf is the file that a segment's key, or a file's own, is about.
func fileOf(key string) string {
	file, _, _ := strings.Cut(key, "#")
	return file
}

// purgedAbove names the keys of purges that a file is meant by.
func (f *Fleet) purgedAbove(file string) ([]string, error) {
	if file == "" || len(file) > maxFile {
		return nil, fmt.Errorf("name of a file has 1 to %d bytes, not %d", maxFile, len(file))
	}
	names := []string{f.keys.purged("")}
	for i := range len(file) - 1 {
		if file[i] == '/' {
			names = append(names, f.keys.purged(file[:i+1]))
		}
	}
	return append(names, f.keys.purged(file)), nil
}
