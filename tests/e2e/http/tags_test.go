package http

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// tagged is a store with its files. Two stores of fillTagged have the same files and ids.
type tagged struct {
	store *storetest.Store
	files map[string]storetest.Object
}

func fillTagged(t *testing.T) tagged {
	s := storetest.New(t)
	normal, packed := s.Normal("jpg", s.Bytes(5000)), s.Trunk("jpg", s.Bytes(4000))
	link := s.Link("jpg", filepath.Base(normal.Path))
	link.Content = normal.Content
	short := s.Normal("txt", s.Bytes(40))
	linked := s.Slave(short, "_link", "txt", nil)
	require.NoError(t, os.Remove(linked.Path))
	require.NoError(t, os.Symlink(filepath.Base(short.Path), linked.Path))
	linked.Content = short.Content
	return tagged{s, map[string]storetest.Object{
		"normal": normal, "packed": packed, "slave": s.Slave(normal, "_150x150", "jpg", s.Bytes(700)),
		"appender": s.Appender("log", s.Bytes(9000)), "link": link, "slave that is a link": linked,
	}}
}

// tagGateways are gateways of each kind that serve the same files.
type tagGateways struct {
	cluster *fdfstest.Cluster
	stores  []tagged // each with all files
	of      map[string]*e2e.Process
}

func startTagged(t *testing.T) *tagGateways {
	g := &tagGateways{
		cluster: e2e.NewCluster(t, fdfstest.Options{Groups: []fdfstest.GroupSpec{{Name: "group1", Count: 1}}}),
		stores:  []tagged{fillTagged(t), fillTagged(t)},
	}
	for name, f := range g.stores[0].files {
		copied := g.stores[1].files[name]
		require.Equal(t, f.ID, copied.ID)
		second := storetest.Changed.Truncate(time.Second) // replication keeps no fractions
		require.NoError(t, os.Chtimes(copied.Path, second, second))
		e2e.Put(t, g.cluster, fdfstest.FileSpec{ID: f.ID.String(), Content: f.Content, Modified: storetest.Changed})
	}
	g.of = map[string]*e2e.Process{
		"source": e2e.Serve(t, g.stores[0].store), "replica": e2e.Serve(t, g.stores[1].store),
		"edge":                 e2e.ServeConfig(t, e2e.WriteConfig(t, e2e.EdgeConfig(g.cluster))),
		"edge without a cache": e2e.Edge(t, g.cluster),
	}
	return g
}

// change replaces the content of a file in all stores and in the cluster.
func (g *tagGateways) change(t *testing.T, name string, content []byte, at time.Time) {
	t.Helper()
	for _, s := range g.stores {
		path := s.files[name].Path
		require.NoError(t, os.WriteFile(path+".new", content, 0o600))
		require.NoError(t, os.Chtimes(path+".new", at, at))
		require.NoError(t, os.Rename(path+".new", path))
		at = at.Truncate(time.Second)
	}
	require.NoError(t, g.cluster.Change(g.stores[0].files[name].ID, content, at))
}

// TestTagsAgree: all gateways send the same strong entity-tag for a version of a file, so clients
// behind a balancer get 304 and can resume downloads.
func TestTagsAgree(t *testing.T) {
	t.Parallel()
	g := startTagged(t)
	for name, f := range g.stores[0].files {
		t.Run(name, func(t *testing.T) {
			g.requireOneTag(t, f.URL(), f.Content)
		})
	}
	for _, name := range []string{"slave", "appender"} {
		t.Run(name+" changes", func(t *testing.T) {
			t.Parallel()
			f := g.stores[0].files[name]
			old := g.of["source"].Get(f.URL()).Header.Get("ETag")
			now := time.Now()
			for n, at := range []time.Time{storetest.Changed.Add(time.Second), now, now.Add(time.Second)} {
				changed := append([]byte{byte(n)}, f.Content[1:]...)
				g.change(t, name, changed, at)
				for of, p := range g.of {
					eventually.True(t, func() bool { return string(p.Get(f.URL()).Body) == string(changed) }, of)
					require.NotEqual(t, old, p.Get(f.URL()).Header.Get("ETag"), of)
				}
				old = g.requireOneTag(t, f.URL(), changed)
			}
			requireTagsWithinTheSecond(t, g, name)
		})
	}
}

// requireOneTag waits until all gateways send the same tag, and returns it.
func (g *tagGateways) requireOneTag(t *testing.T, url string, content []byte) string {
	t.Helper()
	tags := map[string]string{}
	eventually.True(t, func() bool {
		one := ""
		for of, p := range g.of {
			a := p.In(t).Get(url)
			require.Equal(t, http.StatusOK, a.StatusCode, of)
			require.Equal(t, content, a.Body, of)
			one = a.Header.Get("ETag")
			tags[of] = one
		}
		for _, tag := range tags {
			if tag != one {
				return false
			}
		}
		return true
	}, "%v", tags)
	tag := tags["source"]
	require.Regexp(t, `\A"[^".]+"\z`, tag)
	for of, p := range g.of {
		p = p.In(t)
		require.Equal(t, http.StatusNotModified, p.Get(url, "If-None-Match: "+tag).StatusCode, of)
		require.Equal(t, http.StatusOK, p.Get(url, "If-Match: "+tag).StatusCode, of)
		part := p.Get(url, "Range: bytes=10-19", "If-Range: "+tag)
		require.Equal(t, http.StatusPartialContent, part.StatusCode, of)
		require.Equal(t, content[10:20], part.Body, of)
	}
	return tag
}

// requireTagsWithinTheSecond: two versions with the same size and second never have the same tag,
// and bytes that were fetched before the second was over are not kept under the tag of the last
// version.
func requireTagsWithinTheSecond(t *testing.T, g *tagGateways, name string) {
	t.Helper()
	f := g.stores[0].files[name]
	first, last := append([]byte("1"), f.Content[1:]...), append([]byte("2"), f.Content[1:]...)
	early := map[string]string{}
	for at := time.Now(); ; at = time.Now() { // a busy machine may be too late
		at = at.Add(3 * time.Second).Truncate(time.Second).Add(time.Millisecond)
		g.change(t, name, first, at)
		for of, p := range g.of {
			eventually.True(t, func() bool {
				a := p.Get(f.URL())
				early[of] = a.Header.Get("ETag")
				return string(a.Body) == string(first)
			}, of)
		}
		g.change(t, name, last, at.Add(time.Millisecond))
		if !content.IsSettled(at, time.Now()) {
			break
		}
	}
	for of, p := range g.of {
		eventually.True(t, func() bool { return string(p.Get(f.URL()).Body) == string(last) }, of)
	}
	tag := g.requireOneTag(t, f.URL(), last)
	for of, p := range g.of {
		require.NotEqual(t, tag, early[of], of)
		require.Equal(t, http.StatusOK, p.Get(f.URL(), "If-None-Match: "+early[of]).StatusCode, of)
	}
}
