package proxyproto

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

// behind holds the first bytes of the connection, which follow each header in these tests.
const behind = "GET / HTTP/1.1\r\n"

// v2 returns a header of version 2.
func v2(versionCommand, family byte, rest string) string {
	b := append([]byte(signature), versionCommand, family)
	return string(binary.BigEndian.AppendUint16(b, uint16(len(rest)))) + rest
}

const (
	v4Ends = "\xc0\x00\x02\x01" + "\xc6\x33\x64\x01" + "\xdc\x04" + "\x01\xbb"
	tlvs   = "\x03\x00\x04\x01\x02\x03\x04" + "\x04\x00\x02\x00\x00"
)

// v6Ends holds the addresses and ports of a connection from 2001:db8::1 to 2001:db8::2.
var v6Ends = "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01" +
	"\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x02" + "\xdc\x04" + "\x01\xbb"

// TestRead: each header is parsed in one piece and in single bytes, and no byte behind it is read.
func TestRead(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		header, source string
		proxied        bool
	}{
		"v1 TCP4":          {"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n", "192.0.2.1:56324", true},
		"v1 TCP6":          {"PROXY TCP6 2001:db8::1 2001:db8::2 56324 443\r\n", "[2001:db8::1]:56324", true},
		"v1 mapped":        {"PROXY TCP6 ::ffff:192.0.2.1 ::ffff:192.0.2.2 1 2\r\n", "192.0.2.1:1", true},
		"v1 longest":       {"PROXY UNKNOWN " + strings.Repeat("f", maxLine-16) + "\r\n", "", false},
		"v1 UNKNOWN":       {unknown, "", false},
		"v2 TCP4":          {v2(0x21, 0x11, v4Ends), "192.0.2.1:56324", true},
		"v2 TCP4 and TLVs": {v2(0x21, 0x11, v4Ends+tlvs), "192.0.2.1:56324", true},
		"v2 TCP6":          {v2(0x21, 0x21, v6Ends), "[2001:db8::1]:56324", true},
		"v2 unix":          {v2(0x21, 0x31, strings.Repeat("/", sizeUnix)), "", true},
		"v2 LOCAL":         {v2(0x20, 0x00, ""), "", false},
		"v2 unspecified":   {v2(0x21, 0x00, tlvs), "", false},
		"v2 longest":       {v2(0x21, 0x11, v4Ends+strings.Repeat("\x04", maxRest-sizeIPv4)), "192.0.2.1:56324", true},
	} {
		for pieces, cut := range map[string]func(io.Reader) io.Reader{
			"whole": func(r io.Reader) io.Reader { return r }, "bytes": iotest.OneByteReader, "half": iotest.HalfReader,
			"error with the last": iotest.DataErrReader,
		} {
			in := strings.NewReader(tt.header + behind)
			h, err := Read(cut(in))
			require.NoError(t, err, "%s, %s", name, pieces)
			require.Equal(t, tt.proxied, h.Proxied, name)
			if tt.source == "" {
				require.False(t, h.Source.IsValid(), name)
			} else {
				require.Equal(t, netip.MustParseAddrPort(tt.source), h.Source, name)
			}
			if pieces != "error with the last" { // that reader reads ahead
				require.Equal(t, len(behind), in.Len(), "%s, %s: bytes behind the header were read", name, pieces)
			}
		}
	}
}

// TestTLS: the TLV of a client with TLS is found, also behind others. TLVs without TLS, and
// incomplete ones, report none.
func TestTLS(t *testing.T) {
	t.Parallel()
	const byTLS = "\x20\x00\x05\x01\x00\x00\x00\x00"
	for rest, want := range map[string]bool{
		v4Ends:                false,
		v4Ends + tlvs:         false,
		v4Ends + byTLS:        true,
		v4Ends + tlvs + byTLS: true,
		v4Ends + byTLS + tlvs: true,
		v4Ends + "\x20\x00\x05\x06\x00\x00\x00\x00": false, // a certificate, but no TLS
		v4Ends + "\x20\x00\x00":                     false,
		v4Ends + byTLS[:7]:                          false,
		v4Ends + byTLS[:2]:                          false,
		v4Ends + "\x04\x00\x08" + byTLS:             false, // in the value of another one
	} {
		h, err := Read(strings.NewReader(v2(0x21, 0x11, rest)))
		require.NoError(t, err)
		require.Equal(t, want, h.TLS, "%q", rest)
	}
	h, err := Read(strings.NewReader(v2(0x20, 0x11, v4Ends+byTLS)))
	require.NoError(t, err)
	require.False(t, h.TLS, "LOCAL")
}

func TestReadRejects(t *testing.T) {
	t.Parallel()
	for name, start := range map[string]string{
		"a request":         "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
		"empty lines":       "\r\n\r\nGET / HTTP/1.1\r\n",
		"v1 UDP4":           "PROXY UDP4 192.0.2.1 198.51.100.1 56324 443\r\n",
		"v1 LF":             "PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\nGET",
		"v1 wrong family":   "PROXY TCP6 192.0.2.1 198.51.100.1 56324 443\r\n",
		"v1 port":           "PROXY TCP4 192.0.2.1 198.51.100.1 65536 443\r\n",
		"v1 zone":           "PROXY TCP6 fe80::1%eth0 fe80::2 1 443\r\n",
		"v1 no ports":       "PROXY TCP4 192.0.2.1 198.51.100.1\r\n",
		"v1 too long":       "PROXY UNKNOWN " + strings.Repeat("f", maxLine-15) + "\r\n",
		"v1 never ends":     "PROXY TCP4 " + strings.Repeat("1", 1<<20),
		"v2 version 1":      v2(0x11, 0x11, v4Ends),
		"v2 command":        v2(0x22, 0x11, v4Ends),
		"v2 family":         v2(0x21, 0x41, v4Ends),
		"v2 transport":      v2(0x21, 0x13, v4Ends),
		"v2 short":          v2(0x21, 0x11, v4Ends[:11]),
		"v2 too long":       v2(0x21, 0x11, v4Ends+strings.Repeat("\x04", maxRest)),
		"v1 half":           "PROXY TCP4 192.",
		"v2 half":           v2(0x21, 0x11, v4Ends)[:20],
		"v2 half signature": signature[:5],
	} {
		in := strings.NewReader(start)
		_, err := Read(iotest.HalfReader(in))
		require.ErrorIs(t, err, ErrHeader, name)
		require.LessOrEqual(t, len(start)-in.Len(), fixed+maxRest, "%s: read on after the error", name)
	}
	_, err := Read(strings.NewReader(""))
	require.Equal(t, io.EOF, err)
	failed := errors.New("reset")
	_, err = Read(iotest.ErrReader(failed))
	require.Equal(t, failed, err)
	_, err = Read(io.MultiReader(strings.NewReader("PROXY "), iotest.ErrReader(failed)))
	require.ErrorIs(t, err, failed)
	require.ErrorIs(t, err, ErrHeader)
}

// FuzzRead: a header means the same in one piece and in single bytes, and exactly its own bytes are
// read.
func FuzzRead(f *testing.F) {
	f.Add([]byte("PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n" + behind))
	f.Add([]byte(v2(0x21, 0x11, v4Ends+tlvs) + behind))
	f.Add([]byte(v2(0x21, 0x21, v6Ends)))
	f.Fuzz(func(t *testing.T, b []byte) {
		whole, single := bytes.NewReader(b), bytes.NewReader(b)
		h, err := Read(whole)
		h1, err1 := Read(iotest.OneByteReader(single))
		require.Equal(t, err == nil, err1 == nil)
		require.Equal(t, h, h1)
		if err != nil {
			return
		}
		require.Equal(t, whole.Len(), single.Len())
		header := b[:len(b)-whole.Len()]
		again, err := Read(bytes.NewReader(append(bytes.Clone(header), "\r\n"...)))
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}
