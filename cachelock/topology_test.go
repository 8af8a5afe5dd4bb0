package cachelock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// takes acquires a lock, and retries while a failover or a reconnection is running.
func takes(t *testing.T, c cachelock.Locker, key string) *cachelock.Lock {
	t.Helper()
	var lock *cachelock.Lock
	eventually.True(t, func() bool {
		var err error
		lock, err = c.Acquire(t.Context(), key, cachelock.LockOptions{TTL: farOff})
		return err == nil
	})
	return lock
}

// replicated waits until that number of replicas have all data of their master.
func replicated(t *testing.T, master *redis.Client, replicas int) {
	t.Helper()
	conn := master.Conn() // WAIT covers the writes of this connection and all earlier ones
	defer conn.Close()
	require.NoError(t, conn.Set(t.Context(), "replicated:{0}", "1", time.Minute).Err())
	require.EqualValues(t, replicas, conn.Wait(t.Context(), replicas, soon).Val(), "the replicas have it")
}

func TestCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	rdb := c.Client()
	t.Run("conformance", func(t *testing.T) { conformance(t, rdb) })
	t.Run("slots", func(t *testing.T) { clusterSlots(t, rdb) })
	t.Run("folders", func(t *testing.T) { clusterFolders(t, rdb) })
	t.Run("failover", func(t *testing.T) { clusterFailover(t, c) })
}

// clusterSlots: all locks of a prefix are in one slot, which a hash tag in the prefix chooses.
func clusterSlots(t *testing.T, rdb *redis.ClusterClient) {
	var keys []string
	for i := range 64 {
		keys = append(keys, fmt.Sprintf("group1/M00/%02X/{tag}/file %d", i, i))
	}
	for _, prefix := range []string{"slots", "{1}slots", "{2}slots", "{3}slots", "{4}slots", "{5}slots", "{6}slots"} {
		c := cachelock.New(rdb, cachelock.Options{Prefix: prefix})
		defer c.Close()
		lock, err := c.Acquire(t.Context(), keys[0], cachelock.LockOptions{TTL: time.Hour})
		require.NoError(t, err)
		defer func() { require.NoError(t, lock.Release(t.Context())) }()
		_, err = c.Acquire(t.Context(), keys[0], cachelock.LockOptions{TTL: time.Hour})
		require.ErrorIs(t, err, cachelock.ErrHeld)
		_, err = c.AcquireAll(t.Context(), keys, cachelock.LockOptions{TTL: time.Hour})
		require.ErrorIs(t, err, cachelock.ErrHeld)
		all, err := c.AcquireAll(t.Context(), keys[1:], cachelock.LockOptions{TTL: time.Hour})
		require.NoError(t, err)
		require.NoError(t, all.Release(t.Context()))
	}
	require.NoError(t, rdb.ForEachMaster(t.Context(), func(ctx context.Context, master *redis.Client) error {
		n, err := master.Keys(ctx, "*slots:*:lock:*").Result()
		if err == nil && len(n) == 0 {
			err = fmt.Errorf("%v has no lock", master)
		}
		return err
	}))
}

func clusterFolders(t *testing.T, rdb *redis.ClusterClient) {
	c := cachelock.New(rdb, cachelock.Options{Prefix: "folders"})
	defer c.Close()
	for i := range 16 {
		f, err := c.Folders(fmt.Sprint("p}{", i)) // braces do not change the hash tag
		require.NoError(t, err)
		move, err := f.Begin(t.Context(), cachelock.OpMoveDir, "from", "to", cachelock.LockOptions{TTL: time.Hour})
		require.NoError(t, err)
		require.NoError(t, move.Extend(t.Context(), time.Minute))
		require.NoError(t, move.Release(t.Context()))
		lock, err := f.Acquire(t.Context(), "a/b", cachelock.Exclusive, cachelock.LockOptions{TTL: time.Minute})
		require.NoError(t, err)
		_, err = f.Acquire(t.Context(), "a", cachelock.Exclusive, cachelock.LockOptions{TTL: time.Minute})
		require.ErrorIs(t, err, cachelock.ErrHeld)
		beside, err := f.Acquire(t.Context(), "a/bc", cachelock.Exclusive, cachelock.LockOptions{TTL: time.Minute})
		require.NoError(t, err)
		require.NoError(t, lock.Release(t.Context()))
		require.NoError(t, beside.Release(t.Context()))
	}
}

func clusterFailover(t *testing.T, c *redistest.Cluster) {
	client := cachelock.New(c.Client(), cachelock.Options{Prefix: "failover"})
	defer client.Close()
	lock := takes(t, client, "before")
	name := "failover:{0}:lock:before"
	folder := folderBefore(t, func() redis.UniversalClient { return c.Client() })
	replicated(t, c.MasterOf(name).Client(), 1) // else a new lock may be lost with its master
	dead := c.KillMasterOf(name)
	folder()
	require.NotEqual(t, dead.Addr(), c.MasterOf(name).Addr())
	after := takes(t, client, "after")
	require.Greater(t, after.Fence(), lock.Fence())
	require.NoError(t, after.Release(t.Context()))
	if err := lock.Release(t.Context()); !errors.Is(err, cachelock.ErrLost) {
		require.NoError(t, err)
	}
	takes(t, client, "before")
}

// TestScriptFlush: every operation loads its script again if the server has lost it.
func TestScriptFlush(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	rdb := s.Client()
	flush := func() { require.NoError(t, rdb.ScriptFlush(t.Context()).Err()) }
	c := cachelock.New(s.Client(), cachelock.Options{})
	defer c.Close()
	folders, err := c.Folders("project")
	require.NoError(t, err)
	minute := cachelock.LockOptions{TTL: time.Minute}
	for what, acquire := range map[string]func() (*cachelock.Lock, error){
		"one": func() (*cachelock.Lock, error) { return c.Acquire(t.Context(), "k", minute) },
		"several": func() (*cachelock.Lock,
			error) {
			return c.AcquireAll(t.Context(), []string{"a", "b", "c"}, minute)
		},
		"reentrant": func() (*cachelock.Lock, error) {
			return c.Acquire(t.Context(), "r", cachelock.LockOptions{Owner: "me"})
		},
		"folder": func() (*cachelock.Lock,
			error) {
			return folders.Acquire(t.Context(), "a/b", cachelock.Shared, minute)
		},
		"waiting": func() (*cachelock.Lock, error) {
			return c.Acquire(t.Context(), "w", cachelock.LockOptions{Policy: cachelock.WaitFor(soon)})
		},
	} {
		flush()
		lock, err := acquire()
		require.NoError(t, err, what)
		flush()
		require.NoError(t, lock.Extend(t.Context(), time.Minute), what)
		if what != "several" {
			flush()
			require.NoError(t, cachelock.Commit(t.Context(), rdb, "value:"+what, lock.Fence(), []byte("x"),
				time.Minute), what)
		}
		flush()
		require.NoError(t, lock.Release(t.Context()), what)
	}
}
