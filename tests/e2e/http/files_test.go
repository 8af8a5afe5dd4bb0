package http

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestEveryKindOfFile serves each kind whole, to HEAD and in random ranges.
func TestEveryKindOfFile(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small := s.Normal("jpg", s.Bytes(4096))
	files := map[string]struct {
		storetest.Object
		modified time.Time
		kind     string
	}{
		"single":                 {small, storetest.Created, "image/jpeg"},
		"empty":                  {s.Normal("txt", nil), storetest.Created, "text/plain"},
		"one byte":               {s.Normal("bin", s.Bytes(1)), storetest.Created, "application/octet-stream"},
		"no extension":           {s.Normal("", s.Bytes(100)), storetest.Created, "application/octet-stream"},
		"extension in capitals":  {s.Normal("JPG", s.Bytes(100)), storetest.Created, "image/jpeg"},
		"around a chunk":         {s.Normal("mp4", s.Bytes(256<<10+1)), storetest.Created, "video/mp4"},
		"large":                  {s.Normal("mp4", s.Bytes(5<<20+3)), storetest.Created, "video/mp4"},
		"second store path":      {s.In(storetest.Group, 1, "jpg", s.Bytes(999)), storetest.Created, "image/jpeg"},
		"second group":           {s.In(storetest.Other, 0, "jpg", s.Bytes(998)), storetest.Created, "image/jpeg"},
		"slave":                  {s.Slave(small, "_150x150", "jpg", s.Bytes(300)), storetest.Changed, "image/jpeg"},
		"slave, other extension": {s.Slave(small, "_b", "txt", s.Bytes(300)), storetest.Changed, "text/plain"},
		"appender":               {s.Appender("log", s.Bytes(3000)), storetest.Changed, "text/plain"},
		"trunk slot":             {s.Trunk("jpg", s.Bytes(2000)), storetest.Created, "image/jpeg"},
		"next trunk slot":        {s.Trunk("txt", s.Bytes(70000)), storetest.Created, "text/plain"},
		"empty trunk slot":       {s.Trunk("txt", nil), storetest.Created, "text/plain"},
		"trunk link":             {s.TrunkLink(small), storetest.Created, "image/jpeg"},
		"symbolic link":          {linked(s, small), storetest.Created, "image/jpeg"},
	}
	p := e2e.Serve(t, s)
	random := rand.New(rand.NewPCG(1, 2))
	for name, f := range files {
		t.Run(name, func(t *testing.T) {
			whole := p.Get(f.URL())
			require.Equal(t, 200, whole.StatusCode, "%s", whole.Body)
			require.True(t, bytes.Equal(f.Content, whole.Body))
			require.EqualValues(t, len(f.Content), whole.ContentLength)
			require.Equal(t, f.kind, whole.Header.Get("Content-Type"))
			require.Equal(t, f.modified.Format(http.TimeFormat), whole.Header.Get("Last-Modified"))
			require.Equal(t, "bytes", whole.Header.Get("Accept-Ranges"))
			head := p.Do("HEAD", f.URL())
			require.Equal(t, 200, head.StatusCode)
			require.Empty(t, head.Body)
			for _, h := range []string{"Content-Length", "Content-Type", "Last-Modified", "ETag", "Accept-Ranges"} {
				require.Equal(t, whole.Header.Get(h), head.Header.Get(h), h)
			}
			for range 20 {
				randomRange(t, p, f.Object, random)
			}
		})
	}
}

// linked is a symbolic link as FastDFS makes them: with the absolute path of its target.
func linked(s *storetest.Store, target storetest.Object) storetest.Object {
	o := s.Link("jpg", target.Path)
	o.Content = target.Content
	return o
}

func randomRange(t *testing.T, p *e2e.Process, f storetest.Object, random *rand.Rand) {
	t.Helper()
	size := len(f.Content)
	if size == 0 {
		return
	}
	first := random.IntN(size)
	last := first + random.IntN(size-first)
	a := p.Get(f.URL(), fmt.Sprintf("Range: bytes=%d-%d", first, last))
	require.Equal(t, 206, a.StatusCode)
	require.True(t, bytes.Equal(f.Content[first:last+1], a.Body), "bytes %d-%d", first, last)
	require.Equal(t, fmt.Sprintf("bytes %d-%d/%d", first, last, size), a.Header.Get("Content-Range"))
}

// TestWhatIsNotServed: freed and reused slots, files that are not there or not whole, and
// everything outside the store.
func TestWhatIsNotServed(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	freed, reused, kept := s.Trunk("txt", []byte("deleted")), s.Trunk("txt", []byte("replaced")),
		s.Trunk("txt", []byte("neighbour"))
	s.Free(freed)
	reuser := s.Reuse(reused, "txt", []byte("newer"))
	short := s.Normal("jpg", s.Bytes(5000))
	require.NoError(t, os.Truncate(short.Path, 4999))
	folder := s.Missing("jpg", storetest.Created)
	require.NoError(t, os.MkdirAll(folder.Path, 0o755))
	canary := filepath.Join(s.Dir, "canary")
	p := e2e.Serve(t, s)
	for name, o := range map[string]storetest.Object{
		"freed slot":                freed,
		"reused slot":               reused,
		"never written":             s.Missing("jpg", storetest.Created),
		"shorter than its id says":  short,
		"a folder":                  folder,
		"link to the canary":        s.Link("jpg", canary),
		"link through dot dot":      s.Link("jpg", "../../../../../canary"),
		"link to a system file":     s.Link("jpg", "/etc/passwd"),
		"link to the store's root":  s.Link("jpg", s.Root(storetest.Group, 0)+"/data"),
		"link to another group":     s.Link("jpg", s.In(storetest.Other, 0, "jpg", []byte("other group")).Path),
		"trunk link to another one": s.TrunkLink(s.TrunkLink(kept)),
	} {
		t.Run(name, func(t *testing.T) {
			a := p.Get(o.URL())
			require.Equal(t, 404, a.StatusCode, "%s", a.Body)
			require.Equal(t, "file not found\n", string(a.Body))
		})
	}
	require.Equal(t, "newer", string(p.Get(reuser.URL()).Body))
	require.Equal(t, "neighbour", string(p.Get(kept.URL()).Body))
}

// TestNothingOutsideTheStore sends what attackers send; the canary beside the store must not be
// seen, and nothing else either.
func TestNothingOutsideTheStore(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	good := s.Normal("jpg", s.Bytes(100))
	require.NoError(t, os.WriteFile(good.Path+"-m", []byte("metadata"), 0o600))
	p := e2e.Serve(t, s)
	ups := []string{"..", "%2e%2e", "..%2f", ".%2e", "%252e%252e", "..;", "..\\", "%c0%ae%c0%ae", "..%00", "....//",
		"..%5c"}
	var targets []string
	for _, up := range ups {
		for _, depth := range []int{1, 3, 5, 9} {
			climb := strings.Repeat(up+"/", depth)
			targets = append(targets, "/"+climb+"canary", "/group1/M00/"+climb+"canary", "/group1/M00/00/0A/"+climb+
				"canary", good.URL()+"/"+climb+"canary",
				"/group1/M00/00/0A/"+climb+good.ID.Name)
		}
	}
	for _, tail := range []string{"-m", "%2dm", "%00", "%00.jpg", "/", "/.", "\\", "::$DATA", "%20", ".", "?", "~"} {
		targets = append(targets, good.URL()+tail)
	}
	targets = append(targets, "/group1/M00/00/0A/000001", "/group1/M00/data/00/0A/"+good.ID.Name,
		"/data/00/0A/"+good.ID.Name, "/"+s.Dir+"/canary", "/group1/M00/00/0A/"+strings.Repeat("A", 300))
	for _, target := range targets {
		a := p.Raw("GET " + target + " HTTP/1.1\r\nHost: gw.test\r\nConnection: close\r\n\r\n")
		require.NotContains(t, a, "canary: this lies", target)
		require.NotContains(t, a, "metadata\r", target)
		require.NotContains(t, a, s.Dir, "no internals in responses to %q", target)
		if !strings.HasPrefix(a, "HTTP/1.1 4") && !strings.HasSuffix(a, string(good.Content)) {
			t.Fatalf("the response to %q is %.200q", target, a)
		}
	}
}

// TestSendfile: every response with bytes of a file over plain TCP leaves by sendfile(2).
func TestSendfile(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	single, packed := s.Normal("mp4", s.Bytes(3<<20)), s.Trunk("mp4", s.Bytes(300000))
	p := e2e.Serve(t, s)
	sent := 0.0
	for _, tt := range []struct {
		url, header string
		fromFile    int
	}{
		{single.URL(), "Accept: */*", 3 << 20},
		{packed.URL(), "Accept: */*", 300000},
		{single.URL(), "Range: bytes=100-200099", 200000},
		{packed.URL(), "Range: bytes=-1000", 1000},
		{packed.URL(), "Range: bytes=0-99,1000-1099", 200},
	} {
		a := p.Get(tt.url, tt.header)
		require.Contains(t, []int{200, 206}, a.StatusCode)
		sent += float64(tt.fromFile)
		eventually.True(t, func() bool { return p.Metric("fdfs_gateway_sendfile_bytes_total") == sent },
			"%s %s: want %v, is %v", tt.url, tt.header, sent, p.Metric("fdfs_gateway_sendfile_bytes_total"))
	}
	eventually.True(t, func() bool { return p.Metric(`fdfs_gateway_requests_total{code="206",source="local"}`) == 1 })
	eventually.True(t, func() bool { return p.Metric(`fdfs_gateway_requests_total{code="206",source="memory"}`) == 2 })
	eventually.True(t, func() bool { return p.Metric("fdfs_gateway_open_files") == 0 }, "all files are given back")
}

// TestManyClients: 64 clients at once, kept connections, every byte right.
func TestManyClients(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	var files []storetest.Object
	for i := range 20 {
		files = append(files, s.Normal("jpg", s.Bytes(1000*i)), s.Trunk("jpg", s.Bytes(777*i)))
	}
	p := e2e.Serve(t, s)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			client := http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 1}}
			defer client.CloseIdleConnections()
			for j := range 30 {
				f := files[(i*7+j)%len(files)]
				resp, err := client.Get("http://" + p.Addrs[0] + f.URL())
				if err != nil {
					t.Error(err)
					return
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != 200 || !bytes.Equal(body, f.Content) {
					t.Errorf("%s: status %d, %d bytes of %d, %v", f.URL(), resp.StatusCode, len(body), len(f.Content),
						err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestURLForms: without the group's name, and with a prefix.
func TestURLForms(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	single := fmt.Sprintf(
		"base_path = %s\nurl_have_group_name = false\ngroup_name = group1\nstore_path_count = 2\nstore_path0 = %s\n"+
			"store_path1 = %s\n"+
			"[gateway]\nlisten = 127.0.0.1:0\nadmin_listen =\n", s.Dir, s.Root("group1", 0), s.Root("group1", 1))
	p := e2e.ServeConfig(t, e2e.WriteConfig(t, single))
	require.Equal(t, 200, p.Get("/"+f.ID.Logic).StatusCode)
	require.Equal(t, 400, p.Get(f.URL()).StatusCode)
	prefixed := e2e.Serve(t, s, "[gateway]", "url_prefix = /files")
	require.Equal(t, 200, prefixed.Get("/files"+f.URL()).StatusCode)
	for _, url := range []string{f.URL(), "/filesx" + f.URL(), "/files", "/files" + f.URL() + "/../x"} {
		require.Contains(t, []int{400, 404}, prefixed.Get(url).StatusCode, url)
	}
}

// TestFileChangesBetweenRequests: appenders and slaves may change; their validators must too.
func TestFileChangesBetweenRequests(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	log := s.Appender("log", []byte("one\n"))
	p := e2e.Serve(t, s)
	before := p.Get(log.URL())
	require.NoError(t, os.WriteFile(log.Path, []byte("two\n"), 0o600))
	require.NoError(t, os.Chtimes(log.Path, storetest.Changed, storetest.Changed.Add(time.Second)))
	after := p.Get(log.URL(), "If-None-Match: "+before.Header.Get("ETag"))
	require.Equal(t, 200, after.StatusCode, "the same size, but another second")
	require.Equal(t, "two\n", string(after.Body))
	require.Equal(t, "one\n"[:3], string(before.Body[:3]))
	stale := p.Get(log.URL(), "Range: bytes=1-", "If-Range: "+before.Header.Get("ETag"))
	require.Equal(t, 200, stale.StatusCode)
	require.NoError(t, os.Remove(log.Path))
	require.Equal(t, 404, p.Get(log.URL()).StatusCode)
}

// TestDeletedFileIsGone: a hot file is 404 at most a second after its deletion, wherever its
// content was served from.
func TestDeletedFileIsGone(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small := s.Normal("jpg", s.Bytes(4096))
	packed, large := s.Trunk("jpg", s.Bytes(4096)), s.Trunk("mp4", s.Bytes(100_000))
	remove := func(o storetest.Object) func() {
		return func() { require.NoError(t, os.Remove(o.Path)) }
	}
	free := func(o storetest.Object) func() { return func() { s.Free(o) } }
	big, slave := s.Normal("mp4", s.Bytes(100_000)), s.Slave(small, "_b", "jpg", s.Bytes(2000))
	p := e2e.Serve(t, s)
	for name, f := range map[string]struct {
		storetest.Object
		delete func()
		source string
	}{
		"small file":       {small, remove(small), "memory"},
		"big file":         {big, remove(big), "local"},
		"slave":            {slave, remove(slave), "memory"},
		"small trunk slot": {packed, free(packed), "memory"},
		"big trunk slot":   {large, free(large), "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			series := fmt.Sprintf(`fdfs_gateway_requests_total{code="200",source="%s"}`, f.source)
			before := p.Metric(series)
			for range 20 {
				require.Equal(t, f.Content, p.Get(f.URL()).Body)
			}
			require.Greater(t, p.Metric(series)-before, 10.0, "it is hot")
			f.delete()
			p.RequireGoneSoon(f.URL())
		})
	}
}
