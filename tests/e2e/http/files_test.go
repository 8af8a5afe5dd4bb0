package http

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestEveryKindOfFile: the gateway serves each kind of file whole, to HEAD, and in random ranges.
func TestEveryKindOfFile(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	small := s.Normal("jpg", s.Bytes(4096))
	legacy, legacySlot := s.Legacy("jpg", s.Bytes(5000)) // ids of FastDFS 5.x
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
		"legacy CRC32":           {legacy, storetest.Created, "image/jpeg"},
		"legacy CRC32 of a slot": {legacySlot, storetest.Created, "image/jpeg"},
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

// linked returns a symbolic link as FastDFS makes them: with the absolute path of its target.
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

// TestNothingOutsideTheStore: no target that attackers send leads to the canary beside the store,
// to other bytes than those of a file, or to the path of the store in a response.
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

// TestURLForms: the gateway serves URLs without the name of the group, and with a prefix, if the
// configuration says so.
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
