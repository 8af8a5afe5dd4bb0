package origin

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage/client"
	"fastdfs-gateway/storage/local"
	"fastdfs-gateway/tracker"

	"github.com/stretchr/testify/require"
)

// serveOne starts a storage with the same content under each id, and returns its port.
func serveOne(b *testing.B, content []byte) int {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	b.Cleanup(func() { _ = l.Close() })
	reply := make([]byte, fdfs.HeaderSize, fdfs.HeaderSize+len(content))
	binary.BigEndian.PutUint64(reply, uint64(len(content)))
	reply[8] = 100
	reply = append(reply, content...)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				var request [256]byte
				for {
					if _, err := io.ReadFull(conn, request[:fdfs.HeaderSize]); err != nil {
						return
					}
					length := binary.BigEndian.Uint64(request[:])
					if _, err := io.ReadFull(conn, request[:length]); err != nil || request[8] == 82 {
						return
					}
					if _, err := conn.Write(reply); err != nil {
						return
					}
				}
			}()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(b, err)
	n, err := strconv.Atoi(port)
	require.NoError(b, err)
	return n
}

// BenchmarkCold finds and reads files of another host that are not in the cache, without HTTP.
// cpu-us is the processor time for each file, with that of the storage.
func BenchmarkCold(b *testing.B) {
	content := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	port := serveOne(b, content)
	id, err := fdfs.ParseStorageIDLine("100001 group1 127.0.0.1")
	require.NoError(b, err)
	trackers := tracker.New(tracker.Options{Parameters: tracker.Parameters{UseStorageID: true},
		StorageIDs: []fdfs.StorageID{id}})
	b.Cleanup(trackers.Close)
	<-trackers.Loaded()
	storages := client.New(client.Options{Pool: fdfs.PoolOptions{MaxOpen: 512, MaxIdle: 32}})
	b.Cleanup(storages.Close)
	a := NewResolver(Options{Protocol: Storages{Client: storages}, Cache: newCache(b, cache.Options{Memory: 64 << 20}),
		Sources: NewSources(SourcesOptions{Members: trackers.Members(), Port: port})})
	sum := crc32.ChecksumIEEE(content)
	var next atomic.Int64
	b.ReportAllocs()
	var before, after syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &before))
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		r := &Request{Client: hinted{}}
		for pb.Next() {
			id, err := fdfs.Encode(fdfs.Fields{Group: "group1", Source: fdfs.Source{127, 0, 0, 1},
				Created: 1500000000 + next.Add(1), Size: int64(len(content)), CRC32: sum, Ext: "bin"})
			if err != nil {
				b.Error(err)
				return
			}
			r.Reset()
			r.ID, r.Now = id, time.Now()
			if _, err := a.Find(r, local.ErrNoGroup); err != nil {
				b.Error(err)
				return
			}
			if _, err := r.File.Open(0, int64(len(content))); err != nil {
				b.Error(err)
				return
			}
			for at := int64(0); at < int64(len(content)); {
				chunk, err := r.File.At(at, int64(len(content))-at)
				if err != nil {
					b.Error(err)
					return
				}
				at += chunk.Length
			}
			r.File.Close()
		}
	})
	b.StopTimer()
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &after))
	used := func(u syscall.Rusage) int64 { return u.Utime.Nano() + u.Stime.Nano() }
	b.ReportMetric(float64(used(after)-used(before))/1000/float64(b.N), "cpu-us/op")
}

// hinted is a Client without a limit of waits that reads from the first byte on.
type hinted struct{ patient }

func (hinted) Hint() int64 { return 0 }
