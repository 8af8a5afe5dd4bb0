package http

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// scan reads numbers from text in a format.
func scan(t testing.TB, text, format string, into ...any) {
	t.Helper()
	_, err := fmt.Sscanf(text, format, into...)
	require.NoError(t, err, text)
}

func differentFileNames(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file := s.Normal("jpg", s.Bytes(100))
	tests := []struct{ name, query, disposition string }{
		{"UTF-8", "filename=%E6%B5%8B%E8%AF%95.jpg",
			`attachment; filename="__.jpg"; filename*=UTF-8''%E6%B5%8B%E8%AF%95.jpg`},
		{"UTF-8 that is not escaped", "filename=caf\xc3\xa9.txt",
			`attachment; filename="caf_.txt"; filename*=UTF-8''caf%C3%A9.txt`},
		{"bytes that are no UTF-8", "filename=a%FFb.jpg", `attachment; filename="a_b.jpg"`},
		{"double quote", "filename=a%22b.jpg", `attachment; filename="a_b.jpg"; filename*=UTF-8''a%22b.jpg`},
		{"backslash", "filename=a%5Cb.jpg", `attachment; filename="a_b.jpg"`},
		{"CR LF and a header", "filename=x%0D%0AX-Injected:%20yes", `attachment; filename="xX-Injected: yes"`},
		{"CR LF CR LF and a body", "filename=x%0D%0A%0D%0A%3Cscript%3E", `attachment; filename="x<script>"`},
		{"LF", "filename=a%0Ab", `attachment; filename="ab"`},
		{"tab", "filename=a%09b", `attachment; filename="ab"`},
		{"NUL", "filename=a%00b.jpg", `attachment; filename="ab.jpg"`},
		{"C1 control character", "filename=a%C2%85b", `attachment; filename="ab"`},
		{"empty", "filename=", "attachment"},
		{"path", "filename=..%2F..%2Fetc%2Fpasswd", `attachment; filename=".._.._etc_passwd"`},
		{"malformed escape", "filename=%zz.jpg", `attachment; filename="_zz.jpg"; filename*=UTF-8''%25zz.jpg`},
		{"300 characters", "filename=" + strings.Repeat("x", 300) + ".pdf", `attachment; filename="` +
			strings.Repeat("x", 251) + `.pdf"`},
		{"3000 characters", "filename=" + strings.Repeat("x", 3000), `attachment; filename="` +
			strings.Repeat("x", 255) + `"`},
		{"attname", "attname=a.jpg", `attachment; filename="a.jpg"`},
		{"filename before attname", "attname=a.jpg&filename=b.jpg", `attachment; filename="b.jpg"`},
		{"behind 40 other parameters", strings.Repeat("a=b&", 40) + "filename=a.jpg", `attachment; filename="a.jpg"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := talk(p.In(t), e2e.Request("GET", file.URL()+"?"+tt.query, "Connection: close"))[0]
			require.Equal(t, 200, a.StatusCode)
			requireHeaders(t, a.Header, "Content-Disposition: "+tt.disposition, "X-Injected")
			require.Equal(t, file.Content, a.Body)
		})
	}
}

// TestDifferencesPaths: paths and queries.
func TestDifferencesPaths(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s)
	differentPaths(t, s, p)
	differentFileNames(t, s, p)
	differentRedirectMark(t, s, p)
	differentFLV(t, s, p)
}

func differentPaths(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file, packed := s.Normal("jpg", s.Bytes(100)), s.Trunk("jpg", s.Bytes(100))
	for _, o := range []storetest.Object{file, packed} {
		meta := strings.TrimSuffix(file.Path, file.ID.Name) + o.ID.Name + "-m"
		require.NoError(t, os.WriteFile(meta, []byte("width\x02100"), 0o600))
	}
	outside, short := s.Link("txt", s.Dir+"/canary"), s.Normal("jpg", s.Bytes(100))
	require.NoError(t, os.Truncate(short.Path, 60))
	logic := "/" + file.ID.Logic
	differ(t, p, []difference{
		{name: "metadata of a file", url: file.URL() + "-m", status: 400},
		{name: "metadata of a packed file", url: packed.URL() + "-m", status: 400},
		{name: "metadata of a file, escaped", url: file.URL() + "%2Dm", status: 400},
		{name: "link out of the store", url: outside.URL(), status: 404},
		{name: "size on disk that is not the one in the id", url: short.URL(), status: 404},
		{name: "spare bits of a file", url: withSpareBit(file), status: 400},
		{name: "spare bits of a packed file", url: withSpareBit(packed), status: 400},
		{name: "unknown group", url: "/group9" + logic, status: 404},
		{name: "group in capitals", url: "/GROUP1" + logic, status: 404},
		{name: "longer than any id", url: file.URL() + strings.Repeat("A", 84), status: 400},
		{name: "600 characters", url: file.URL() + strings.Repeat("A", 600), status: 400},
		{name: "escaped question mark", url: file.URL() + "%3Fa=b", status: 400},
		{name: "escaped hash sign", url: file.URL() + "%23", status: 400},
		{name: "escaped hash sign with text behind", url: file.URL() + "%23a", status: 400},
		{name: "escaped CR LF", url: file.URL() + "%0D%0AX-Injected:%20yes", status: 400,
			headers: []string{"X-Injected", "Location"}},
		{name: "blank at the end", url: file.URL() + "%20", status: 400},
		{name: "semicolon parameter", url: file.URL() + ";x=1", status: 400},
		wholeFileAt("query of 470 characters", file, "?x="+strings.Repeat("y", 470)),
		wholeFileAt("query of 4200 characters", file, "?x="+strings.Repeat("y", 4200)),
	})
}

// withSpareBit returns the URL of a file with one bit set in the 27th character of the name. The
// bit belongs to no field: the character is one of A, E, I, ... 4, 8.
func withSpareBit(o storetest.Object) string {
	b := []byte(o.URL())
	b[len(b)-len(o.ID.Name)+26]++
	return string(b)
}

// wholeFileAt returns a request with a query, and the whole file as its response.
func wholeFileAt(name string, o storetest.Object, query string) difference {
	d := wholeFile(name, o)
	d.url += query
	return d
}

func TestDifferencesGroupOfTheHost(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file, other := s.Normal("jpg", s.Bytes(100)), s.In(storetest.Other, 0, "jpg", s.Bytes(100))
	p := e2e.Serve(t, s, "url_have_group_name = false", "group_count = 0", "store_path_count = 2",
		"store_path0 = "+s.Root(storetest.Group, 0), "store_path1 = "+s.Root(storetest.Group, 1))
	require.Equal(t, file.Content, p.Get("/"+file.ID.Logic).Body)
	differ(t, p, []difference{
		{name: "id of another group without the group's name", url: "/" + other.ID.Logic, status: 404},
	})
}

// TestDifferencesEdgePaths: a gateway without a store rejects ids that no storage of it can have.
// The downloads of the storages show which requests have reached them.
func TestDifferencesEdgePaths(t *testing.T) {
	t.Parallel()
	c := e2e.NewCluster(t, fdfstest.Options{})
	content := e2e.RandomContent(100)
	id := e2e.Put(t, c, fdfstest.FileSpec{Group: "group1", Content: content, Ext: "jpg", Created: e2e.LongAgo})
	p := e2e.Edge(t, c)
	require.Equal(t, content, p.Get(e2e.Path(id)).Body)
	inOtherGroup := strings.Replace(e2e.Path(id), "/group1/", "/group2/", 1)
	differ(t, p, []difference{
		{name: "path index that no storage has", url: strings.Replace(e2e.Path(id), "/M00/", "/M0F/", 1), status: 404},
		{name: "id under the name of another group", url: inOtherGroup, status: 404},
		{name: "id without its group", url: "/" + id.Logic, status: 400},
	})
	require.EqualValues(t, 1, c.Downloads(id).Downloads, "only the first request got the file")
}

// TestDifferencesSources: the gateway does not connect to an unlisted host that an id names as its
// source. The client that made the URL can choose that address.
func TestDifferencesSources(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s)
	_, port, err := net.SplitHostPort(p.Addrs[0])
	require.NoError(t, err)
	const unlisted = "127.9.9.9" // an address of loopback, so that a connection would be seen
	ln, err := net.Listen("tcp", net.JoinHostPort(unlisted, port))
	require.NoError(t, err)
	defer ln.Close()
	address, id := fdfs.Source(netip.MustParseAddr(unlisted).As4()), fdfstest.IDSource(12345)
	differ(t, p, []difference{
		{name: "address of an unlisted host", url: "/" + e2e.IDFrom(t, address, "group1"), status: 404},
		{name: "unlisted host in an unknown group", url: "/" + e2e.IDFrom(t, address, "group9"), status: 404},
		{name: "unknown storage id", url: "/" + e2e.IDFrom(t, id, "group1"), status: 404},
	})
	require.NoError(t, ln.(*net.TCPListener).SetDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = ln.Accept()
	require.True(t, errors.Is(err, os.ErrDeadlineExceeded), "a connection to the unlisted host was made")
}

func differentRedirectMark(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	old, young := s.Missing("jpg", storetest.Created), s.Missing("jpg", time.Now())
	differ(t, p, []difference{
		{name: "mark on a file that is not here", url: old.URL() + "?redirect=1", status: 404,
			headers: []string{"Location", "Retry-After"}},
		{name: "mark on a file that may still come", url: young.URL() + "?redirect=1", status: 404,
			headers: []string{"Location", "Retry-After: 5"}},
		{name: "other value", url: old.URL() + "?redirect=0", status: 404,
			headers: []string{"Location", "Retry-After"}},
		{name: "empty value", url: old.URL() + "?redirect=", status: 404, headers: []string{"Location", "Retry-After"}},
	})
}

func TestDifferencesRetryAfter(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	old, young := s.Missing("jpg", time.Now().Add(-2*time.Hour)), s.Missing("jpg", time.Now().Add(-30*time.Minute))
	ahead, future := s.Missing("jpg", time.Now().Add(4*time.Minute)), s.Missing("jpg", time.Now().Add(time.Hour))
	p := e2e.Serve(t, s, "storage_sync_file_max_delay = 3600")
	differ(t, p, []difference{
		{name: "while the file may still come", url: young.URL(), status: 404, headers: []string{"Retry-After: 5"}},
		{name: "while the file may still come, by a clock that is ahead", url: ahead.URL(), status: 404,
			headers: []string{"Retry-After: 5"}},
		{name: "not when it should have come", url: old.URL(), status: 404, headers: []string{"Retry-After"}},
		{name: "not when it claims to come from the future", url: future.URL(), status: 404,
			headers: []string{"Retry-After"}},
	})
}

func differentFLV(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	film := s.Normal("flv", s.Bytes(1000))
	differ(t, p, []difference{
		{name: "one byte", url: film.URL() + "?start=0&end=1", status: 200, headers: []string{"Content-Length: 1"},
			body: film.Content[:1]},
		wholeFileAt("negative start", film, "?start=-5"),
	})
	piece := append([]byte("FLV\x01\x01\x00\x00\x00\x09\x00\x00\x00\x09"), film.Content[100:]...)
	whole, tag := p.Get(film.URL()).Header.Get("ETag"), p.Get(film.URL()+"?start=100").Header.Get("ETag")
	require.NotEqual(t, whole, tag)
	require.NotEqual(t, tag, p.Get(film.URL()+"?start=101").Header.Get("ETag"))
	url := film.URL() + "?start=100"
	differ(t, p, []difference{
		{name: "the tag of the whole film is not that of a piece", url: url, send: []string{"If-None-Match: " + whole},
			status: 200, body: piece},
		{name: "the tag of the piece", url: url, send: []string{"If-None-Match: " + tag}, status: 304},
		{name: "a range is one of the piece", url: url, send: []string{"Range: bytes=5-22", "If-Range: " + tag},
			status:  206,
			headers: []string{"Content-Range: bytes 5-22/913"}, body: piece[5:23]},
		{name: "a range within the header", url: url, send: []string{"Range: bytes=1-2"}, status: 206,
			headers: []string{"Content-Range: bytes 1-2/913"}, body: piece[1:3]},
		{name: "the end of the piece", url: url, send: []string{"Range: bytes=-10"}, status: 206,
			headers: []string{"Content-Range: bytes 903-912/913"}, body: piece[903:]},
		{name: "a bad start comes before conditions", url: film.URL() + "?start=5000",
			send: []string{"If-None-Match: *"}, status: 400},
	})
}
