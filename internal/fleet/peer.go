package fleet

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/internal/cache"
)

// The peer connection: gateways request entries from each other by HTTP/2 over TLS 1.3 (RFC 9113,
// RFC 8446), on a separate listener ([peer] listen).
//
//	GET /entry/FILE
//	Fdfs-Request: {"Key":{"File":"","Index":0},"Want":null,"Offset":0,"MaxAge":0,"Copy":false,"Asked":"","Purge":0}
//
// requests an entry, with the fields of cache.PeerRequest (an empty Asked is left out); the name of
// the file is only in the path. Purge is the fence of the last purge that the requesting gateway
// has read. Times are nanoseconds. The responses:
//
//	200  Fdfs-Entry: {"Version":{"Size":1,"ModTime":0,"CRC32":0,"Immutable":true,"Linked":false},"Age":0,"TTL":0}
//	     Age is the time since a storage has confirmed the version; negative = not known
//	     Content-Length: bytes from Offset to the end of the segment; the body is sent as it arrives
//	404  the file does not exist; TTL of Fdfs-Entry is the time for which that holds
//	409  the file has another version
//	421  this gateway neither has the entry nor fetches it, or is stopping, or has not applied Purge
//	400  a request that no gateway sends
//	503  the fetch failed
//
// GET /alive has the response 204 at once. A gateway sends it to one that owes it a response and is
// silent.
//
// A body that cannot be completed ends with RST_STREAM, so a short body never looks complete.
//
// Both sides present the same self-signed certificate, whose ed25519 key is derived from the
// fleet's secret (peerkey.go), and each compares the other side's public key with its own. A host
// without the secret can neither send requests nor respond, and recorded bytes are of no use: TLS
// 1.3 has fresh session keys for each connection. Probes find killed and frozen peers
// (peerlife.go).
const (
	entryPath     = "/entry/"
	alivePath     = "/alive"
	requestHeader = "Fdfs-Request"
	entryHeader   = "Fdfs-Entry"

	peerKeyInfo = "fdfs-gateway peer key v" + keyVersion // HKDF info: other uses of the secret get other keys
	peerName    = "fdfs-gateway-v" + keyVersion          // in the certificate, and the TLS server name

	maxFrame = 256 << 10 // bytes of an HTTP/2 frame that a peer may send
)

// ErrSecret is the error for a peer whose certificate is not made from this fleet's secret.
var ErrSecret = errors.New("the other side does not have the secret of this fleet")

// ErrKeyVersion is the ErrSecret for a gateway with another keyVersion.
var ErrKeyVersion = fmt.Errorf("%w, or a version of the program that makes other keys of it", ErrSecret)

// peerTLS derives the fleet's certificate from its secret, and returns the TLS settings of both
// ends of a peer connection.
func peerTLS(secret string) (*tls.Config, error) {
	key := ed25519.NewKeyFromSeed(derive(secret, peerKeyInfo))
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
			switch {
			case len(s.PeerCertificates) != 1, !slices.Contains(s.PeerCertificates[0].DNSNames, peerName):
				return ErrKeyVersion
			case !public.Equal(s.PeerCertificates[0].PublicKey):
				return ErrSecret
			}
			return nil
		},
	}, nil
}

// http2Config returns the limits of both ends.
func http2Config(lockTTL time.Duration) *http.HTTP2Config {
	return &http.HTTP2Config{
		WriteByteTimeout:     maxSilence(lockTTL),
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

// Limits of requests and responses.
const (
	maxFile = 256                       // bytes of a file's name; names of FastDFS have 144 at most
	maxAge  = 10 * 365 * 24 * time.Hour // more than any real time
)

// errRequest is the error for a request that no gateway sends.
var errRequest = errors.New("not written as gateways write it")

// entryRequest is a request for an entry to another gateway.
type entryRequest struct {
	cache.PeerRequest
	Purge int64 // fence of the last purge that the requesting gateway has read; 0 = none
}

// make returns the HTTP request to a peer.
func (r entryRequest) make(ctx context.Context, peer *url.URL) *http.Request {
	to := *peer
	to.Path = entryPath + r.Key.File
	r.Key.File = ""
	text, _ := json.Marshal(r) // never fails
	header := http.Header{requestHeader: {string(text)}}
	return (&http.Request{Method: http.MethodGet, URL: &to, Header: header}).WithContext(ctx)
}

// parseEntryRequest accepts only the requests of make.
func parseEntryRequest(from *http.Request) (*entryRequest, error) {
	r, text := &entryRequest{}, from.Header.Get(requestHeader)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		return nil, fmt.Errorf("%w: %w", errRequest, err)
	}
	file, ok := strings.CutPrefix(from.URL.Path, entryPath)
	again, _ := json.Marshal(r)
	switch {
	case from.Method != http.MethodGet, !ok, from.URL.RawQuery != "", r.Key.File != "", string(again) != text,
		file == "", len(file) > maxFile, r.Key.Index < cache.Whole, r.Offset < 0,
		r.Offset > cache.SegmentSize && r.Key.Index != cache.Whole,
		r.MaxAge < 0, r.MaxAge > maxAge, r.Purge < 0, r.Purge > maxFence, r.Want != nil && r.Want.Size < 0,
		len(r.RequestedAs) > maxFile:
		return nil, errRequest
	}
	r.Key.File = file
	return r, nil
}

// entryHead is the header field of a response.
type entryHead struct {
	Version cache.Version
	Age     time.Duration // since a storage has confirmed the version; negative = not known
	TTL     time.Duration // of 404: the time for which that holds
}

func headOf(m cache.Meta) entryHead {
	h := entryHead{Version: m.Version, Age: -1, TTL: max(0, m.TTL)}
	if !m.Checked.IsZero() {
		h.Age = max(0, time.Since(m.Checked))
	}
	return h
}

// parseHead parses the header field of a response.
func parseHead(text string) (h entryHead, err error) {
	err = json.Unmarshal([]byte(text), &h)
	if err == nil && (h.Version.Size < 0 || max(h.Age, h.TTL) > maxAge) {
		err = errors.New("a number out of bounds")
	}
	return h, err
}

// outcomes are the responses, with the errors of cache.Fleet and the names for the counters. If two
// of them have the same status, the requesting gateway uses the last one.
var outcomes = []struct {
	status int
	err    error
	result string
}{
	{http.StatusOK, nil, "ok"},
	{http.StatusNotFound, cache.ErrNotFound, "not_found"},
	{http.StatusMisdirectedRequest, cache.ErrUnreachable, "unreachable"},
	{http.StatusMisdirectedRequest, cache.ErrNotHere, "not_here"},
	{http.StatusConflict, cache.ErrChanged, "changed"},
	{http.StatusServiceUnavailable, errRejected, "refused"},
}

// outcomeOf returns the status of an error, and its name for the counters.
func outcomeOf(err error) (status int, result string) {
	for _, o := range outcomes {
		if errors.Is(err, o.err) {
			return o.status, o.result
		}
	}
	return http.StatusServiceUnavailable, "broken"
}
