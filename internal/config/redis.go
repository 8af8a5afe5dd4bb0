package config

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// lintRedis checks the settings of [redis].
func (l *loader) lintRedis() {
	r := &l.c.Redis
	if r.Mode == "cluster" && r.DB != 0 {
		l.keyError("redis.db", "set db = 0", "mode = cluster knows db 0 only")
	}
	if r.Password != "" && r.PasswordFile != "" {
		l.bothSet("redis.password", "redis.password_file")
	}
	l.lintRedisExposure()
}

// lintRedisExposure warns of a Redis on another host without password or TLS.
func (l *loader) lintRedisExposure() {
	const key = "redis.addresses"
	r := &l.c.Redis
	if !slices.ContainsFunc(r.Addresses, isRemote) {
		return
	}
	at := l.c.at(key)
	if r.Password == "" && r.PasswordFile == "" && r.CertFile == "" {
		l.warnf(at, "redis.password_file",
			"set password_file, and a user in Redis that may use the keys under key_prefix only",
			"Redis is on another host, and there is no password: whoever reaches it can purge and block every gateway")
	}
	if !r.TLS {
		l.warnf(at, "redis.tls", "set tls = true, or write rediss:// in front of the addresses",
			"Redis is on another host, and there is no TLS: whoever is between can read the password, purge and block")
	}
}

// isRemote reports whether a host:port of Redis is on another host.
func isRemote(address string) bool {
	host, _, _ := net.SplitHostPort(address) // was checked when it was read
	return !isLoopback(host)
}

// maxSecretFile bounds a file that holds one secret, in bytes.
const maxSecretFile = 4096

// ReadSecretFile reads a file that holds one secret and at most a line end behind it. The secret
// has 1 to 4096 bytes and no other line end in it. Errors name the file and never show its content.
func ReadSecretFile(name string) (string, error) {
	data, _, err := ReadBounded(name, maxSecretFile)
	if err != nil {
		return "", i18n.Errorf("cannot read the secret in %q: %w", name, reason(err))
	}
	secret := strings.TrimSuffix(strings.TrimSuffix(string(data), "\n"), "\r")
	switch {
	case secret == "":
		return "", i18n.Errorf("cannot use the secret in %q: the file is empty", name)
	case strings.ContainsAny(secret, "\r\n\x00"):
		return "", i18n.Errorf("cannot use the secret in %q: the file has more than one line", name)
	}
	return secret, nil
}

// ReadPassword returns the password of Redis, from password_file if that is set; empty = none.
func (r *Redis) ReadPassword() (string, error) { return readSecret(r.PasswordFile, r.Password) }

// ReadSecret returns the secret of the fleet, from secret_file if that is set; empty = none.
func (p *Peer) ReadSecret() (string, error) { return readSecret(p.SecretFile, p.Secret) }

// readSecret returns the secret in a file, or the written one if there is no file.
func readSecret(file, written string) (string, error) {
	if file == "" {
		return written, nil
	}
	return ReadSecretFile(file)
}

// ReadSecrets returns the accepted secrets of tokens: secret_key, those in secret_files, and
// extra_secrets. The first one makes tokens.
func (a *AntiSteal) ReadSecrets() (secrets []string, err error) {
	if a.Secret != "" {
		secrets = append(secrets, a.Secret)
	}
	for _, name := range a.SecretFiles {
		secret, err := ReadSecretFile(name)
		if err != nil {
			return nil, err
		}
		secrets = append(secrets, secret)
	}
	return append(secrets, a.ExtraSecrets...), nil
}

// TLSConfig returns the TLS settings of connections to Redis; nil = plain TCP. The caller sets the
// name of the server.
func (r *Redis) TLSConfig() (*tls.Config, error) {
	if !r.TLS {
		return nil, nil
	}
	authorities, err := r.authorities()
	if err != nil {
		return nil, err
	}
	certificates, err := r.certificates()
	if err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities, Certificates: certificates}, nil
}

// authorities reads ca_file; nil = those of the system.
func (r *Redis) authorities() (*x509.CertPool, error) {
	if r.CAFile == "" {
		return nil, nil
	}
	data, _, err := ReadBounded(r.CAFile, maxListBytes)
	if err != nil {
		return nil, i18n.Errorf("cannot read ca_file %q of [redis]: %w", r.CAFile, reason(err))
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, i18n.Errorf("cannot use ca_file of [redis]: %q holds no certificate in PEM", r.CAFile)
	}
	return pool, nil
}

// certificates reads cert_file and key_file; nil = none.
func (r *Redis) certificates() ([]tls.Certificate, error) {
	if r.CertFile == "" {
		return nil, nil
	}
	chain, _, err := ReadBounded(r.CertFile, maxListBytes)
	var key []byte
	if err == nil {
		key, _, err = ReadBounded(r.KeyFile, maxListBytes)
	}
	var pair tls.Certificate
	if err == nil {
		pair, err = tls.X509KeyPair(chain, key)
	}
	if err != nil {
		return nil, i18n.Errorf("cannot use cert_file and key_file of [redis]: %w", err)
	}
	return []tls.Certificate{pair}, nil
}

// redis reads the files of [redis].
func (k *checker) redis() {
	r := &k.c.Redis
	const ca, cert = "redis.ca_file", "redis.cert_file"
	if _, err := r.authorities(); err != nil {
		k.keyError(ca, "name a readable file in PEM", "%v", err)
	}
	pairs, err := r.certificates()
	if err != nil {
		k.keyError(cert, "name a readable certificate and its key, both in PEM", "%v", err)
	}
	for _, pair := range pairs {
		if end := pair.Leaf.NotAfter; end.Before(k.now) {
			k.keyError(cert, "renew it", "the certificate %q ended at %s", r.CertFile,
				end.UTC().Format(time.RFC3339))
		}
	}
}
