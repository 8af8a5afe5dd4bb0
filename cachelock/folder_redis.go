package cachelock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"fastdfs-gateway/lua"

	"github.com/redis/go-redis/v9"
)

// redisFolders keeps the folder locks of one namespace in Redis. The keys of the namespace N are
// all in the slot of its shard n, with the prefix p; lua/folder_common.lua describes their values:
//
//	p:{n}:fence             fence counter of the shard
//	p:{n}:folder-until:N    tokens by expiry
//	p:{n}:folder-claims:N   claims of each token
//	p:{n}:folder-paths:N    number of claims on each path
//	p:{n}:folder-waiting:N  processes that wait for a release
//	p:{n}:folder-tree-C:N   for each class C the paths and their tokens, sorted
type redisFolders struct {
	s       *redisStore
	names   []string
	scripts *folderScripts
}

// folderScripts are the scripts of the folder locks.
type folderScripts struct{ acquire, extend, release *redis.Script }

var defaultFolderScripts = &folderScripts{
	acquire: redis.NewScript(lua.FolderAcquire),
	extend:  redis.NewScript(lua.FolderExtend),
	release: redis.NewScript(lua.FolderRelease),
}

var (
	_ folderKeeper = (*redisStore)(nil)
	_ folderStore  = (*redisFolders)(nil)
)

func (s *redisStore) folders(namespace string) folderStore {
	shard := s.c.shardOf(namespace)
	names := []string{shard + ":fence"}
	for _, what := range []string{"until", "claims", "paths", "waiting"} {
		names = append(names, shard+":folder-"+what+":"+namespace)
	}
	for _, class := range classes {
		names = append(names, shard+":folder-tree-"+string(class)+":"+namespace)
	}
	return &redisFolders{s: s, names: names, scripts: defaultFolderScripts}
}

func (f *redisFolders) acquire(ctx context.Context, w folderRequest) (holding, int64, error) {
	h := &redisFolderHold{f: f, token: w.token}
	args, repaired := folderArgs(w), false
	for {
		reply := f.scripts.acquire.Run(ctx, f.s.rdb, f.names, args...)
		if err := reply.Err(); err != nil {
			if isCorrupt(err) && !repaired && f.clear(ctx) == nil {
				repaired = true
				continue
			}
			f.s.c.releaseInBackground(h) // the lock may have been acquired nevertheless
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

// clear removes the locks of the namespace, where another program has overwritten them: no call
// would succeed any more. The holders of locks lose them.
func (f *redisFolders) clear(ctx context.Context) error {
	return f.s.rdb.Del(ctx, f.names[1:]...).Err()
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

// redisFolderHold implements holding for redisFolders.
type redisFolderHold struct {
	f     *redisFolders
	token string
}

var _ holding = (*redisFolderHold)(nil)

func (h *redisFolderHold) extend(ctx context.Context, ttl time.Duration, sooner bool) error {
	n, err := h.f.scripts.extend.Run(ctx, h.f.s.rdb, h.f.names, classes, h.token, millis(ttl), *flag(sooner)).Int()
	return holdError(ctx, "extend a folder lock", n == 1, err)
}

func (h *redisFolderHold) release(ctx context.Context) error {
	n, err := h.f.scripts.release.Run(ctx, h.f.s.rdb, h.f.names, classes, h.token, h.f.s.c.channels()).Int()
	return holdError(ctx, "release a folder lock", n == 1, err)
}

// onFolderMessage handles a message of folder_release.lua, from "folder-waiting:" on: the namespace
// and the paths.
func (c *Client) onFolderMessage(message string) {
	parts := strings.Split(message, "\x00")
	c.foldersReleased(parts[0], parts[1:])
}
