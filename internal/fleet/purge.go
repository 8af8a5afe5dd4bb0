package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fdfs"
)

// Purge makes all gateways forget the files that are meant, and returns how many have: this one and
// the others that are registered and were seen within 15 s. Those that have not confirmed it within
// 5 s are named; they apply it when they can be reached again, and before they use what they have
// kept over a restart.
//
// The folder lock on the path makes purges of overlapping paths one after the other, and keeps
// purges out of a folder that another program has locked. It is held only while the purge is
// written down: each gateway invalidates its fills when it applies the purge.
//
// An error that is cache.ErrFleetDown means that only this gateway has applied.
func (f *Fleet) Purge(ctx context.Context, m cache.Match) (gateways int, missing []string, err error) {
	deadline, cancel := context.WithTimeout(ctx, f.purges.confirm)
	defer cancel()
	fence, names, err := f.writePurge(deadline, PathOf(m))
	if err != nil {
		f.purgeHere(m)
		return 1, nil, fmt.Errorf("cannot purge %s everywhere: %w", m, err)
	}
	f.wake()
	missing, err = f.confirmed(deadline, fence, names)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return len(names) - len(missing), missing, err
}

// purgeHere drops what is meant on this gateway alone.
func (f *Fleet) purgeHere(m cache.Match) {
	f.mu.Lock()
	drop := f.local.Purge
	f.mu.Unlock()
	if drop != nil {
		drop(m)
	}
}

// writePurge writes the purge down under the folder lock, and returns its fence and the names
// of the gateways that have to apply it.
func (f *Fleet) writePurge(ctx context.Context, path string) (fence int64, names []string, err error) {
	if _, err := f.breaker.allow(); err != nil {
		return 0, nil, err
	}
	wait := cachelock.LockOptions{Policy: cachelock.WaitFor(f.purges.confirm / 2)}
	lock, err := f.folders.Acquire(ctx, "/"+path, cachelock.Exclusive, wait)
	if err != nil {
		return 0, nil, f.lockFailed(ctx, path, err)
	}
	defer f.release(lock)
	err = f.ask(ctx, "write a purge down", func(ctx context.Context) (err error) {
		script := []string{f.keys.fence(), f.keys.purges(), f.keys.base(), f.keys.gateways()}
		names, err = purgeScript.Run(ctx, f.rdb, script, path, f.purges.log, millis(f.purges.age),
			millis(f.purges.live),
			f.keys.channel(), millis(f.purges.keep)).StringSlice()
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	if len(names) == 0 || parseFence(names[0]) < 0 {
		return 0, nil, fmt.Errorf("%w: cannot understand the answer %q to a purge", cache.ErrFleetDown, names)
	}
	return parseFence(names[0]), names[1:], nil
}

// lockFailed is the error for a folder that could not be locked.
func (f *Fleet) lockFailed(ctx context.Context, path string, err error) error {
	var held *cachelock.HeldError
	if errors.As(err, &held) {
		return fmt.Errorf("the folder %q is locked by %q for %s: %w", held.Key, held.Holder, held.TTL, err)
	}
	return f.judge(ctx, fmt.Sprintf("lock the folder %q", strings.TrimSuffix(path, "/")), err)
}

// The pauses between looks whether the others have confirmed.
const (
	firstLook = 10 * time.Millisecond
	lastLook  = 250 * time.Millisecond
)

// confirmed waits until all have applied it, and names those that have not in time. A
// gateway that has left meanwhile has nothing to apply.
func (f *Fleet) confirmed(ctx context.Context, fence int64, names []string) (missing []string, err error) {
	missing = names
	for pause := firstLook; ; pause = min(2*pause, lastLook) {
		if len(missing) > 0 {
			var left []string
			if left, err = f.unacknowledged(ctx, fence, missing); err == nil {
				missing = left
			}
		}
		if len(missing) == 0 {
			return nil, nil
		}
		select {
		case <-ctx.Done():
			return missing, nil
		case <-time.After(pause):
		}
	}
}

// unacknowledged returns those of the names that have not confirmed a purge yet.
func (f *Fleet) unacknowledged(ctx context.Context, fence int64, names []string) (left []string, err error) {
	var answer []any
	err = f.ask(ctx, "see which gateways have applied a purge", func(ctx context.Context) (err error) {
		answer, err = f.rdb.HMGet(ctx, f.keys.obeyed(), names...).Result()
		return err
	})
	if err != nil || len(answer) != len(names) {
		return names, err
	}
	for i, name := range names {
		if text, ok := answer[i].(string); ok && parseFence(text) < fence {
			left = append(left, name)
		}
	}
	return left, nil
}

// ErrPath is the error for a file or folder that a purge cannot be about.
var ErrPath = errors.New("no file id and no folder of one")

// A purge is about a path, as it stands in Redis:
//
//	""               all files
//	"group1/"        a folder: group1/, group1/M00/, group1/M00/0A/ or group1/M00/0A/FF/
//	"group1/M00/..." a file

// MatchFile is the purge of one file.
func MatchFile(id string) (cache.Match, error) {
	file, err := fdfs.Parse(id)
	if err != nil {
		return cache.Match{}, fmt.Errorf("%w: %q: %w", ErrPath, id, err)
	}
	return tier.MatchFile(strings.Clone(file.Group + "/" + file.Logic)), nil
}

// MatchFolder is the purge of a folder: the beginning of a file id up to any of its slashes, with
// or without that slash. Digits of folders are upper case, as they are in file ids.
func MatchFolder(prefix string) (cache.Match, error) {
	segments := strings.Split(strings.TrimSuffix(prefix, "/"), "/")
	if len(segments) > 4 || !isGroup(segments[0]) {
		return cache.Match{}, fmt.Errorf("%w: %q is not group/Mxx/HH/LL/ or the beginning of it", ErrPath, prefix)
	}
	for i, s := range segments[1:] {
		if i == 0 {
			if s == "" || s[0] != 'M' {
				return cache.Match{}, fmt.Errorf("%w: %q in %q is no Mxx", ErrPath, s, prefix)
			}
			s = s[1:]
		}
		if len(s) != 2 || strings.Trim(s, "0123456789ABCDEF") != "" {
			return cache.Match{}, fmt.Errorf("%w: %q in %q are not two hexadecimal digits", ErrPath, s, prefix)
		}
	}
	return tier.MatchFolder(strings.Join(segments, "/")), nil
}

// isGroup tells whether a name can be that of a group.
func isGroup(name string) bool {
	return name != "" && len(name) <= fdfs.MaxGroup &&
		strings.Trim(name, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz") == ""
}

// MatchAll is the purge of all files.
func MatchAll() cache.Match { return tier.MatchAll() }

// PathOf is what a purge is about.
func PathOf(m cache.Match) string {
	if m == tier.MatchAll() {
		return ""
	}
	return m.String()
}

// MatchPath is the purge that is about a path.
func MatchPath(path string) cache.Match {
	switch {
	case path == "":
		return tier.MatchAll()
	case strings.HasSuffix(path, "/"):
		return tier.MatchFolder(path)
	}
	return tier.MatchFile(path)
}
