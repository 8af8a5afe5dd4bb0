package fleet

import (
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
)

// The peer connection: gateways ask each other for entries by HTTP/2 over TLS 1.3 (RFC 9113, RFC
// 8446), on a listener of its own ([peer] listen).
//
//	GET /entry?file=F&index=I&offset=O&maxage=A&copy=0..1&purge=P[&size=S&mtime=M&crc=C&flags=0..3]
//
// asks for segment I of a file from byte O of the segment on; I is -1 for the facts alone. Numbers
// are decimal, times in milliseconds; the version is left out where it is not known (flags: 1
// immutable, 2 link). A bounds the age of the facts (0: no bound), copy=1 asks for what is stored
// alone, and P is the last purge that the asking gateway has applied. The answers:
//
//	200  Fdfs-Version: size=S&mtime=M&crc=C&flags=0..3
//	     Fdfs-Age: milliseconds since a storage has confirmed that; missing where it is not known
//	     Content-Length: bytes from O to the end of the segment; the body is sent as it arrives
//	404  there is no such file; Fdfs-Lifetime: milliseconds for which that holds
//	409  the file has another version
//	421  this gateway neither has the entry nor fetches it
//	400  no request that a gateway sends
//	503  it failed
//
// A body that cannot be completed ends with RST_STREAM, so a short body never looks complete.
//
// Both sides present the same self-signed certificate, whose ed25519 key is derived from the
// fleet's secret (HKDF-SHA256, RFC 5869), and each compares the other side's public key with its
// own. A stranger can neither ask nor answer, and what it records is of no use: TLS 1.3 has fresh
// session keys for each connection. Dead and frozen peers are noticed by HTTP/2 pings.
const (
	entryPath      = "/entry"
	versionHeader  = "Fdfs-Version"
	ageHeader      = "Fdfs-Age"
	lifetimeHeader = "Fdfs-Lifetime"

	peerKeyInfo = "fdfs-gateway peer key v1" // HKDF info: other uses of the secret get other keys
	peerName    = "fdfs-gateway"             // in the certificate, and the TLS server name

	maxFrame = 256 << 10 // bytes of an HTTP/2 frame that a peer may send
)

// MinSecret is the length of the shortest [peer] secret, in bytes.
const MinSecret = 16

// ErrSecret is the error for a peer whose certificate is not made from this fleet's secret.
var ErrSecret = errors.New("the other side does not have the secret of this fleet")

// peerTLS derives the fleet's certificate from its secret, and returns the TLS settings of both
// ends of a peer connection.
func peerTLS(secret string) (*tls.Config, error) {
	seed, err := hkdf.Key(sha256.New, []byte(secret), nil, peerKeyInfo, ed25519.SeedSize)
	if err != nil {
		return nil, fmt.Errorf("cannot derive the peer key: %w", err)
	}
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{peerName},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC),
	}
	der, err := x509.CreateCertificate(nil, template, template, public, key) // ed25519 needs no random numbers
	if err != nil {
		return nil, fmt.Errorf("cannot make the peer certificate: %w", err)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		ServerName:             peerName,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // no authority signs the certificate: VerifyConnection compares its key
		SessionTicketsDisabled: true,
		// Records of 16 KiB from the first byte on.
		DynamicRecordSizingDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 || !public.Equal(s.PeerCertificates[0].PublicKey) {
				return ErrSecret
			}
			return nil
		},
	}, nil
}

// pingAfter is how often a peer that says nothing is sent an HTTP/2 ping, and how long it has to
// answer: a gateway that died or froze is given up after a quarter of the TTL of its leases, so
// that the next one has time to take over when they expire.
func pingAfter(lockTTL time.Duration) time.Duration { return max(time.Second, lockTTL/4) / 2 }

func http2Config(lockTTL time.Duration) *http.HTTP2Config {
	ping := pingAfter(lockTTL)
	return &http.HTTP2Config{
		SendPingTimeout: ping, PingTimeout: ping, WriteByteTimeout: 2 * ping,
		MaxConcurrentStreams: maxStreams, MaxReadFrameSize: maxFrame,
		MaxReceiveBufferPerStream: cache.SegmentSize, MaxReceiveBufferPerConnection: 16 * cache.SegmentSize,
	}
}

// onlyHTTP2 is the set of protocols of a peer connection.
func onlyHTTP2() *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP2(true)
	return p
}

// entryRequest is a request for an entry to another gateway.
type entryRequest struct {
	cache.PeerRequest
	Purge int64 // fence of the last purge that the asking gateway has applied; 0 = none
}

// uri is path and query of the request.
func (r *entryRequest) uri() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s?file=%s&index=%d&offset=%d&maxage=%d&copy=%d&purge=%d", entryPath, url.QueryEscape(r.Key.File),
		r.Key.Index, r.Offset, r.MaxAge.Milliseconds(), btoi(r.Copy), r.Purge)
	if r.Want != nil {
		b.WriteString("&" + formatVersion(*r.Want))
	}
	return b.String()
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The flags of a version.
const (
	flagImmutable = 1
	flagLinked    = 2
)

// formatVersion writes a version as it stands in requests and answers.
func formatVersion(v cache.Version) string {
	flags := 0
	if v.Immutable {
		flags |= flagImmutable
	}
	if v.Linked {
		flags |= flagLinked
	}
	return fmt.Sprintf("size=%d&mtime=%d&crc=%d&flags=%d", v.Size, v.ModTime, v.CRC32, flags)
}

// errRequest is the error for a request or a version that no gateway sends.
var errRequest = errors.New("not written as gateways write it")

const (
	maxURI  = 2048                      // bytes of path and query of a request
	maxFile = 256                       // bytes of a file's name; those of FastDFS have 144 at most
	maxAge  = 10 * 365 * 24 * time.Hour // any time of a request or answer
)

// parseEntryRequest reads path and query of a request. It accepts only what uri gives.
func parseEntryRequest(uri string) (*entryRequest, error) {
	query, ok := strings.CutPrefix(uri, entryPath+"?")
	if !ok || len(uri) > maxURI {
		return nil, fmt.Errorf("%w: another path, or more than %d bytes", errRequest, maxURI)
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	r := &entryRequest{}
	var bad error
	r.Key = cache.SegmentKey{File: q.Get("file"), Index: number(q, "index", cache.Facts, 1<<63-1, &bad)}
	r.Offset = number(q, "offset", 0, cache.SegmentSize, &bad)
	r.MaxAge = time.Duration(number(q, "maxage", 0, maxAge.Milliseconds(), &bad)) * time.Millisecond
	r.Copy = number(q, "copy", 0, 1, &bad) == 1
	r.Purge = number(q, "purge", 0, 1<<53-1, &bad)
	if q.Has("size") {
		v := versionOf(q, &bad)
		r.Want = &v
	}
	switch {
	case bad != nil:
		return nil, bad
	case r.Key.File == "" || len(r.Key.File) > maxFile || r.uri() != uri:
		return nil, errRequest
	}
	return r, nil
}

// parseMillis reads a time of an answer's head; false when it is none.
func parseMillis(text string) (time.Duration, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return time.Duration(min(n, maxAge.Milliseconds())) * time.Millisecond, err == nil && n >= 0
}

// parseVersion reads what formatVersion writes.
func parseVersion(text string) (cache.Version, error) {
	if len(text) > 128 {
		return cache.Version{}, errRequest
	}
	q, err := url.ParseQuery(text)
	if err != nil {
		return cache.Version{}, fmt.Errorf("%w: %w", errRequest, err)
	}
	var bad error
	v := versionOf(q, &bad)
	if bad == nil && formatVersion(v) != text {
		bad = errRequest
	}
	return v, bad
}

func versionOf(q url.Values, bad *error) cache.Version {
	flags := number(q, "flags", 0, flagImmutable|flagLinked, bad)
	v := cache.Version{
		Size: number(q, "size", 0, 1<<63-1, bad), CRC32: uint32(number(q, "crc", 0, 1<<32-1, bad)),
		Immutable: flags&flagImmutable != 0, Linked: flags&flagLinked != 0,
	}
	var err error
	if v.ModTime, err = strconv.ParseInt(q.Get("mtime"), 10, 64); err != nil { // before 1970: negative
		*bad = fmt.Errorf("%w: mtime is no number", errRequest)
	}
	return v
}

// number reads a parameter between two bounds.
func number(q url.Values, name string, least, most int64, bad *error) int64 {
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < least || n > most {
		*bad = fmt.Errorf("%w: %s is no number from %d to %d", errRequest, name, least, most)
	}
	return n
}
