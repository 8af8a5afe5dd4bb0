package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/cache"
	"fastdfs-gateway/internal/fdfs"
	peers "fastdfs-gateway/internal/fleet"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/internal/testing/redistest"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
)

// followerMemory is the limit of the owner's memory for one follower, a gateway that reads its
// fills, in KB: an HTTP/2 frame, its TLS records while they are written, the stacks of the
// connection and the request, and the same amount again before the heap is collected.
const followerMemory = 1280

// busyTTL is the ttl of leases. It is longer than any time that a busy machine withholds the
// processor from a gateway, so that no gateway counts as dead.
const busyTTL = time.Minute

// TestFleetFollowersMemory: each gateway that reads the fills of an owner takes a bounded amount of
// the owner's memory, whether it reads slowly or fast, and whatever the size of the file.
func TestFleetFollowersMemory(t *testing.T) {
	t.Parallel()
	const followers, size = 40, 8 << 20
	f := e2e.StartFleet(t, e2e.FleetOptions{Gateways: 1, Storages: 1, Cache: []string{"memory_max = 16MB"},
		Lines: []string{"[lock]", "ttl = " + busyTTL.String()}})
	one, _ := ownersMemory(t, f, 1, 64<<20) // the cache is full then
	all, quarters := ownersMemory(t, f, followers, size)
	t.Logf("%d MiB, %d followers: %d KB resident, with one follower %d KB: %d KB for each; "+
		"at most %v KB in each quarter of the time",
		size>>20, followers, all, one, (all-one)/(followers-1), quarters)
	require.Less(t, all-one, followers*followerMemory)
}

// ownersMemory lets followers read a new file, every second one slowly. It returns the peak of the
// owner's resident memory in KB, over the whole time and for each quarter of it.
func ownersMemory(t *testing.T, f *e2e.Fleet, followers, size int) (peak int, quarters []int) {
	t.Helper()
	owner := f.Gateways[0]
	id, content := f.Put(size)
	f.Slow(0, time.Second, size)
	slow := redistest.NewRelay(t, lab.Address(owner.Options.Peers))
	list := make([]*follower, followers)
	for i := range list {
		url := owner.Name()
		if i%2 == 1 {
			url = "https://" + slow.Addr()
		}
		list[i] = newFollower(t, f, url, id)
	}
	stop, samples := make(chan struct{}), []int(nil)
	var watching sync.WaitGroup
	watching.Go(func() {
		for {
			samples = append(samples, e2e.MemoryOf(t, owner.PID(), "VmRSS"))
			slow.Hang()
			time.Sleep(50 * time.Millisecond)
			slow.Restore()
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	var err error
	for i := 0; i < e2e.SegmentsOf(size) && err == nil; i++ { // all followers read the same fill
		var reading errgroup.Group
		for _, follower := range list {
			reading.Go(func() error { return follower.read(t.Context(), i, content) })
		}
		err = reading.Wait()
	}
	close(stop)
	watching.Wait()
	require.NoError(t, err)
	require.Equal(t, e2e.SegmentsOf(size), f.Cluster.Downloads(id).Downloads)
	for i := range 4 {
		quarters = append(quarters, slices.Max(samples[i*len(samples)/4:(i+1)*len(samples)/4]))
	}
	return slices.Max(samples), quarters
}

// follower reads a file from its owner like another gateway, by a separate connection.
type follower struct {
	*peers.Fleet
	owner string // the URL of the owner, or of a relay to it
	file  string
}

// newFollower returns a follower that is connected to the owner.
func newFollower(t *testing.T, f *e2e.Fleet, owner string, id fdfs.FileID) *follower {
	t.Helper()
	peer, err := peers.New(peers.Options{Addresses: []string{f.Redis.Addr()}, Advertise: "https://127.0.0.1:1",
		Secret: lab.Secret, LockTTL: busyTTL})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, peer.Close()) })
	r := cache.PeerRequest{Key: cache.SegmentKey{File: id.String(), Index: cache.MetaOnly}}
	eventually.True(t, func() bool { // a handshake on a busy machine may take too long
		_, _, err := peer.Open(t.Context(), owner, r)
		return err == nil
	}, "it reaches the owner")
	return &follower{peer, owner, id.String()}
}

// read reads a segment and compares its bytes.
func (f *follower) read(ctx context.Context, i int, content []byte) error {
	want := content[i*e2e.Segment : min(len(content), (i+1)*e2e.Segment)]
	_, body, err := f.Open(ctx, f.owner, cache.PeerRequest{Key: cache.SegmentKey{File: f.file, Index: int64(i)}})
	if err != nil {
		return err
	}
	defer body.Close()
	buf := make([]byte, 32<<10)
	for read := 0; ; {
		n, err := body.Read(buf)
		if len(want)-read < n || !bytes.Equal(buf[:n], want[read:read+n]) {
			return errors.New("wrong bytes")
		}
		read += n
		switch {
		case errors.Is(err, io.EOF) && read == len(want):
			return nil
		case err != nil:
			return fmt.Errorf("segment %d: after %d bytes: %w", i, read, err)
		}
	}
}
