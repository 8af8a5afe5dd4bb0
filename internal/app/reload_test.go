package app

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestReloadAdjustsCache: a reload applies budgets and times of the cache.
func TestReloadAdjustsCache(t *testing.T) {
	r := start(t)
	r.write("[cache]", "memory_max = 8MB", "ttl = 7s")
	require.NoError(t, r.Reload())
	require.Empty(t, r.Pending())
	require.EqualValues(t, 7<<20, r.cache.Stats().Memory.Budget, "an eighth is for metadata")
}

// TestReloadOpens: a reload that takes the check of tokens or the rules of [access] back says so.
func TestReloadOpens(t *testing.T) {
	r := start(t, "http.anti_steal.check_token = true", "http.anti_steal.secret_key = 7f3a9c51e08b4d26",
		"[access jpg]", "deny = 192.0.2.1")
	const tokens, rules = "tokens are off now: before they were on (", "[access] has no rules now"
	require.NoError(t, r.Reload())
	r.write()
	require.NoError(t, r.Reload())
	eventually.True(t, func() bool {
		log, err := os.ReadFile(r.log)
		require.NoError(t, err)
		return strings.Count(string(log), tokens+r.conf+":") == 1 && strings.Count(string(log), rules) == 1
	})
}

// TestRetiredPartsGo: components that a reload has replaced are closed once, when they are not in
// use any more, or at the stop.
func TestRetiredPartsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := New(Options{})
		var busy, ended atomic.Int64
		busy.Store(1)
		end := func() { ended.Add(1) }
		a.retire(end, busy.Load)
		time.Sleep(retireAfter + time.Second)
		synctest.Wait()
		require.Zero(t, ended.Load())
		busy.Store(0)
		time.Sleep(retireAfter)
		synctest.Wait()
		require.EqualValues(t, 1, ended.Load())
		a.retire(end, nil)
		close(a.stopping)
		a.running.Wait()
		require.EqualValues(t, 2, ended.Load())
	})
}

// TestReloadListeners: a reload opens added addresses and closes removed ones. The other listeners
// stay.
func TestReloadListeners(t *testing.T) {
	r := start(t)
	socket := filepath.Join(r.store.Dir, "socket")
	file := r.store.Normal("txt", []byte("hello"))
	first := r.address(roleFiles)
	listen := func(addresses string) error {
		r.write("[gateway]")
		r.edit("\nlisten = 127.0.0.1:0", "\nlisten = "+addresses)
		return r.Reload()
	}
	require.NoError(t, listen("127.0.0.1:0, unix:"+socket))
	require.Empty(t, r.Pending())
	conn, err := net.Dial("unix", socket)
	require.NoError(t, err)
	require.NoError(t, conn.Close())
	require.Equal(t, first, r.address(roleFiles))
	require.ErrorContains(t, listen("127.0.0.1:0, "+r.address(roleAdmin)), "address already in use")
	require.FileExists(t, socket)
	require.NoError(t, listen("127.0.0.1:0"))
	require.NoFileExists(t, socket)
	r.requireServed(file, "hello")
	require.NoError(t, listen("127.0.0.2:0"))
	_, err = net.Dial("tcp", first)
	require.Error(t, err)
	r.requireServed(file, "hello")
	require.Empty(t, r.Ended())
}

// TestReloadWithoutTrackers: while all trackers are down, a reload that replaces the upstreams
// keeps the lists of the trackers, so that files outside of the cache are still found.
func TestReloadWithoutTrackers(t *testing.T) {
	cluster, err := fdfstest.Start(fdfstest.Options{})
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	var urls []string
	for _, content := range []string{"first", "second"} {
		id, err := cluster.Put(fdfstest.FileSpec{Group: "group1", Content: []byte(content), Ext: "txt"})
		require.NoError(t, err)
		urls = append(urls, "/"+id.String())
	}
	r := prepare(t)
	edge := func(lines string) {
		require.NoError(t, os.WriteFile(r.conf, []byte("base_path = /nowhere\nstore_path_count = 0\n"+
			"url_have_group_name = true\ngroup_name = group1\ntracker_server = "+cluster.Trackers()[0]+"\n[gateway]\n"+
			"listen = 127.0.0.1:0\nadmin_listen = 127.0.0.1:0\nlandlock = false\n"+lines), 0o600))
	}
	edge("")
	require.NoError(t, r.Start())
	t.Cleanup(func() { require.NoError(t, r.Stop()) })
	eventually.True(t, func() bool { return r.ready() == nil })
	serves := func(url, content string) {
		resp, body := r.get(roleFiles, url)
		require.Equal(t, 200, resp.StatusCode, body)
		require.Equal(t, content, body)
	}
	serves(urls[0], "first")
	cluster.Tracker(0).Kill()
	before := r.components.Load().upstreams
	edge("try_replicas = false\n")
	require.NoError(t, r.Reload())
	require.True(t, before != r.components.Load().upstreams, "it concerns them")
	require.NoError(t, r.ready())
	serves(urls[1], "second")
}

// TestHangingStore: while the check of a store path hangs, the gateway is not ready, and starts no
// further check.
func TestHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := local.Open(local.Options{})
		require.NoError(t, err)
		a := New(Options{})
		a.components.Store(&components{cfg: &config.Config{}, store: store})
		hang := make(chan struct{})
		a.storeCheck.DoChan(fmt.Sprintf("%p", store), func() (any, error) { <-hang; return false, nil })
		for range 3 {
			require.EqualError(t, a.ready(), "a store path does not respond")
		}
		close(hang)
		synctest.Wait()
		require.NoError(t, a.ready())
	})
}
