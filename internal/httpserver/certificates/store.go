package certificates

import (
	"crypto/tls"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/process/panics"
)

// watchEvery is the interval of Refresh.
const watchEvery = 2 * time.Second

// Store holds the Set in use. Each handshake uses the Set of its time, without a restart.
type Store struct {
	log    *slog.Logger
	config atomic.Pointer[tls.Config] // of the next handshake; nil = no certificate
	set    atomic.Pointer[Set]        // nil = none

	mu     sync.Mutex // guards the fields below, and changes of config and set
	base   *tls.Config
	day    int             // day of the year for which the ticket keys were made
	warned map[Pair]string // the last warning of a pair
}

// NewStore returns a Store without certificates.
func NewStore(log *slog.Logger) *Store { return &Store{log: log, warned: map[Pair]string{}} }

// Config returns the settings of a listener. Its handshakes use the certificates that the Store has
// then.
func (s *Store) Config() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.config.Load(), nil },
	}
}

// Set returns the certificates in use; nil = none.
func (s *Store) Set() *Set { return s.set.Load() }

// Use replaces the certificates, and the other settings of handshakes. A nil set means none.
func (s *Store) Use(set *Set, base *tls.Config) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.base = base
	clear(s.warned)
	s.replace(set, time.Now())
}

// replace makes the settings of the next handshakes. s.mu is held.
func (s *Store) replace(set *Set, now time.Time) {
	s.set.Store(set)
	s.day = now.UTC().YearDay()
	if set == nil {
		s.config.Store(nil)
		return
	}
	config := s.base.Clone()
	config.GetCertificate = set.Choose
	if keys := set.ticketKeys(now); keys != nil {
		config.SetSessionTicketKeys(keys)
	}
	s.config.Store(config)
}

// Watch calls Refresh every two seconds, until stop is closed.
func (s *Store) Watch(stop <-chan struct{}) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			s.Refresh(now)
		}
	}
}

// Refresh reads the certificates whose files have changed, each pair separately, and makes the
// ticket keys of a new day. If a pair cannot be used, its old certificate stays in use, one warning
// is logged for each reason, and the next Refresh reads the pair again: a certificate may be
// written before its key.
func (s *Store) Refresh(now time.Time) {
	defer panics.Contain("reading certificates again")
	s.mu.Lock()
	defer s.mu.Unlock()
	set := s.set.Load()
	if set == nil {
		return
	}
	list, changed := make([]*Certificate, len(set.list)), false
	for i, old := range set.list {
		list[i] = s.current(old)
		changed = changed || list[i] != old
	}
	if changed {
		set = newSet(list)
	}
	if changed || now.UTC().YearDay() != s.day {
		s.replace(set, now)
	}
}

// current returns the certificate that the files of old have now, or old if these are the same or
// cannot be used.
func (s *Store) current(old *Certificate) *Certificate {
	stamp, err := stampOf(old.Pair)
	if err == nil && stamp == old.stamp {
		delete(s.warned, old.Pair)
		return old
	}
	fresh, err := load(old.Pair)
	if err != nil {
		if text := err.Error(); s.warned[old.Pair] != text {
			s.warned[old.Pair] = text
			s.log.Warn("a certificate cannot be read again: the old one is served until its files can be used, "+
				"or a restart or an upgrade (SIGUSR2)", "expires", old.Expires().UTC().Format(time.RFC3339), "err", err)
		}
		return old
	}
	delete(s.warned, old.Pair)
	if !fresh.Leaf().Equal(old.Leaf()) {
		s.log.Info("certificate read again", "name", fresh.Name(), "file", fresh.Cert,
			"expires", fresh.Expires().UTC().Format(time.RFC3339))
	}
	return fresh
}
