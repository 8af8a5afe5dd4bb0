package http

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// secretText is the content of the slots of another user.
const secretText = "secret of another user\n"

// slotConfigs are configurations that differ in how the gateway keeps and sends the content of
// slots.
var slotConfigs = map[string][]string{
	"by default":           nil,
	"nothing in memory":    {"[open_file_cache]", "memory = 0"},
	"nothing is kept open": {"[open_file_cache]", "max_files = 0", "memory = 0"},
	"looked at each time":  {"[open_file_cache]", "valid = 0", "memory = 0"},
	"little memory":        {"[open_file_cache]", "memory = 8MB"},
}

var slotSizes = []int{20_000, 64 << 10, 900_000, 5 << 20, 16<<20 - fdfs.SlotHeaderSize}

// slowResponse is a response that a client has begun to read.
type slowResponse struct {
	conn   net.Conn
	header string
	resp   *http.Response
	got    []byte
}

// slow sends a request and reads the head and the first bytes of the response. A 503 means that
// slots overwritten before have used up the checks of that second: then the request is sent again.
func slow(p *e2e.Process, url, version, header string, config *tls.Config) (s *slowResponse) {
	p.T.Helper()
	eventually.True(p.T, func() bool {
		c := p.Dial()
		if config != nil {
			c = tls.Client(c, config)
		}
		_, err := fmt.Fprintf(c, "GET %s %s\r\nHost: h\r\n%s\r\nConnection: close\r\n\r\n", url, version, header)
		require.NoError(p.T, err)
		s = &slowResponse{conn: c, header: header}
		s.resp, err = http.ReadResponse(bufio.NewReaderSize(c, 16), nil)
		require.NoError(p.T, err)
		if s.resp.StatusCode == 503 && s.resp.Header.Get("Retry-After") != "" {
			require.NoError(p.T, c.Close())
			return false
		}
		require.Contains(p.T, []int{200, 206}, s.resp.StatusCode)
		return true
	})
	s.got = make([]byte, 10)
	_, err := io.ReadFull(s.resp.Body, s.got)
	require.NoError(p.T, err)
	return s
}

// rest reads the remaining bytes, up to an abort, and returns the whole body.
func (s *slowResponse) rest() []byte {
	rest, _ := e2e.ReadBody(s.resp) // an error is the end of a response that was cut
	_ = s.conn.Close()
	return append(s.got, rest...)
}

// overwrite replaces the content of a slot by that of another user; the slot's header stays.
func overwrite(t *testing.T, slot storetest.Object) {
	t.Helper()
	f, err := os.OpenFile(slot.Path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	secret := bytes.Repeat([]byte(secretText), len(slot.Content)/len(secretText)+1)
	_, err = f.WriteAt(secret[:len(slot.Content)], int64(slot.ID.Trunk.Offset)+fdfs.SlotHeaderSize)
	require.NoError(t, err)
}

// TestSlotBytesAreThoseThatWereChecked: the CRC32 of a forged slot matches while the slot contains
// bytes that the attacker knows: zeros behind the own slot, or an own file that was deleted. If
// uploads of others replace these bytes during a response, no client receives a byte of the
// uploads.
func TestSlotBytesAreThoseThatWereChecked(t *testing.T) {
	t.Parallel()
	for name, lines := range slotConfigs {
		t.Run(name, func(t *testing.T) {
			s := storetest.New(t)
			var slots []storetest.Object
			for i, size := range slotSizes {
				content := s.Bytes(size)
				if i%2 == 0 {
					clear(content)
				}
				slots = append(slots, s.Trunk("flv", content))
			}
			p := e2e.Serve(t, s, lines...)
			for _, slot := range slots {
				requireNoSecret(t, p, slot, nil)
			}
		})
	}
}

// TestSlotBytesOverTLS: TestSlotBytesAreThoseThatWereChecked, over TLS.
func TestSlotBytesOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := &tls.Config{RootCAs: e2e.Certificate(t, dir), ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	s := storetest.New(t)
	p := e2e.Serve(t, s, "[gateway]", "tls_cert = "+dir+"/cert.pem", "tls_key = "+dir+"/key.pem")
	bare := e2e.Serve(t, s, "[gateway]", "tls_cert = "+dir+"/cert.pem", "tls_key = "+dir+"/key.pem",
		"[open_file_cache]", "memory = 0")
	for _, size := range slotSizes {
		requireNoSecret(t, p, s.Trunk("txt", make([]byte, size)), config)
		requireNoSecret(t, bare, s.Trunk("txt", s.Bytes(size)), config)
	}
}

// requireNoSecret reads a slot slowly with several kinds of requests, before and after the gateway
// knows the slot, and overwrites the slot meanwhile. No response may contain the new bytes.
func requireNoSecret(t *testing.T, p *e2e.Process, slot storetest.Object, config *tls.Config) {
	t.Helper()
	var responses []*slowResponse
	half, again := len(slot.Content)/2, 2
	if len(slot.Content) > 1<<20 {
		again = 1
	}
	for range again {
		for _, header := range []string{"Accept: */*", "Range: bytes=1-", "Range: bytes=100-199,1000-",
			fmt.Sprintf("Range: bytes=%d-", half)} {
			responses = append(responses, slow(p, slot.URL(), "HTTP/1.1", header, config))
		}
		responses = append(responses, slow(p, slot.URL()+"?start=100", "HTTP/1.1", "Accept: */*", config),
			slow(p, slot.URL(), "HTTP/1.0", "Accept: */*", config))
	}
	overwrite(t, slot)
	for range 10 { // while the gateway has the old state of the slot, and while it checks the new one
		poll(t, p, slot, config)
	}
	for _, r := range responses {
		got := r.rest()
		require.False(t, bytes.Contains(got, []byte("secret")), "%d bytes, %s", len(slot.Content), r.header)
		if r.header == "Accept: */*" && r.resp.ContentLength == int64(len(slot.Content)) {
			require.True(t, bytes.HasPrefix(slot.Content, got), "%d bytes", len(slot.Content))
		}
	}
}

// poll sends one request. Its response may be aborted, also before the first byte.
func poll(t *testing.T, p *e2e.Process, slot storetest.Object, config *tls.Config) {
	t.Helper()
	c := p.Dial()
	defer c.Close()
	if config != nil {
		c = tls.Client(c, config)
	}
	_, err := io.WriteString(c, e2e.Request(http.MethodGet, slot.URL(), "Connection: close"))
	require.NoError(t, err)
	got := bytes.NewBuffer(make([]byte, 0, len(slot.Content)+4096)) // with room for the head
	_, _ = got.ReadFrom(c)
	require.False(t, bytes.Contains(got.Bytes(), []byte("secret")), "%d bytes", len(slot.Content))
}

// TestHonestSlotsBesideWrites: a slot is always served whole while other slots of its trunk file
// are written without a pause.
func TestHonestSlotsBesideWrites(t *testing.T) {
	t.Parallel()
	for name, lines := range slotConfigs {
		t.Run(name, func(t *testing.T) {
			s := storetest.New(t)
			var slots []storetest.Object
			for _, size := range slotSizes {
				slots = append(slots, s.Trunk("bin", s.Bytes(size)))
				slots = append(slots, s.Trunk("txt", make([]byte, 1000)))
			}
			p := e2e.Serve(t, s, lines...)
			var stop atomic.Bool
			var writer sync.WaitGroup
			writer.Go(func() {
				for !stop.Load() {
					for i := 1; i < len(slots); i += 2 {
						overwrite(t, slots[i])
					}
					time.Sleep(time.Millisecond)
				}
			})
			defer writer.Wait()
			defer stop.Store(true)
			for round := range 6 {
				for i := 0; i < len(slots); i += 2 {
					slot := slots[i]
					if round >= 2 && len(slot.Content) > 1<<20 {
						continue // one response of it lasts for many writes
					}
					switch a := p.Get(slot.URL(), "Range: bytes=5000-18999"); {
					case a.StatusCode != 206:
						t.Fatalf("status %d in round %d, %d bytes", a.StatusCode, round, len(slot.Content))
					case !bytes.Equal(slot.Content[5000:19000], a.Body):
						t.Fatalf("other bytes of a range")
					}
					if a := p.Get(slot.URL()); a.StatusCode != 200 || !bytes.Equal(slot.Content, a.Body) {
						t.Fatalf("status %d, %d of %d bytes", a.StatusCode, len(a.Body), len(slot.Content))
					}
				}
			}
			require.Zero(t, p.Metric(`fdfs_gateway_aborted_total{reason="file"}`))
		})
	}
}

// TestAppenderChangesWhileSent: a response never mixes two versions of a file under the ETag of the
// first one. The gateway aborts the response instead.
func TestAppenderChangesWhileSent(t *testing.T) {
	t.Parallel()
	for name, lines := range map[string][]string{"by default": nil, "nothing is kept": {"[open_file_cache]",
		"max_files = 0", "memory = 0"}} {
		t.Run(name, func(t *testing.T) {
			s := storetest.New(t)
			p := e2e.Serve(t, s, lines...)
			for _, size := range []int{100_000, 20 << 20} {
				for _, header := range []string{"Accept: */*", "Range: bytes=100-"} {
					log := s.Appender("log", s.Bytes(size))
					slow := slow(p, log.URL(), "HTTP/1.1", header, nil)
					require.NotContains(t, slow.resp.Header.Get("ETag"), "W/")
					require.NoError(t, modify(log, size/2))
					got := slow.rest()
					require.NotContains(t, string(got), "secret", "%d bytes, %s", size, header)
					if size > 10<<20 { // more than the buffers of the sockets hold
						require.Less(t, int64(len(got)), slow.resp.ContentLength)
					}
					require.Contains(t, string(p.Get(log.URL()).Body), "secret", "the next one is of the new version")
				}
			}
			slave := s.Slave(s.Normal("jpg", s.Bytes(10)), "_s", "jpg", s.Bytes(20<<20))
			slow := slow(p, slave.URL(), "HTTP/1.1", "Accept: */*", nil)
			require.NoError(t, modify(slave, 20<<20-1000))
			require.Less(t, len(slow.rest()), 20<<20)
		})
	}
}

// modify overwrites bytes of a file, in place.
func modify(file storetest.Object, offset int) error {
	f, err := os.OpenFile(file.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteAt([]byte(secretText), int64(offset))
	return err
}
