package fleet

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// SignatureHeader is the header field in which a gateway shows another one that it knows the secret of the fleet:
//
//	X-Fdfs-Peer: v1 time=1767225600123 nonce=<32 hex digits> from=<sender, as in a query> mac=<64 hex digits>
//
// The mac is HMAC-SHA256 with the secret over these lines, each ended by a newline:
//
//	v1
//	method
//	URL of the gateway that is asked, as it advertises it
//	path and query, as they are sent
//	time, milliseconds since 1970
//	nonce
//	sender, as in the header
//
// So a request that was overheard can be sent again neither to the same gateway, which remembers its nonce, nor to another one.
const SignatureHeader = "X-Fdfs-Peer"

// The bounds of a signature.
const (
	signatureVersion = "v1"
	maxSignature     = 1200             // bytes of the header's value
	signatureWindow  = 30 * time.Second // how far the clocks of two gateways may be apart
	maxNonces        = 1 << 18          // remembered at a time, twice
)

// ErrSignature is the error for a request that is not signed as it must be. Its text is for the log, not for whoever has sent it.
var ErrSignature = errors.New("request of another gateway is not signed well")

// nonce makes each signature another.
type nonce [16]byte

// signature is what stands in the header.
type signature struct {
	at    time.Time // to the millisecond
	nonce nonce
	from  string // sender, unescaped
	mac   [sha256.Size]byte
}

// encode gives the header's value.
func (s *signature) encode() string {
	return fmt.Sprintf("%s time=%d nonce=%x from=%s mac=%x", signatureVersion, s.at.UnixMilli(), s.nonce, url.QueryEscape(s.from), s.mac)
}

// parseSignature is the reverse of encode. It accepts nothing that encode does not give.
func parseSignature(text string) (*signature, error) {
	if len(text) > maxSignature {
		return nil, fmt.Errorf("%w: header of %d bytes, %d are allowed", ErrSignature, len(text), maxSignature)
	}
	fields := strings.Split(text, " ")
	if len(fields) != 5 || fields[0] != signatureVersion {
		return nil, fmt.Errorf("%w: header is not %s with four fields", ErrSignature, signatureVersion)
	}
	for i, name := range []string{"time=", "nonce=", "from=", "mac="} {
		value, ok := strings.CutPrefix(fields[i+1], name)
		if !ok {
			return nil, fmt.Errorf("%w: field %d of the header is not %s", ErrSignature, i+1, name)
		}
		fields[i+1] = value
	}
	s := &signature{}
	at, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil || at < 0 {
		return nil, fmt.Errorf("%w: time is no number", ErrSignature)
	}
	s.at = time.UnixMilli(at)
	if s.from, err = url.QueryUnescape(fields[3]); err != nil || len(s.from) > maxName {
		return nil, fmt.Errorf("%w: sender cannot be read", ErrSignature)
	}
	if !decodeHex(s.nonce[:], fields[2]) || !decodeHex(s.mac[:], fields[4]) || s.encode() != text {
		return nil, fmt.Errorf("%w: header is not written as it is made", ErrSignature)
	}
	return s, nil
}

func decodeHex(dst []byte, text string) bool {
	if len(text) != hex.EncodedLen(len(dst)) {
		return false
	}
	_, err := hex.Decode(dst, []byte(text))
	return err == nil
}

// sum computes the mac.
func (s *signature) sum(secret, method, to, uri string) (mac [sha256.Size]byte) {
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "%s\n%s\n%s\n%s\n%d\n%x\n%s\n", signatureVersion, method, to, uri, s.at.UnixMilli(), s.nonce, url.QueryEscape(s.from))
	h.Sum(mac[:0])
	return mac
}

// sign makes the header's value for a request: uri is path and query, to the URL of the gateway that is asked.
func sign(secret, from, method, to, uri string, now time.Time) string {
	s := &signature{at: now, from: from}
	_, _ = rand.Read(s.nonce[:]) // never fails
	s.mac = s.sum(secret, method, to, uri)
	return s.encode()
}

// Verify checks the signature of a request to this gateway, the value of SignatureHeader, and returns the name of the sender. uri is
// path and query as they were received. The error is ErrSignature; always, when this gateway advertises no address.
func (f *Fleet) Verify(method, uri, header string) (sender string, err error) {
	return f.verifier.verify(method, uri, header, time.Now())
}

// verifier checks signatures. It is safe for use by many goroutines.
type verifier struct {
	secret, self string
	capacity     int // nonces in a generation

	mu      sync.Mutex // guards what follows
	seen    map[nonce]struct{}
	before  map[nonce]struct{} // the generation before
	rotated time.Time          // when seen was begun
}

func newVerifier(secret, advertise string) *verifier {
	return &verifier{secret: secret, self: advertise, capacity: maxNonces}
}

func (v *verifier) verify(method, uri, header string, now time.Time) (sender string, err error) {
	s, err := parseSignature(header)
	if err != nil {
		return "", err
	}
	mac := s.sum(v.secret, method, v.self, uri)
	if v.secret == "" || v.self == "" || !hmac.Equal(mac[:], s.mac[:]) {
		return "", fmt.Errorf("%w: made with another secret, or for another request or gateway", ErrSignature)
	}
	if skew := s.at.Sub(now); skew.Abs() > signatureWindow {
		return "", fmt.Errorf("%w: clock of %q is %s off ours, %s are allowed", ErrSignature, s.from, skew.Round(time.Millisecond), signatureWindow)
	}
	if err := v.remember(s, now); err != nil {
		return "", err
	}
	return s.from, nil
}

// remember refuses a nonce that was there before. A signature is good from 30 s before its time until 30 s after it, so each
// generation of nonces is kept for a minute after its last one. When there are too many nobody is let in: to forget some would let
// them in twice.
func (v *verifier) remember(s *signature, now time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.seen == nil || now.Sub(v.rotated) > 2*signatureWindow {
		if now.Sub(v.rotated) > 4*signatureWindow {
			v.seen = nil
		}
		v.before, v.seen, v.rotated = v.seen, make(map[nonce]struct{}), now
	}
	_, here := v.seen[s.nonce]
	_, there := v.before[s.nonce]
	switch {
	case here || there:
		return fmt.Errorf("%w: sent before by %q", ErrSignature, s.from)
	case len(v.seen) >= v.capacity:
		return fmt.Errorf("%w: more than %d requests within %s", ErrSignature, v.capacity, 2*signatureWindow)
	}
	v.seen[s.nonce] = struct{}{}
	return nil
}
