package fleet

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
)

// Purge purges the matching files in all gateways: this one, and those that are registered, with a
// heartbeat within the last ten minutes (purgeLimits.forget). It returns the number of those that
// have applied the purge, and the names of those that have not confirmed it within 5 s. These apply
// it when they can be reached again, and before they use content that they have kept over a
// restart. A gateway that was cut off for longer asks the sources, see TrustedSince.
//
// The folder lock on the path puts purges of overlapping paths in an order, and keeps purges out of
// a folder that another program has locked. It is held only while the purge is appended to the log:
// each gateway invalidates its fills when it applies the purge.
//
// After the error cachelock.ErrHeld, no gateway has applied the purge. After cache.ErrFleetDown,
// this gateway has applied it; the others, of which it names the known members, do so only if Redis
// wrote it down and its reply was lost.
func (f *Fleet) Purge(ctx context.Context, m cache.Match) (gateways int, missing []string, err error) {
	deadline, cancel := context.WithTimeout(ctx, f.purges.confirm)
	defer cancel()
	written, err := f.writePurge(deadline, string(m))
	if errors.Is(err, cachelock.ErrHeld) {
		return 0, nil, fmt.Errorf("cannot purge %s: %w", m, err)
	}
	if err != nil {
		f.local.Load().Purge(m)
		return 1, f.others(), fmt.Errorf("cannot purge %s everywhere: %w", m, err)
	}
	f.wake()
	names := f.mustApply(written)
	missing = names
	for pause := 10 * time.Millisecond; len(missing) > 0; pause = min(2*pause, 250*time.Millisecond) {
		if missing = f.unacknowledged(deadline, written, missing); len(missing) == 0 {
			break
		}
		select {
		case <-deadline.Done():
			return len(names) - len(missing), missing, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	return len(names), nil, nil
}

// writtenPurge is a purge in the log.
type writtenPurge struct {
	fence      int64
	began      string   // identifies the list of gateways; empty = there was none
	registered []string // names in that list
}

// maxFolderLock is the longest remaining time of a folder lock that rejects a purge. A purge
// ignores a lock with more time left: only an attacker writes one, and it would block purges for
// ever.
const maxFolderLock = time.Hour

// writePurge appends the purge to the log under the folder lock.
func (f *Fleet) writePurge(ctx context.Context, path string) (p writtenPurge, err error) {
	if _, err := f.breaker.allow(); err != nil {
		return p, err
	}
	wait := cachelock.LockOptions{Policy: cachelock.WaitFor(f.purges.confirm / 2)}
	lock, err := f.folders.Acquire(ctx, "/"+path, cachelock.Exclusive, wait)
	var held *cachelock.HeldError
	switch {
	case err == nil:
		defer f.releaseLock(lock)
	case errors.As(err, &held) && held.TTL > 0 && held.TTL <= maxFolderLock:
		return p, fmt.Errorf("the folder %q is locked by %q for %s: %w", held.Key, held.Holder, held.TTL, err)
	case held != nil || rejected(err):
		f.warn.Warn("folder", "a purge goes on without the folder lock: what is in redis is no lock, or one that does "+
			"not expire within an hour", "path", path, "error", err)
	default:
		return p, f.judge(ctx, fmt.Sprintf("lock the folder %q", path), err)
	}
	var reply []string
	err = f.ask(ctx, "write a purge down", func(ctx context.Context) (err error) {
		var keys []string
		for _, name := range []string{"fence", "purges", "purges:base", "gateways", "members", "applied"} {
			keys = append(keys, f.key(name))
		}
		reply, err = purgeScript.Run(ctx, f.rdb, keys, path, f.purges.log, millis(f.purges.age),
			millis(f.purges.forget), f.key("purged"), millis(f.purges.keep), maxMembers, maxName).StringSlice()
		return err
	})
	if err != nil {
		return p, err
	}
	if len(reply) < 2 || parseFence(reply[0]) < 0 {
		return p, fmt.Errorf("%w: cannot understand the reply %q to a purge", cache.ErrFleetDown, reply)
	}
	return writtenPurge{fence: parseFence(reply[0]), began: reply[1], registered: reply[2:]}, nil
}

// mustApply returns the names of the gateways that have to apply a purge: the registered ones, this
// one, and those that may not have registered again since Redis has lost its data.
func (f *Fleet) mustApply(p writtenPurge) []string {
	names, members := append(slices.Clip(p.registered), f.Name()), f.members.Load()
	if members.began != p.began {
		names = append(names, members.names()...)
	}
	if time.Since(members.lostAt) < f.purges.forget {
		names = append(names, members.lost...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// others returns the names of the known members, without this gateway.
func (f *Fleet) others() []string {
	members := f.members.Load()
	names := append(members.names(), members.lost...)
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(name string) bool { return name == f.Name() })
}

// unacknowledged returns the names of the gateways that have not confirmed a purge yet. A gateway
// that was registered and has left meanwhile need not confirm it.
func (f *Fleet) unacknowledged(ctx context.Context, p writtenPurge, names []string) (left []string) {
	list, began, err := f.registered(ctx)
	if err != nil {
		return names
	}
	for _, name := range names {
		i := slices.IndexFunc(list, func(g Gateway) bool { return g.Name == name })
		if i < 0 && (began != p.began || !slices.Contains(p.registered, name)) || i >= 0 && list[i].Applied < p.fence {
			left = append(left, name)
		}
	}
	return left
}

// ErrPath is the error for a path that names no file or folder of a purge.
var ErrPath = i18n.Errorf("no file id and no folder of one")

// MatchFile returns the match of one file.
func MatchFile(id string) (cache.Match, error) {
	file, err := fdfs.Parse(id)
	if err != nil {
		return "", fmt.Errorf("%w: %q: %w", ErrPath, id, err)
	}
	return tier.MatchFile(strings.Clone(file.Group + "/" + file.Logic)), nil
}

// folders matches beginnings of file ids up to a slash: a group, Mxx and two folders, whose digits
// are upper case.
var folders = regexp.MustCompile(`^[0-9A-Za-z]{1,16}(/M[0-9A-F]{2}(/[0-9A-F]{2}){0,2})?/?$`)

// MatchFolder returns the match of a folder: the beginning of a file id up to one of its slashes,
// with or without that slash.
func MatchFolder(prefix string) (cache.Match, error) {
	if !folders.MatchString(prefix) {
		return "", fmt.Errorf("%w: %q is not group/Mxx/HH/LL/ or the beginning of it", ErrPath, prefix)
	}
	return tier.MatchFolder(prefix), nil
}
