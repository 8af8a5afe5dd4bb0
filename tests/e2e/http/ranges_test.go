package http

import (
	"bytes"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestDifferencesRanges: ranges, several ranges, HEAD and conditions.
func TestDifferencesRanges(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s)
	differentRanges(t, s, p)
	differentRangesIgnored(t, s, p)
	differentMultipart(t, s, p)
	differentHead(t, s, p)
	differentConditions(t, s, p)
	differentIfRange(t, s, p)
}

func differentRanges(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file, empty := s.Normal("bin", s.Bytes(1000)), s.Normal("txt", nil)
	zeros := strings.Repeat("0", 80)
	part := func(name, value, contentRange string, body []byte) difference {
		return difference{name: name, url: file.URL(), send: []string{"Range: " + value}, status: 206,
			headers: []string{"Content-Range: " + contentRange, "Content-Length: " + strconv.Itoa(len(body))},
			body:    body}
	}
	unsatisfiable := func(name string, o storetest.Object, value, size string) difference {
		return difference{name: name, url: o.URL(), send: []string{"Range: " + value}, status: 416,
			headers: []string{"Content-Range: bytes */" + size, "Content-Disposition", "ETag"}}
	}
	differ(t, p, []difference{
		part("first byte alone", "bytes=0-0", "bytes 0-0/1000", file.Content[:1]),
		part("value of more than 64 characters", "bytes="+zeros+"1-"+zeros+"5", "bytes 1-5/1000", file.Content[1:6]),
		part("comma at the end", "bytes=0-5,", "bytes 0-5/1000", file.Content[:6]),
		part("comma at the start", "bytes=,0-5", "bytes 0-5/1000", file.Content[:6]),
		part("unsatisfiable part behind", "bytes=1-5,1000-1010", "bytes 1-5/1000", file.Content[1:6]),
		part("unsatisfiable part before", "bytes=1000-1010,1-5", "bytes 1-5/1000", file.Content[1:6]),
		part("suffix of zero bytes as a part", "bytes=-0,1-5", "bytes 1-5/1000", file.Content[1:6]),
		unsatisfiable("suffix of zero bytes", file, "bytes=-0", "1000"),
		unsatisfiable("416 says the size", file, "bytes=1000-", "1000"),
		unsatisfiable("416 says the size of an empty file", empty, "bytes=0-0", "0"),
		unsatisfiable("416 for a start beyond 64 bits", file, "bytes=99999999999999999999-", "1000"),
		unsatisfiable("416 for several parts", file, "bytes=1000-,2000-", "1000"),
	})
}

// differentRangesIgnored: the gateway ignores Range fields that are invalid or request too
// much, and sends the whole file. The module rejects or misreads them.
func differentRangesIgnored(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file := s.Normal("bin", s.Bytes(1000))
	small, slot := s.Normal("txt", s.Bytes(41)), s.Trunk("txt", s.Bytes(300))
	seventeen := "bytes=0-0"
	for i := 2; i <= 32; i += 2 {
		seventeen += "," + strconv.Itoa(i) + "-" + strconv.Itoa(i)
	}
	tests := []struct{ name, value string }{
		{"last before first", "bytes=7-3"},
		{"last before first in a part", "bytes=1-5,7-3"},
		{"other unit", "items=0-5"},
		{"no equals sign", "bytesX0-5"},
		{"letters", "bytes=abc-def"},
		{"empty", "bytes="},
		{"only a dash", "bytes=-"},
		{"no dash", "bytes=5"},
		{"three numbers", "bytes=1-2-3"},
		{"two dashes", "bytes=--5"},
		{"plus signs", "bytes=+1-+5"},
		{"hexadecimal", "bytes=0x1-0x5"},
		{"blanks beside the equals sign", "bytes = 0-5"},
		{"one character", "x"},
		{"whole file five times", "bytes=0-,0-,0-,0-,0-"},
		{"more bytes than the file has", "bytes=0-,1-"},
		{"three ranges that overlap", "bytes=0-9,5-14,7-20"},
		{"seventeen ranges", seventeen},
	}
	cases := make([]difference, 0, len(tests)+1)
	for _, tt := range tests {
		cases = append(cases, wholeFile(tt.name, file, "Range: "+tt.value))
	}
	differ(t, p, append(cases, wholeFile("two Range lines", file, "Range: bytes=0-5", "Range: bytes=7-9"),
		wholeFile("parts longer than the file", small, "Range: bytes=0-0,2-2"),
		wholeFile("parts longer than the slot", slot, "Range: bytes=0-0,2-2,4-4")))
}

// wholeFile returns a request, and the whole file with 200 as its response.
func wholeFile(name string, o storetest.Object, send ...string) difference {
	return difference{name: name, url: o.URL(), send: send, status: 200,
		headers: []string{"Content-Range", "Content-Length: " + strconv.Itoa(len(o.Content))},
		body:    o.Content}
}

func differentMultipart(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file := s.Normal("jpg", s.Bytes(5000))
	tests := []struct {
		name, value string
		parts       []string
	}{
		{"first byte as a part", "bytes=0-0,-1", []string{"0-0", "4999-4999"}},
		{"six ranges", "bytes=1-2,4-5,7-8,10-11,13-14,16-17", []string{"1-2", "4-5", "7-8", "10-11", "13-14", "16-17"}},
		{"sixteen ranges",
			"bytes=1-1,3-3,5-5,7-7,9-9,11-11,13-13,15-15,17-17,19-19,21-21,23-23,25-25,27-27,29-29,31-31",
			[]string{"1-1", "3-3", "5-5", "7-7", "9-9", "11-11", "13-13", "15-15", "17-17", "19-19", "21-21", "23-23",
				"25-25", "27-27", "29-29", "31-31"}},
		{"two of three satisfiable", "bytes=1-2,5000-,4-5", []string{"1-2", "4-5"}},
	}
	seen, byHTTP2 := map[string]bool{}, p.OverHTTP2()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, p := range []*e2e.Process{p, byHTTP2} {
				a := p.In(t).Get(file.URL(), "Range: "+tt.value)
				require.Equal(t, http.StatusPartialContent, a.StatusCode)
				requireHeaders(t, a.Header, "Content-Range", "Content-Length: "+strconv.Itoa(len(a.Body)))
				boundary, parts := readParts(t, a, file)
				require.Equal(t, tt.parts, parts)
				require.NotRegexp(t, `\A[0-9]+\z`, boundary, "the module takes the time")
				require.False(t, seen[boundary], "boundary comes again")
				seen[boundary] = true
			}
		})
	}
}

// readParts checks each part of a multipart response against the file and returns the ranges sent.
func readParts(t *testing.T, a e2e.Response, file storetest.Object) (boundary string, ranges []string) {
	t.Helper()
	typ, params, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	require.NoError(t, err)
	require.Equal(t, "multipart/byteranges", typ)
	for r := multipart.NewReader(bytes.NewReader(a.Body), params["boundary"]); ; {
		part, err := r.NextRawPart()
		if err == io.EOF {
			return params["boundary"], ranges
		}
		require.NoError(t, err)
		require.Equal(t, "image/jpeg", part.Header.Get("Content-Type"))
		var first, last int
		scan(t, part.Header.Get("Content-Range"), "bytes %d-%d/5000", &first, &last)
		body, err := io.ReadAll(part)
		require.NoError(t, err)
		require.Equal(t, file.Content[first:last+1], body)
		ranges = append(ranges, strconv.Itoa(first)+"-"+strconv.Itoa(last))
	}
}

func TestDifferencesMultiRangeOff(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file := s.Normal("jpg", s.Bytes(1000))
	p := e2e.Serve(t, s, "http.multi_range.enabled = false")
	differ(t, p, []difference{wholeFile("several ranges get the whole file", file, "Range: bytes=0-5,10-15")})
}

func differentHead(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file := s.Normal("jpg", s.Bytes(1000))
	tag := p.Get(file.URL()).Header.Get("ETag")
	head := func(name, field string) difference {
		return difference{name: name, method: "HEAD", url: file.URL(), send: []string{field}, status: 200,
			headers: []string{"Content-Length: 1000", "Content-Type: image/jpeg", "Content-Range",
				"Accept-Ranges: bytes", "ETag: " + tag}}
	}
	differ(t, p, []difference{
		head("range", "Range: bytes=1-5"),
		head("several ranges", "Range: bytes=0-5,10-15"),
		head("unsatisfiable range", "Range: bytes=1000-"),
	})
}

func differentConditions(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file := s.Normal("jpg", s.Bytes(1000))
	tag, at := p.Get(file.URL()).Header.Get("ETag"), storetest.Created
	date, older, newer := httpDate(at), httpDate(at.Add(-time.Hour)), httpDate(at.Add(time.Hour))
	unchanged := func(name string, send ...string) difference {
		return difference{name: name, url: file.URL(), send: send, status: 304, body: []byte{},
			headers: []string{"ETag: " + tag, "Content-Type", "Content-Range"}}
	}
	failed := func(name string, send ...string) difference {
		return difference{name: name, url: file.URL(), send: send, status: 412, body: []byte("precondition failed\n"),
			headers: []string{"Content-Length: 20"}}
	}
	differ(t, p, []difference{
		unchanged("date newer than the file", "If-Modified-Since: "+newer),
		unchanged("date in RFC 850 form", "If-Modified-Since: "+at.Format("Monday, 02-Jan-06 15:04:05 GMT")),
		unchanged("date in asctime form", "If-Modified-Since: "+at.Format(time.ANSIC)),
		unchanged("If-None-Match *", "If-None-Match: *"),
		unchanged("If-None-Match with the tag", "If-None-Match: "+tag),
		unchanged("If-None-Match with the tag as a weak one", "If-None-Match: W/"+tag),
		unchanged("If-None-Match with the tag in a list", `If-None-Match: "a", `+tag),
		unchanged("If-None-Match on two lines", `If-None-Match: "a"`, "If-None-Match: "+tag),
		unchanged("If-None-Match decides over the date", "If-None-Match: "+tag, "If-Modified-Since: "+older),
		wholeFile("another tag decides over an equal date", file, `If-None-Match: "a"`, "If-Modified-Since: "+date),
		wholeFile("date with a length behind it", file, "If-Modified-Since: "+date+"; length=5"),
		wholeFile("date on two lines", file, "If-Modified-Since: "+date, "If-Modified-Since: "+date),
		wholeFile("If-Match with the tag", file, "If-Match: "+tag),
		wholeFile("If-Match decides over the date", file, "If-Match: "+tag, "If-Unmodified-Since: "+older),
		failed("If-Match with another tag", `If-Match: "a"`),
		failed("If-Match with the tag as a weak one", "If-Match: W/"+tag),
		failed("If-Match before If-None-Match", `If-Match: "a"`, "If-None-Match: "+tag),
		failed("If-Unmodified-Since before the file's date", "If-Unmodified-Since: "+older),
		{name: "equal date of a file that is not there", url: s.Missing("jpg", at).URL(),
			send: []string{"If-Modified-Since: " + date}, status: 404},
	})
}

func differentIfRange(t *testing.T, s *storetest.Store, p *e2e.Process) {
	t.Helper()
	file, fresh := s.Normal("jpg", s.Bytes(1000)), s.Appender("log", s.Bytes(1000))
	tag, at := p.Get(file.URL()).Header.Get("ETag"), storetest.Created
	const field = "Range: bytes=1-5"
	differ(t, p, []difference{
		{name: "the tag", url: file.URL(), send: []string{field, "If-Range: " + tag}, status: 206,
			body: file.Content[1:6]},
		wholeFile("another tag", file, field, `If-Range: "a"`),
		wholeFile("the tag as a weak one", file, field, "If-Range: W/"+tag),
		wholeFile("a list of tags", file, field, "If-Range: "+tag+", "+tag),
		wholeFile("an older date", file, field, "If-Range: "+httpDate(at.Add(-time.Second))),
		wholeFile("a newer date", file, field, "If-Range: "+httpDate(at.Add(time.Second))),
		wholeFile("no validator", file, field, "If-Range: yes"),
		wholeFile("on two lines", file, field, "If-Range: "+tag, "If-Range: "+tag),
	})
	t.Run("date of a file that changed just now", func(t *testing.T) {
		for range 10 {
			now := time.Now()
			require.NoError(t, os.Chtimes(fresh.Path, now, now))
			a := p.In(t).Get(fresh.URL(), field, "If-Range: "+httpDate(now))
			if time.Since(now) < time.Second { // else this host is too busy for the test
				require.Equal(t, http.StatusOK, a.StatusCode)
				require.Equal(t, fresh.Content, a.Body)
				return
			}
		}
		t.Skip("ten requests took more than a second each")
	})
}
