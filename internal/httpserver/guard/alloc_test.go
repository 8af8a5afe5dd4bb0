//go:build !race

package guard

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The tests of this file run without the race detector, with which pools drop buffers at random.

// TestRequestsAllocateNothing: neither a head that is handed on as it arrived nor a head that is
// rewritten, with its body dropped, allocates.
func TestRequestsAllocateNothing(t *testing.T) {
	for _, in := range []string{
		"GET /group1/M00/00/01/Ck0AC2sASyqAJoPSAAAAAWFklaM422.bin HTTP/1.1\r\nHost: gw.example.com:8080\r\n" +
			"User-Agent: Mozilla/5.0 (X11; Linux x86_64)\r\nAccept: */*\r\nRange: bytes=0-99\r\n\r\n",
		get("Content-Length: 5", "Connection: x") + "hello",
	} {
		inner := &scriptConn{piece: len(in)}
		c := New(Options{}).Wrap(inner)
		p, b := make([]byte, 16<<10), []byte(in)
		require.Zero(t, testing.AllocsPerRun(1000, func() {
			inner.in = b
			if n, err := c.Read(p); n == 0 || err != nil {
				t.Fatal(n, err)
			}
		}), in)
	}
}

// TestChunkLineCostsNothing: the chunk lines of a dropped body allocate nothing, whatever they
// contain.
func TestChunkLineCostsNothing(t *testing.T) {
	for _, line := range []string{"1", "1;a=b", strings.Repeat("0", 100), "1" + strings.Repeat(`;a="b\c"`, 400)} {
		b := []byte(line)
		require.Zero(t, testing.AllocsPerRun(100, func() { _, _ = chunkSize(b) }), line)
	}
}
