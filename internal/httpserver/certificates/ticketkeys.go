package certificates

import (
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/x509"
	"time"
)

// ticketPurpose makes the keys of session tickets differ from other keys that are made from the
// same private key.
const ticketPurpose = "fastdfs-gateway session tickets "

// ticketKeys returns the keys of session tickets at a time, the one for new tickets first: those of
// the day (UTC), of the previous day, and of the next one, since the clock of another host may be
// ahead. They are made from the private key of the first certificate, so that a process continues
// the sessions of the previous process, and of other hosts with the same certificate, and no key is
// kept in a file.
// The private key yields the ticket keys of all days; docs/hardening.md has the consequences.
// The result is nil for a key that has no PKCS #8 form.
func (s *Set) ticketKeys(now time.Time) (keys [][32]byte) {
	secret, err := x509.MarshalPKCS8PrivateKey(s.list[0].tls.PrivateKey)
	if err != nil {
		return nil
	}
	for _, days := range []int{0, -1, 1} {
		day := now.UTC().AddDate(0, 0, days).Format(time.DateOnly)
		key, err := hkdf.Key(sha256.New, secret, nil, ticketPurpose+day, 32)
		if err != nil {
			return nil
		}
		keys = append(keys, [32]byte(key))
	}
	return keys
}
