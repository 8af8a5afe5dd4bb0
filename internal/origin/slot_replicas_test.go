package origin

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"testing"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/testing/origintest"
	"fastdfs-gateway/storage/client"

	"github.com/stretchr/testify/require"
)

// replicas is a Protocol for storages that differ in the content of one file. The test sets their
// order.
type replicas struct {
	origintest.Unreachable
	size    int64
	content map[client.Server][]byte // nil: cannot be reached; no entry: does not have the file

	mu       sync.Mutex // guards the fields below
	order    []client.Server
	excluded []client.Server
	asked    []client.Server // the servers that Open has sent a request to
	// resumeAt is the offset at which the first server breaks off, and the next one sends the rest.
	resumeAt int64
}

func (r *replicas) Order(servers []client.Server) (list []client.Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.order {
		if slices.Contains(servers, s) {
			list = append(list, s)
		}
	}
	return list
}

func (r *replicas) Exclude(_ fdfs.FileID, s client.Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.excluded = append(r.excluded, s)
}

func (*replicas) Recheck(context.Context, client.FetchRequest, content.Version, checksum.Sum, []client.Server,
	[]client.Server) (sum checksum.Sum, err error) {
	return sum, errors.New("slots are no links")
}

func (r *replicas) Stat(_ context.Context, w client.FetchRequest, _ []client.Server) (client.Part, error) {
	v, err := client.VersionOf(w.ID, r.size, 0)
	return client.Part{Version: v}, err
}

// Open implements Protocol. The first server that has the file and is not excluded sends it.
func (r *replicas) Open(_ context.Context, _ client.FetchRequest, part client.Part,
	servers []client.Server) (io.ReadCloser, error) {
	servers = r.Order(servers)
	r.mu.Lock()
	defer r.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(servers), func(s client.Server) bool {
		return slices.Contains(r.excluded, s)
	})
	if len(left) == 0 {
		left = servers
	}
	failure := fdfs.ErrNoFile
	var have []client.Server
	for _, s := range left {
		r.asked = append(r.asked, s)
		switch content, ok := r.content[s]; {
		case ok && content == nil:
			failure = client.ErrNoSource
		case ok:
			have = append(have, s)
		}
	}
	if len(have) == 0 {
		return nil, failure
	}
	first := r.content[have[0]][part.Offset:][:part.Length]
	if cut := r.resumeAt - part.Offset; len(have) > 1 && cut > 0 && cut < part.Length {
		first = slices.Concat(first[:cut], r.content[have[1]][r.resumeAt:part.Offset+part.Length])
		return &sent{io.NopCloser(bytes.NewReader(first)), have[:2]}, nil
	}
	return &sent{io.NopCloser(bytes.NewReader(first)), have[:1]}, nil
}

// sent is a body that reports its senders.
type sent struct {
	io.ReadCloser
	from []client.Server
}

func (s *sent) Senders() []client.Server { return s.from }

// The storages of replicas.
var (
	corrupted = client.Server{Host: "10.0.0.1"}
	good      = client.Server{Host: "10.0.0.2"}
	other     = client.Server{Host: "10.0.0.3"}
)

// slotReplicas returns storages with a slot whose content at the corrupted storage differs in a
// byte, the right content, and a request for a range of it without a cache.
func slotReplicas(t *testing.T, size int, order ...client.Server) (*replicas, []byte, func(a, b int) ([]byte, error)) {
	o, _ := aSlot(t, size)
	wrong := bytes.Clone(o.bytes)
	wrong[size/2] ^= 1
	r := &replicas{size: int64(size), order: order,
		content: map[client.Server][]byte{corrupted: wrong, good: o.bytes}}
	id, a := fileID(t, o.bytes, packed), NewResolver(Options{Protocol: r})
	t.Cleanup(func() { require.Zero(t, a.o.Running.Load(), "downloads and requests that run") })
	return r, o.bytes, func(from, length int) ([]byte, error) {
		f := fileOf(a, id, corrupted, good, other)
		defer f.Close()
		var err error
		f.whole, err = f.fetcher.stat(context.Background())
		require.NoError(t, err)
		if _, err := f.Open(int64(from), int64(length)); err != nil {
			return nil, err
		}
		return contenttest.ReadAll(partOf{f, int64(from)}, int64(length))
	}
}

// TestSlotOfCorruptedReplica: if one storage has other bytes of a slot, the first request already
// gets the right ones, in each order of the storages. No further request is sent to the corrupted
// storage.
func TestSlotOfCorruptedReplica(t *testing.T) {
	for _, size := range []int{5000, maxHeldSlot, 3<<20 + 77} {
		for name, order := range map[string][]client.Server{
			"corrupted first": {corrupted, good}, "good first": {good, corrupted},
			"one without the file": {other, corrupted, good}, "that one between": {corrupted, other, good},
		} {
			r, want, get := slotReplicas(t, size, order...)
			got, err := get(0, size)
			require.NoError(t, err, "%d bytes, %s", size, name)
			require.True(t, bytes.Equal(want, got), "%d bytes, %s", size, name)
			require.NotContains(t, r.excluded, good)
			r.asked = nil
			got, err = get(size/2, size/3)
			require.NoError(t, err)
			require.True(t, bytes.Equal(want[size/2:][:size/3], got))
			if order[0] != good {
				require.NotContains(t, r.asked, corrupted, "%d bytes, %s", size, name)
			}
		}
	}
}

// TestSlotOfSeveralSenders: a mismatch of a download with a good and a corrupted sender, in either
// order, does not exclude the good one. Each storage is asked for the whole slot instead.
func TestSlotOfSeveralSenders(t *testing.T) {
	for _, order := range [][]client.Server{{good, corrupted}, {corrupted, good}} {
		const size = 3 << 20
		r, want, get := slotReplicas(t, size, order...)
		r.resumeAt = size / 4
		if order[0] == corrupted {
			r.resumeAt = size * 3 / 4
		}
		got, err := get(0, size)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
		require.NotContains(t, r.excluded, good)
	}
}

// TestSlotOfReplicaThatIsCorruptedLater: a corrupted storage that comes first after the slot was
// verified at the good one is replaced within the response.
func TestSlotOfReplicaThatIsCorruptedLater(t *testing.T) {
	const size = 3<<20 + 77
	for _, from := range []int{0, size / 2} {
		r, want, get := slotReplicas(t, size, good, corrupted)
		_, err := get(0, 1)
		require.NoError(t, err)
		r.order = []client.Server{corrupted, other, good}
		got, err := get(from, size-from)
		require.NoError(t, err)
		require.True(t, bytes.Equal(want[from:], got))
		require.Equal(t, []client.Server{corrupted}, r.excluded)
	}
}

// TestSlotMismatchIsNotRemembered: while the good storage cannot be reached, the slot does not
// count as invalid. The response is no 404, and the slot is served as soon as that storage is back.
func TestSlotMismatchIsNotRemembered(t *testing.T) {
	r, want, get := slotReplicas(t, 5000, corrupted, good)
	r.content[good] = nil
	for range 2 {
		_, err := get(0, 10)
		require.ErrorIs(t, err, ErrUnreachable)
	}
	r.content[good] = want
	got, err := get(0, 10)
	require.NoError(t, err)
	require.Equal(t, want[:10], got)
}

// TestSlotMismatchEverywhere: a slot that does not match at any storage is read once from each, and
// then not again for a while.
func TestSlotMismatchEverywhere(t *testing.T) {
	r, _, get := slotReplicas(t, 5000, corrupted, other, good)
	r.content[good], r.content[other] = r.content[corrupted], r.content[corrupted]
	for range 3 {
		_, err := get(0, 10)
		require.ErrorIs(t, err, ErrNotFound)
		require.Len(t, r.asked, 5, "three by the first download, which the first one sends, and then two")
	}
}
