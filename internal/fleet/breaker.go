package fleet

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs/backoff"
	"fastdfs-gateway/internal/i18n"

	"github.com/redis/go-redis/v9"
)

// maxFailures is the number of successive failures after which the breaker opens.
const maxFailures = 3

// redisBackoff is the pause between probes of Redis while the breaker is open. A message from Redis
// ends it at once (listen). Max is far below purgeLimits.live: a gateway is a member again before
// others could count it as gone.
var redisBackoff = backoff.Policy{First: time.Second, Max: 3 * time.Second}

// breaker decides whether requests are sent to Redis. Normally it is closed. It opens after three
// successive failures, or after one reply that reports that Redis cannot serve: a failing server
// still serves some requests, a full one those that need no memory. While it is open, only the
// background loop sends requests, after a pause. The first that succeeds closes the breaker.
type breaker struct {
	log    *slog.Logger
	probes backoff.Policy
	opened atomic.Int64 // times

	mu       sync.Mutex      // guards the fields below
	failures int             // successive ones; of probes while it is open
	up       context.Context // ends when the breaker opens; its cause is ErrFleetDown
	open     context.CancelCauseFunc
}

func newBreaker(log *slog.Logger) *breaker {
	b := &breaker{log: log, probes: redisBackoff}
	b.up, b.open = context.WithCancelCause(context.Background())
	return b
}

// allow returns a context that ends when the breaker opens. The error is ErrFleetDown while it is
// open.
func (b *breaker) allow() (up context.Context, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.up, context.Cause(b.up)
}

func (b *breaker) isOpen() bool {
	_, err := b.allow()
	return err != nil
}

// pause returns the delay before the next probe of Redis; 0 = the breaker is closed.
func (b *breaker) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.up.Err() == nil {
		return 0
	}
	return b.probes.Delay(b.failures + 1)
}

// note counts the outcome of a request: nil = Redis has served. look marks the exchanges of the
// background loop, which probe Redis: while the breaker is open, only these count, since the other
// requests began before it opened.
func (b *breaker) note(err error, look bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	open := b.up.Err() != nil
	switch {
	case open && !look:
	case err != nil:
		b.failures++
		if !open && (b.failures >= maxFailures || rejected(err)) {
			b.failures = 0
			b.opened.Add(1)
			b.open(cache.ErrFleetDown)
			b.log.Warn("Redis unavailable, running standalone", "error", err, "advice", Advice(err))
		}
	default:
		b.failures = 0
		if open {
			b.up, b.open = context.WithCancelCause(context.Background())
			b.log.Info("redis serves again")
		}
	}
}

// rejected reports whether an error is an error reply of Redis: it is full, a replica, loading, or
// requires another password.
func rejected(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !errors.Is(err, redis.Nil)
}

// advices are remedies by parts of the error texts of Redis and its client.
var advices = []struct {
	said   string // part of the error text
	advice i18n.Text
}{
	{"signed by unknown authority",
		i18n.Plain("set ca_file in [redis] to the authority that signed the certificate of redis-server")},
	{"certificate is valid for", i18n.Plain("name redis-server in [redis] as its certificate does")},
	{"not valid for any names", i18n.Plain("name redis-server in [redis] as its certificate does")},
	{"IP SANs", i18n.Plain("name redis-server in [redis] as its certificate does")},
	{"certificate required",
		i18n.Plain("set cert_file and key_file in [redis]: redis-server wants a certificate of its clients")},
	{"remote error: tls",
		i18n.Plain("set cert_file and key_file in [redis] to a certificate that redis-server accepts")},
	{"WRONGPASS", i18n.Plain("check username and password, or the content of password_file, in [redis]")},
	{"NOAUTH", i18n.Plain("set password_file or password in [redis]")},
	{"unauthenticated", i18n.Plain("set password_file or password in [redis]")},
	{"NOPERM",
		i18n.Plain("let the user of [redis] run every command on the keys under key_prefix, " +
			"and subscribe to channels there")},
	{"cluster support disabled", i18n.Plain("set mode = single in [redis]")},
	{"MOVED", i18n.Plain("set mode = cluster in [redis]")},
	{"sentinel",
		i18n.Plain("check mode and master_name in [redis]: with mode = sentinel the " +
			"addresses are those of the sentinels")},
	{"READONLY", i18n.Plain("name the master in [redis], or the sentinels with mode = sentinel")},
	{"OOM", i18n.Plain("give redis more memory")},
	{"SELECT", i18n.Plain("check db in [redis]")},
	{"DB index", i18n.Plain("check db in [redis]")},
}

// Advice returns the remedy for an error of Redis.
func Advice(err error) i18n.Text {
	for _, a := range advices {
		if strings.Contains(err.Error(), a.said) {
			return a.advice
		}
	}
	return i18n.Plain("check addresses and tls in [redis], and that redis-server runs there")
}
