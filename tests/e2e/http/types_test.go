package http

import (
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// TestDifferencesContentType: the type comes from [types], from mime.types or from the built-in
// table, in this order, in whole responses and in the parts of multipart responses.
func TestDifferencesContentType(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s, "[gateway]", "charset = utf-8", "[types]", "mp4 = video/own", "log = text/plain; charset=gbk")
	for _, tt := range []struct{ name, ext, want string }{
		{"built-in table", "webp", "image/webp"},
		{"built-in table, capitals", "WEBP", "image/webp"},
		{"built-in table beside a file", "m3u8", "application/vnd.apple.mpegurl"},
		{"better than nginx", "bmp", "image/bmp"},
		{"the file", "jpg", "image/jpeg"},
		{"types beats the file", "mp4", "video/own"},
		{"charset of a text type", "txt", "text/plain; charset=utf-8"},
		{"charset of its own", "log", "text/plain; charset=gbk"},
		{"unknown extension", "qqq", "application/octet-stream"},
		{"no extension", "", "application/octet-stream"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, f := range []storetest.Object{s.Normal(tt.ext, s.Bytes(1000)), s.Trunk(tt.ext, s.Bytes(1000))} {
				a := p.In(t).Get(f.URL())
				require.Equal(t, 200, a.StatusCode)
				require.Equal(t, tt.want, a.Header.Get("Content-Type"))
				require.Equal(t, "nosniff", a.Header.Get("X-Content-Type-Options"))
				parts := p.In(t).Get(f.URL(), "Range: bytes=0-1,5-6")
				require.Equal(t, 206, parts.StatusCode)
				require.Contains(t, string(parts.Body), "\r\nContent-Type: "+tt.want+"\r\n")
			}
		})
	}
	require.Equal(t, "text/plain", e2e.Serve(t, s).Get(s.Normal("txt", s.Bytes(10)).URL()).Header.Get("Content-Type"),
		"no charset unless one is set")
}
