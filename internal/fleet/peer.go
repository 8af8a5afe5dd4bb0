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

// The peer connection: gateways ask each other for segments by HTTP/2 over TLS 1.3 (RFC 9113, RFC
// 8446), on a listener of its own ([peer] listen).
//
//	GET /segment?file=F&index=I&offset=O[&size=S&mtime=M&crc=C&flags=0..3]
//
// asks for segment I of a file from byte O of the segment on; the numbers are decimal, the version
// is left out where it is not known (flags: 1 immutable, 2 link). The answers:
//
//	200  Fdfs-Version: size=S&mtime=M&crc=C&flags=0..3
//	     Content-Length: bytes from O to the end of the segment; the body is sent as it arrives
//	404  this gateway neither has the segment nor fetches it
//	409  it has another version
//	400  no request that a gateway sends
//	503  it failed, or stops
//
// A body that cannot be completed ends with RST_STREAM, so a short body never looks complete.
//
// Both sides present the same self-signed certificate, whose ed25519 key is derived from the
// fleet's secret (HKDF-SHA256, RFC 5869), and each compares the other side's public key with its
// own. A stranger can neither ask nor answer, and what it records is of no use: TLS 1.3 has fresh
// session keys for each connection. Dead and frozen peers are noticed by HTTP/2 pings.
const (
	segmentPath   = "/segment"
	versionHeader = "Fdfs-Version"

	peerKeyInfo = "fdfs-gateway peer key v1" // HKDF info: other uses of the secret get other keys
	peerName    = "fdfs-gateway"             // in the certificate, and the TLS server name

	maxFrame = 256 << 10 // bytes of an HTTP/2 frame that a peer may send
)

// MinSecret is the length of the shortest [peer] secret, in bytes.
const MinSecret = 16

// errSecret is the error for a peer whose certificate is not made from this fleet's secret.
var errSecret = errors.New("the other side does not have the secret of this fleet")

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
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 || !public.Equal(s.PeerCertificates[0].PublicKey) {
				return errSecret
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

// segmentRequest is a request for a segment to another gateway.
type segmentRequest struct {
	Key    cache.SegmentKey
	Want   *cache.Version // nil = any
	Offset int64          // in the segment
}

// uri is path and query of the request.
func (r *segmentRequest) uri() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s?file=%s&index=%d&offset=%d", segmentPath, url.QueryEscape(r.Key.File), r.Key.Index, r.Offset)
	if r.Want != nil {
		b.WriteString("&" + formatVersion(*r.Want))
	}
	return b.String()
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

// maxURI bounds path and query of a request, in bytes.
const maxURI = 2048

// parseSegmentRequest reads path and query of a request. It accepts only what uri gives.
func parseSegmentRequest(uri string) (*segmentRequest, error) {
	query, ok := strings.CutPrefix(uri, segmentPath+"?")
	if !ok || len(uri) > maxURI {
		return nil, fmt.Errorf("%w: another path, or more than %d bytes", errRequest, maxURI)
	}
	q, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	r := &segmentRequest{Key: cache.SegmentKey{File: q.Get("file")}}
	var bad error
	r.Key.Index = number(q, "index", 1<<63-1, &bad)
	r.Offset = number(q, "offset", cache.SegmentSize, &bad)
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
	flags := number(q, "flags", flagImmutable|flagLinked, bad)
	v := cache.Version{
		Size: number(q, "size", 1<<63-1, bad), CRC32: uint32(number(q, "crc", 1<<32-1, bad)),
		Immutable: flags&flagImmutable != 0, Linked: flags&flagLinked != 0,
	}
	var err error
	if v.ModTime, err = strconv.ParseInt(q.Get("mtime"), 10, 64); err != nil { // before 1970: negative
		*bad = fmt.Errorf("%w: mtime is no number", errRequest)
	}
	return v
}

// number reads a parameter from 0 to most.
func number(q url.Values, name string, most int64, bad *error) int64 {
	n, err := strconv.ParseInt(q.Get(name), 10, 64)
	if err != nil || n < 0 || n > most {
		*bad = fmt.Errorf("%w: %s is no number from 0 to %d", errRequest, name, most)
	}
	return n
}
