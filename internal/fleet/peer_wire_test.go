package fleet

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"

	"github.com/stretchr/testify/require"
)

// FuzzEntryRequest: a request is read as it was written, and parseEntryRequest accepts no other
// form.
func FuzzEntryRequest(f *testing.F) {
	for _, r := range []cache.PeerRequest{
		{Key: testKey}, {Key: testKey, Want: &testVersion, Offset: 5},
		{Key: cache.SegmentKey{File: "a b&c?\x7f\xff//../%", Index: 7}, Copy: true},
		{Key: cache.SegmentKey{File: "f", Index: cache.MetaOnly}, MaxAge: time.Second},
		{Key: cache.SegmentKey{File: "f", Index: cache.Whole}, Offset: 2 * cache.SegmentSize},
	} {
		text, err := json.Marshal(entryRequest{r, 77})
		require.NoError(f, err)
		f.Add(r.Key.File, string(text))
		r.Key.File = ""
		text, err = json.Marshal(entryRequest{r, 77})
		require.NoError(f, err)
		f.Add(testFile, string(text))
		f.Add(strings.Repeat("a", maxFile+1), string(text))
	}
	for _, numbers := range [][]any{{"9223372036854775808", 0, 0, 0}, {0, -1, 0, 0}, {-2, 0, -1, 1 << 53}} {
		const form = `{"Key":{"File":"","Index":%v},"Want":null,"Offset":%d,"MaxAge":%d,"Copy":false,"Purge":%d}`
		f.Add("f", fmt.Sprintf(form, numbers...))
	}
	peer, err := parsePeer(otherGateway)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, file, text string) {
		sent := &http.Request{
			Method: http.MethodGet,
			URL:    &url.URL{Path: entryPath + file},
			Header: http.Header{requestHeader: {text}},
		}
		r, err := parseEntryRequest(sent)
		if err != nil {
			require.ErrorIs(t, err, errRequest)
			return
		}
		require.Equal(t, file, r.Key.File)
		require.True(t, r.Key.Index >= cache.Whole && r.Offset >= 0 && r.MaxAge >= 0 && r.Purge >= 0)
		require.True(t, r.Offset <= cache.SegmentSize || r.Key.Index == cache.Whole)
		require.True(t, r.Want == nil || r.Want.Size >= 0)
		made := r.make(t.Context(), peer)
		require.Equal(t, text, made.Header.Get(requestHeader))
		require.Equal(t, "10.0.0.2:8887", made.URL.Host)
		arrived, err := url.ParseRequestURI(made.URL.RequestURI())
		require.NoError(t, err)
		require.Equal(t, &url.URL{Path: entryPath + file, RawPath: arrived.RawPath}, arrived, "no part is lost")
	})
}

// TestWire: requests and heads keep their form, so that gateways of two versions understand each
// other.
func TestWire(t *testing.T) {
	peer, err := parsePeer(otherGateway)
	require.NoError(t, err)
	r := entryRequest{
		cache.PeerRequest{Key: testKey, Want: &testVersion, Offset: 5, MaxAge: time.Second, Copy: true},
		77,
	}
	made := r.make(t.Context(), peer)
	require.Equal(t, "https://10.0.0.2:8887/entry/"+testFile, made.URL.String())
	require.Equal(
		t,
		`{"Key":{"File":"","Index":0},"Want":{"Size":3145728,"ModTime":1767225600000000000,"CRC32":3735928559,`+
			`"Immutable":true,"Linked":false},"Offset":5,"MaxAge":1000000000,"Copy":true,"Purge":77}`,
		made.Header.Get(requestHeader),
	)
	head, err := json.Marshal(entryHead{Version: testVersion})
	require.NoError(t, err)
	require.Equal(t, testHead, string(head))
}
