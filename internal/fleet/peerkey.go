package fleet

import (
	"crypto/hkdf"
	"crypto/sha256"
	"sync"

	"golang.org/x/crypto/scrypt"
)

// MinSecret is the length of the shortest [peer] secret, in bytes.
const MinSecret = 16

// keyVersion is the version of the derivation of keys from the secret. Gateways of another version
// are not trusted, like gateways with another secret: during an upgrade the two parts of a fleet
// are two fleets, and purges reach both. Version 1 did not stretch the secret.
const keyVersion = "2"

// The cost of the stretched secret (scrypt, RFC 7914): 32 MiB and some 80 ms, so that a host which
// sees a certificate or a record can try only about ten secrets per second and core.
const (
	stretchSalt = "fdfs-gateway fleet secret v" + keyVersion
	stretchN    = 1 << 15
	stretchR    = 8
)

// keyLength is the length of all keys, in bytes.
const keyLength = sha256.Size

// stretched has the secrets that this process has stretched.
var stretched = secretCache{keys: map[[sha256.Size]byte][]byte{}}

// secretCache keeps stretched secrets: a process stretches each secret once, not once for each
// Fleet.
type secretCache struct {
	mu   sync.Mutex // held while a secret is stretched: one at a time
	keys map[[sha256.Size]byte][]byte
}

// maxSecrets bounds the cache: each reload may name another secret.
const maxSecrets = 16

// get returns the key of a stretched secret.
func (s *secretCache) get(secret string) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := sha256.Sum256([]byte(secret))
	if key := s.keys[at]; key != nil {
		return key
	}
	key, err := scrypt.Key([]byte(secret), []byte(stretchSalt), stretchN, stretchR, 1, keyLength)
	if err != nil {
		panic("BUG: " + err.Error()) // Key fails only for other costs
	}
	if len(s.keys) >= maxSecrets {
		clear(s.keys)
	}
	s.keys[at] = key
	return key
}

// derive returns a key for one use of the fleet's secret: stretched once, then HKDF-SHA256 (RFC
// 5869). info names the use.
func derive(secret, info string) []byte {
	key, err := hkdf.Key(sha256.New, stretched.get(secret), nil, info, keyLength)
	if err != nil {
		panic("BUG: " + err.Error()) // Key fails only for longer keys
	}
	return key
}
