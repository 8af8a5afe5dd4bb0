package http

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

const oldSecret = "the-secret-of-last-year"

func tokenAt(o storetest.Object, ts int64) string {
	return antisteal.Token(e2e.TokenSecret, o.ID.Logic, ts)
}

func TestDifferencesTokens(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file, now := s.Normal("jpg", s.Bytes(100)), time.Now().Unix()
	p := e2e.Serve(t, s, e2e.TokenKeys()...)
	with := func(name, token, ts string, status int) difference {
		return difference{name: name, url: file.URL() + "?token=" + token + "&ts=" + ts, status: status}
	}
	good, timeless := tokenAt(file, now), tokenAt(file, 0)
	differ(t, p, []difference{
		with("letters behind ts", good, fmt.Sprint(now, "abc"), 400),
		with("ts that is no number", timeless, "abc", 400),
		with("empty ts", timeless, "", 400),
		with("ts and 2^32", good, fmt.Sprint(now+1<<32), 400),
		with("zeros before ts", good, fmt.Sprint("00", now), 400),
		with("two zeros", timeless, "00", 400),
		with("one zero", timeless, "0", 200),
		{name: "escaped letter in the name", url: fmt.Sprint(file.URL(), "?%74oken=", good, "&t%73=", now), status: 200,
			body: file.Content},
		with("blank before ts", good, fmt.Sprint("%20", now), 400),
		{name: "token and ts behind 32 other parameters", status: 200, body: file.Content,
			url: file.URL() + "?" + strings.Repeat("a=b&", 32) + antisteal.Query(e2e.TokenSecret, file.ID.Logic, now)},
	})
}

func TestDifferencesTokenSettings(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file, now := s.Normal("jpg", s.Bytes(100)), time.Now().Unix()
	p := e2e.Serve(t, s, e2e.TokenKeys("[antisteal]", "fail_status = 403", "extra_secrets = "+oldSecret)...)
	differ(t, p, []difference{
		{name: "403 where it is configured", url: file.URL() + "?token=" + strings.Repeat("0", 32) + "&ts=0",
			status: 403, headers: []string{"ETag"}},
		{name: "403 to a missing token", url: file.URL(), status: 403},
		{name: "second secret while keys are changed", url: file.URL() + "?" + antisteal.Query(oldSecret, file.ID.Logic,
			now), status: 200, body: file.Content},
	})
}

func TestDifferencesTokenCheckFail(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	file, missing, now := s.Normal("jpg", s.Bytes(100)), s.Missing("jpg", storetest.Created), time.Now().Unix()
	page := s.Bytes(777)
	path := filepath.Join(t.TempDir(), "rejected.jpg")
	require.NoError(t, os.WriteFile(path, page, 0o600))
	p := e2e.Serve(t, s, e2e.TokenKeys("http.anti_steal.token_check_fail = "+path)...)
	good, wrong := tokenAt(file, now), strings.Repeat("0", 32)
	rejected := func(name, url string, send ...string) difference {
		return difference{name: name, url: url, send: send, status: 200, body: page,
			headers: []string{"Cache-Control: no-store", "Last-Modified", "ETag", "Content-Range", "Accept-Ranges",
				"Content-Type: image/jpeg"}}
	}
	differ(t, p, []difference{
		rejected("wrong token", file.URL()+"?token="+wrong+"&ts=0"),
		rejected("wrong token and a range", file.URL()+"?token="+wrong+"&ts=0", "Range: bytes=1-5"),
		rejected("no token", fmt.Sprint(file.URL(), "?ts=", now)),
		rejected("no ts", file.URL()+"?token="+good),
		rejected("neither", file.URL()),
		rejected("names in capitals", fmt.Sprint(file.URL(), "?Token=", good, "&TS=", now)),
		rejected("neither, and an equal date", file.URL(), "If-Modified-Since: "+httpDate(storetest.Created)),
		rejected("neither, and no such file", missing.URL()),
		rejected("letters behind ts", fmt.Sprint(file.URL(), "?token=", good, "&ts=", now, "abc")),
		{name: "no file id, and a wrong token", url: "/group1/M00/00/0A/short.jpg?token=" + wrong + "&ts=0",
			status: 400},
	})
	t.Run("HEAD has no body", func(t *testing.T) {
		url := file.URL() + "?token=" + wrong + "&ts=0"
		a := talk(p.In(t), e2e.Request("HEAD", url), e2e.Request("GET", url, "Connection: close"))
		require.Equal(t, http.StatusOK, a[0].StatusCode)
		requireHeaders(t, a[0].Header, "Content-Length: 777")
		require.Equal(t, page, a[1].Body)
	})
}
