package fleet

import (
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/cache/tier"
	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/stretchr/testify/require"
)

// BenchmarkTransfer transfers 4 MiB from the memory of the owner to the cache of another gateway.
// cpu-ms/op is the processor time of both together, with that of the kernel.
func BenchmarkTransfer(b *testing.B) {
	o := fleetOf(redistest.Shared(b).Addr())
	owner, reader := serveAs(b, o, nil), serveAs(b, o, nil)
	know(owner.Fleet, reader.Fleet)
	storage := &origin{data: random(4 << 20)}
	owner.storage = storage
	file := ownedBy(owner.Fleet)
	_, err := owner.read(file, storage)
	require.NoError(b, err)
	read := func() {
		reader.cache.Purge(tier.MatchFile(file))
		entry, err := reader.cache.Get(b.Context(), file, storage, cache.GetOptions{})
		require.NoError(b, err)
		stream := reader.cache.Open(b.Context(), entry, storage, 0, entry.Version.Size)
		n := 0
		for err == nil {
			var s content.Chunk
			s, err = stream.Next(cache.SegmentSize)
			n += int(s.Length)
		}
		require.ErrorIs(b, err, io.EOF)
		require.Equal(b, len(storage.data), n)
		require.NoError(b, stream.Close())
	}
	read()
	b.SetBytes(int64(len(storage.data)))
	b.ReportAllocs()
	before := cpuTime(b)
	for b.Loop() {
		read()
	}
	b.ReportMetric(float64((cpuTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
	require.EqualValues(b, 1, storage.fetches.Load())
}

// ownedBy returns the name of a file whose first segment a gateway owns.
func ownedBy(f *Fleet) string {
	for i := 0; ; i++ {
		file := fmt.Sprintf("group1/M00/00/00/%d", i)
		if ranked := f.Rank(cache.RankKey(cache.SegmentKey{File: file}), 1); len(ranked) == 1 && ranked[0] == "" {
			return file
		}
	}
}

// cpuTime returns the processor time of the process so far.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var r syscall.Rusage
	require.NoError(t, errors.Join(syscall.Getrusage(syscall.RUSAGE_SELF, &r)))
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}
