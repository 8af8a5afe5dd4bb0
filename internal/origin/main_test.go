package origin

import (
	"hash/crc32"
	"net/netip"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// testTimeout is the time after which a waiting test fails.
const testTimeout = time.Minute

func TestMain(m *testing.M) {
	eventually.Together()
	goleak.VerifyTestMain(m)
}

// fileID returns the id of a file with this content. change, which may be nil, changes its fields.
func fileID(t *testing.T, content []byte, change func(f *fdfs.Fields)) fdfs.FileID {
	t.Helper()
	f := fdfs.Fields{Group: "group1", Source: fdfs.Source{10, 0, 0, 1}, Created: 1700000000,
		Size: int64(len(content)), CRC32: crc32.ChecksumIEEE(content), Ext: "bin"}
	if change != nil {
		change(&f)
	}
	id, err := fdfs.Encode(f)
	require.NoError(t, err)
	return id
}

// newCache makes a cache that is closed at the end of the test.
func newCache(t testing.TB, o cache.Options) *cache.Cache {
	t.Helper()
	c := cache.New(o)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// anyHost is a list of sources that allows each address.
func anyHost() *Sources {
	return NewSources(SourcesOptions{Allow: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}})
}

// packed changes the fields of a file to those of a slot in a trunk file.
func packed(f *fdfs.Fields) {
	f.Kind, f.Trunk = fdfs.KindTrunk, fdfs.Trunk{ID: 1, Alloc: uint32(f.Size) + 256}
}

// fileOf begins a request for a file of another group, with these servers as its candidates.
func fileOf(a *Resolver, id fdfs.FileID, servers ...client.Server) *File {
	r := &Request{ID: id, Client: patient{}}
	f := a.newFetcher(r, local.ErrNoGroup, a.o.Cache != nil)
	f.candidates = &candidates{servers: servers}
	r.File.beginFetches(a, r, f)
	return &r.File
}
