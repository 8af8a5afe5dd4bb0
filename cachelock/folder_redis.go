package cachelock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
)

// The scripts of the folder locks.
var (
	folderAcquireScript = redis.NewScript(lua.FolderAcquire)
	folderExtendScript  = redis.NewScript(lua.FolderExtend)
	folderReleaseScript = redis.NewScript(lua.FolderRelease)
)

// folderKeys returns the keys of the namespace N, with the prefix p; lua/folder_common.lua
// describes their values:
//
//	p:{0}:fence             fence counter
//	p:{0}:folder-until:N    tokens by expiry
//	p:{0}:folder-claims:N   claims of each token
//	p:{0}:folder-paths:N    number of claims on each path
//	p:{0}:folder-waiting:N  processes that wait for a release
//	p:{0}:folder-tree-C:N   for each class C the paths and their tokens, sorted
func (c *Client) folderKeys(namespace string) []string {
	keys := []string{c.slot + ":fence"}
	for _, what := range []string{"until", "claims", "paths", "waiting"} {
		keys = append(keys, c.slot+":folder-"+what+":"+namespace)
	}
	for _, class := range classes {
		keys = append(keys, c.slot+":folder-tree-"+string(class)+":"+namespace)
	}
	return keys
}

// claim acquires all claims or none. The error is a *HeldError if another lock is in the way; then,
// if w.waiter is not empty, the client is notified of every release in the namespace.
func (f *Folders) claim(ctx context.Context, w folderRequest) (holding, int64, error) {
	h := &folderHold{f: f, token: w.token}
	args, repaired := folderArgs(w), false
	for {
		reply := folderAcquireScript.Run(ctx, f.rdb, f.keys, args...)
		if err := reply.Err(); err != nil {
			if isCorrupt(err) && !repaired && f.clear(ctx) == nil {
				repaired = true
				continue
			}
			f.c.releaseInBackground(h, w.ttl) // the lock may have been acquired nevertheless
			return nil, 0, failed(ctx, "acquire a folder lock", err)
		}
		values, _ := reply.Val().([]any)
		if fence, err := parseAcquired(values); !errors.Is(err, errAgain) {
			if err != nil {
				return nil, 0, err
			}
			return h, fence, nil
		}
		// The script has removed as many expired claims as one call may. Each call makes progress,
		// so the loop ends.
	}
}

// isCorrupt reports whether a script has found values that the scripts do not write.
func isCorrupt(err error) bool {
	return redis.HasErrorPrefix(err, "WRONGTYPE") || redis.HasErrorPrefix(err, "ERR user_script")
}

// clear removes all locks of a namespace in which another program has overwritten values: no call
// would succeed any more. The holders lose their locks.
func (f *Folders) clear(ctx context.Context) error {
	return f.rdb.Del(ctx, f.keys[1:]...).Err()
}

// folderArgs returns the arguments of folder_acquire.lua.
func folderArgs(w folderRequest) []any {
	args := []any{classes, w.token, millis(w.ttl), w.waiter, millis(w.queueTTL)}
	for _, c := range w.claims {
		args = append(args, string(classOf[c.kind]), c.path, excludedBy[c.kind])
	}
	return args
}

// errAgain: folder_acquire.lua has to be called again.
var errAgain = errors.New("call again")

// parseAcquired parses the reply of folder_acquire.lua to a fence or an error.
func parseAcquired(values []any) (int64, error) {
	switch {
	case len(values) == 1 && values[0] == int64(2):
		return 0, errAgain
	case len(values) == 2 && values[0] == int64(1):
		fence, _ := values[1].(int64)
		return fence, nil
	case len(values) == 4 && values[0] == int64(0):
		ttl, _ := values[1].(int64)
		token, _ := values[2].(string)
		path, _ := values[3].(string)
		return 0, heldBy(displayPath(path), token, time.Duration(ttl)*time.Millisecond)
	}
	return 0, fmt.Errorf("%w: cannot parse the reply %v to a folder lock's request", ErrUnreachable, values)
}

// folderHold implements holding for Folders.
type folderHold struct {
	f     *Folders
	token string
}

var _ holding = (*folderHold)(nil)

func (h *folderHold) extend(ctx context.Context, ttl time.Duration) error {
	n, err := folderExtendScript.Run(ctx, h.f.rdb, h.f.keys, classes, h.token, millis(ttl)).Int()
	return holdError(ctx, "extend a folder lock", n == 1, err)
}

func (h *folderHold) releaseKeys(ctx context.Context) error {
	n, err := folderReleaseScript.Run(ctx, h.f.rdb, h.f.keys, classes, h.token, h.f.c.channels()).Int()
	return holdError(ctx, "release a folder lock", n == 1, err)
}
