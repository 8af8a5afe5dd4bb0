package gateway

import (
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver"
	"fastdfs-gateway/internal/httpserver/fileselect"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// redirecting is an Origin that redirects files without an extension, and does not reach the source
// of others.
type redirecting struct{ Origin }

func (redirecting) Find(r *origin.Request, _ error) (redirect string, err error) {
	if r.ID.Ext() == "" {
		return "192.0.2.1", nil
	}
	return "", origin.ErrUnreachable
}

// TestHeadersOfProtocols: a response has the same header fields by HTTP/1 and by HTTP/2, for GET
// and for HEAD, whatever its status is.
func TestHeadersOfProtocols(t *testing.T) {
	s := storetest.New(t)
	file, empty := s.Normal("jpg", s.Bytes(1000)), s.Normal("txt", nil)
	o := Options{Store: openLocal(t, s), Origin: redirecting{}, Index: []byte("index"), RedirectPort: 443,
		HealthPath: "/health", Ready: func() error { return errors.New("not ready") },
		CacheControl: "max-age=60", XCache: true,
		CORS:       CORS{Origins: []string{"https://a.test", "https://b.test"}, Credentials: true, Expose: "ETag"},
		ErrorPages: map[int]*Page{502: {Body: []byte("<p>"), Type: "text/html"}},
		Headers: []HeaderSection{{Files: fileselect.Selector{}, Fields: []HeaderField{{"X-More", "more"},
			{"Vary", "Accept"}, {"Content-Language", "de"}}}}}
	fetch := map[string]func(method, url string, fields http.Header) (*http.Response, string){}
	for _, protocol := range []string{"http/1.1", "h2"} {
		r, config := runTLS(t, o, httpserver.Options{}, time.Minute, protocol)
		var protocols http.Protocols
		protocols.SetHTTP1(protocol != "h2")
		protocols.SetHTTP2(protocol == "h2")
		transport := &http.Transport{TLSClientConfig: config, Protocols: &protocols, DisableCompression: true}
		t.Cleanup(transport.CloseIdleConnections)
		fetch[protocol] = func(method, url string, fields http.Header) (*http.Response, string) {
			req, err := http.NewRequest(method, "https://"+r.address+url, nil)
			require.NoError(t, err)
			req.Header, req.Host = fields, "gw.test"
			resp, err := transport.RoundTrip(req)
			require.NoError(t, err)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, protocol == "h2", resp.ProtoMajor == 2)
			resp.Header.Del("Date")
			return resp, string(body)
		}
	}
	for _, c := range []struct {
		status     int
		url        string
		name, with string
	}{
		{200, file.URL(), "Origin", "https://a.test"}, {200, file.URL() + "?attname=a%0d%0aX:%20b%22.jpg", "A", "b"},
		{200, empty.URL(), "A", "b"}, {200, "/", "Origin", "https://c.test"},
		{304, file.URL(), "If-None-Match", "*"}, {412, file.URL(), "If-Match", `"x"`}, {400, "/x", "A", "b"},
		{302, s.Missing("", time.Now()).URL(), "A", "b"}, {502, s.Missing("jpg", time.Now()).URL(), "A", "b"},
		{503, "/health", "A", "b"},
	} {
		first, body := fetch["http/1.1"]("GET", c.url, http.Header{c.name: {c.with}})
		require.Equal(t, c.status, first.StatusCode, c.url)
		for protocol := range fetch {
			for _, method := range []string{"GET", "HEAD"} {
				got, gotBody := fetch[protocol](method, c.url, http.Header{c.name: {c.with}})
				require.Equal(t, first.StatusCode, got.StatusCode)
				require.Equal(t, first.Header, got.Header, "%s %s by %s", method, c.url, protocol)
				if method == "GET" {
					require.Equal(t, body, gotBody)
				}
			}
		}
	}
}
