package fleet

import (
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParsePeer: the URL of a peer, which comes from Redis, leads only to its host and port, also
// with a path behind it.
func FuzzParsePeer(f *testing.F) {
	for _, seed := range []string{"https://127.0.0.1:8887", "https://h", "http://h", "https://u@h", "https://h?",
		"https://h#", "https://h/a", "https://h\\@i", "https://[::1%25x]:1", "https:h", "//h", "https://h:port"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		u, err := parsePeer(text)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(text), maxName)
		again, err := url.Parse(text + "/entry?id=x")
		require.NoError(t, err, "%q", text)
		require.Equal(t, u.Host, again.Host)
		require.Equal(t, "https", again.Scheme)
		require.Equal(t, "/entry", again.Path, "%q", text)
		require.Nil(t, again.User)
	})
}

// FuzzRecord: parse accepts exactly the records that make returns for the same key and prefix.
func FuzzRecord(f *testing.F) {
	key := derive("the secret of a test", recordKeyInfo)
	mine, other := records{key, "fdfs"}, records{key, "other"}
	f.Add(mine.make("https://10.0.0.1:8887"))
	f.Add(other.make("https://10.0.0.1:8887"))
	f.Add("https://10.0.0.1:8887 ")
	f.Add(mine.make("http://10.0.0.1:8887"))
	f.Fuzz(func(t *testing.T, record string) {
		name, ok := mine.parse(record)
		require.Equal(t, ok, len(record) <= maxRecord && record == mine.make(strings.Split(record, " ")[0]))
		require.True(t, !ok || record == mine.make(name))
		_, ok = records{}.parse(record)
		require.False(t, ok)
	})
}
