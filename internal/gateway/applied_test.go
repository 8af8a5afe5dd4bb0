package gateway

import (
	"context"
	"net/netip"
	"testing"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// purges is a fleet whose missed purges are applied when applied is closed.
type purges struct {
	waiting chan struct{} // gets a value for each call that waits
	applied chan struct{} // closed when the purges are applied
}

func (p purges) IsCurrent() bool {
	select {
	case <-p.applied:
		return true
	default:
		return false
	}
}

func (p purges) WaitApplied(ctx context.Context) {
	p.waiting <- struct{}{}
	select {
	case <-p.applied:
	case <-ctx.Done():
	}
}

// TestLocalFilesDoNotWait: while a gateway still has to apply purges, it serves the files of this
// host. Requests for files of other hosts wait until the purges are applied.
func TestLocalFilesDoNotWait(t *testing.T) {
	s := storetest.New(t)
	here := s.Normal("jpg", []byte("local"))
	c := cache.New(cache.Options{Memory: 16 << 20})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	files := local.NewFileCache(openLocal(t, s), local.FileCacheOptions{})
	t.Cleanup(func() { require.NoError(t, files.Close()) })
	waiting, applied := make(chan struct{}, 1), make(chan struct{})
	r := run(t, Options{
		Store: files,
		Origin: origin.NewResolver(origin.Options{
			Protocol: &fakeProtocol{content: "hello"}, Cache: c, Store: openLocal(t, s),
			Purges: purges{waiting, applied},
			Sources: origin.NewSources(origin.SourcesOptions{
				Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}),
		}),
	}, ServerOptions{MinSendRate: 1})
	remote := make(chan string)
	go func() { remote <- r.ask("GET", "/"+fdfstest.IDFrom(t, "group2", "10.0.0.1", 0).String()) }()
	<-waiting
	require.Contains(t, r.ask("GET", here.URL()), "200 OK")
	select {
	case response := <-remote:
		t.Fatalf("the file of another host came before purges were applied: %s", response)
	default:
	}
	close(applied)
	require.Contains(t, <-remote, "200 OK")
}
