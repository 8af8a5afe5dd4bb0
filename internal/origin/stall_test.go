package origin

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/storage/client"

	"github.com/stretchr/testify/require"
)

// TestHTTPSilence: a web server that sends no head, no body or no rest of a body is replaced by
// another one, as a storage is, long before its network timeout.
func TestHTTPSilence(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 100_000)
	for name, sent := range map[string]int{"no head": -1, "no body": 0, "in the middle": 300_000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			hosts := listen(t, "127.0.0.32", "127.0.0.33")
			var end sync.WaitGroup
			end.Add(1)
			frozen := newFakeWeb(t, hosts[0], func(w io.Writer, r *http.Request) {
				if sent >= 0 {
					whole := &bytes.Buffer{}
					serveFile(content, nil)(whole, r)
					head := bytes.Index(whole.Bytes(), []byte("\r\n\r\n")) + 4
					_, _ = w.Write(whole.Next(head + sent))
				}
				end.Wait()
			})
			t.Cleanup(end.Done) // runs before the cleanups that wait for the servers
			good := newFakeWeb(t, hosts[1], serveFile(content, nil))
			o := newOrigin(t, good)
			w := wanted(t, content)
			info, err := o.Stat(t.Context(), w, []client.Server{good.server})
			require.NoError(t, err)
			info.From = client.Server{}
			began := time.Now()
			stream, err := o.Open(t.Context(), w, info, []client.Server{frozen.server, good.server})
			require.NoError(t, err)
			got, err := io.ReadAll(stream)
			require.NoError(t, err)
			require.Less(t, time.Since(began), testTimeout/2, "its own timeout was not waited for")
			require.True(t, bytes.Equal(content, got))
			require.NoError(t, stream.Close())
			blamed := o.Health()[0] // a probe that has succeeded since then would make it healthy again
			require.Equal(t, frozen.server, blamed.Server)
			require.Error(t, blamed.LastError)
			require.Equal(t, uint64(1), o.Stats().Failures)
			good.mu.Lock()
			defer good.mu.Unlock()
			asked := good.requests[len(good.requests)-1].Header.Get("Range")
			if sent > 0 {
				require.Equal(t, "bytes=300000-999999", asked)
				require.Equal(t, uint64(1), o.Stats().Resumes)
			} else {
				require.Empty(t, asked)
			}
		})
	}
}
