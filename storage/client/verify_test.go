package client

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// twins returns a rig whose first server, of the cluster corrupted, has other bytes for the id than
// the two further ones.
func twins(t *testing.T, good, bad []byte) (r *rig, id fdfs.FileID, corrupted *fdfstest.Cluster) {
	r = newRig(t, 2, Options{})
	id = r.put(fdfstest.FileSpec{Content: good})
	corrupted = newCluster(t, 1)
	_, err := corrupted.Put(fdfstest.FileSpec{ID: id.String(), Content: bad})
	require.NoError(t, err)
	r.servers = append(serversOf(corrupted), r.servers...)
	return r, id, corrupted
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 1
	return b
}

// TestCorruptedSmall: if a corrupted file fits into the first Read, Read returns the content of
// another server.
func TestCorruptedSmall(t *testing.T) {
	body := contenttest.Bytes(60_000)
	r, id, _ := twins(t, body, flipped(body, 100))
	s := r.open(id)
	buf := make([]byte, 64<<10)
	n, err := s.Read(buf)
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, buf[:n]))
	require.NotEqual(t, r.servers[0], s.from)
	_, err = s.Read(buf)
	require.Equal(t, io.EOF, err)
	require.NoError(t, s.Close())
	require.Equal(t, uint64(1), r.c.Stats().CRCErrors)
}

// TestCorruptedRange: a range of a file is delivered without a check of the CRC32.
func TestCorruptedRange(t *testing.T) {
	body := contenttest.Bytes(1000)
	r, id, _ := twins(t, body, flipped(body, 100))
	s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, r.stat(id).At(1, 999), r.servers)
	require.NoError(t, err)
	_, err = r.read(s)
	require.NoError(t, err)
	require.Zero(t, r.c.Stats().Rechecks)
}

// TestCorruptedOnTheWay: if two reads from the only server differ, the content counts as corrupted.
func TestCorruptedOnTheWay(t *testing.T) {
	body := contenttest.Bytes(1 << 20)
	r, id, corrupted := twins(t, body, flipped(body, 5))
	r.servers = r.servers[:1]
	s := r.open(id)
	_, err := io.ReadFull(s, make([]byte, 1<<19))
	require.NoError(t, err)
	require.NoError(t, corrupted.Change(id, body, s.part.Time())) // the second read returns the right content
	_, err = r.read(s)
	require.ErrorIs(t, err, fdfs.ErrFileCRC)
}

// TestLink: a symbolic link, whose id has the size of its target and another CRC32, is served from
// one server and from several.
func TestLink(t *testing.T) {
	body := contenttest.Bytes(300_000)
	for _, servers := range []int{1, 2} {
		r := newRig(t, 2, Options{})
		link, err := fdfs.Encode(fdfs.Fields{Group: "group1", Source: fdfs.Source{127, 0, 0, 11},
			Size: int64(len(body)), CRC32: 12345})
		require.NoError(t, err)
		r.put(fdfstest.FileSpec{ID: link.String(), Content: body})
		r.servers = r.servers[:servers]
		require.False(t, r.stat(link).Linked, "nothing in the reply tells")
		for range 3 {
			r.requireContent(link, body)
		}
		require.Equal(t, uint64(1), r.c.Stats().Rechecks, "links are remembered")
		require.Zero(t, r.c.Stats().CRCErrors)
		require.Equal(t, 4, r.Downloads(link).Downloads)
	}
}

// TestLegacyCRC: file ids of FastDFS 5.x have another CRC32 than the standard one. Of the files
// that do not fit into the first Read, only the first one of a group is read twice.
func TestLegacyCRC(t *testing.T) {
	r := newRig(t, 2, Options{})
	body := contenttest.Bytes(300_000)
	files := []fdfs.FileID{}
	for range 3 {
		files = append(files, r.put(fdfstest.FileSpec{Content: body, LegacyCRC: true}))
	}
	for i, id := range files {
		require.Equal(t, checksum.UpdateLegacy(0, body), id.CRC32)
		got, err := r.read(r.open(id))
		require.NoError(t, err)
		require.True(t, bytes.Equal(body, got))
		want := 1
		if i == 0 {
			want = 2
		}
		require.Equal(t, want, r.Downloads(id).Downloads, "file %d", i)
	}
	require.Equal(t, uint64(1), r.c.Stats().Rechecks)
	require.Zero(t, r.c.Stats().CRCErrors)
	require.Zero(t, r.c.links.Len(), "it is no link")
}

// TestRecheckPoolOfOne: the second download of a recheck works with a pool of one connection, since
// the first download has released it.
func TestRecheckPoolOfOne(t *testing.T) {
	r := newRig(t, 1, Options{Pool: fdfs.PoolOptions{MaxOpen: 1, ConnectTimeout: 5 * time.Second}})
	body := contenttest.Bytes(300_000)
	got, err := r.read(r.open(r.put(fdfstest.FileSpec{Content: body, LegacyCRC: true})))
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, got))
	require.Equal(t, uint64(1), r.c.Stats().Rechecks)
}

// TestLegacyCRCSmall: the legacy CRC32 of a file that fits into the first Read is computed without
// another download.
func TestLegacyCRCSmall(t *testing.T) {
	r := newRig(t, 1, Options{})
	body := contenttest.Bytes(30_000)
	id := r.put(fdfstest.FileSpec{Content: body, LegacyCRC: true})
	s := r.open(id)
	buf := make([]byte, 64<<10)
	n, err := s.Read(buf)
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, buf[:n]))
	require.NoError(t, s.Close())
	require.Equal(t, 1, r.Downloads(id).Downloads)
}

// TestOpenUnchecked: with FetchRequest.Unchecked the content is delivered as received, from one
// download.
func TestOpenUnchecked(t *testing.T) {
	body := contenttest.Bytes(300_000)
	r, id, corrupted := twins(t, body, flipped(body, 100))
	s, err := r.c.Open(context.Background(), FetchRequest{ID: id, Unchecked: true}, r.stat(id), r.servers)
	require.NoError(t, err)
	got, err := r.read(s)
	require.NoError(t, err)
	require.True(t, bytes.Equal(flipped(body, 100), got))
	require.Equal(t, 1, corrupted.Downloads(id).Downloads+r.Downloads(id).Downloads)
	require.Zero(t, r.c.Stats().Rechecks)
}

// TestLinkUnsure: content that one server sends twice may be corrupted, so it counts as a link only
// if all other servers reply that they do not have the file, not if they fail.
func TestLinkUnsure(t *testing.T) {
	body := contenttest.Bytes(300_000)
	r, id, _ := twins(t, body, flipped(body, 100))
	for _, s := range r.Storages() {
		s.Kill()
	}
	_, err := r.read(r.open(id))
	require.ErrorIs(t, err, fdfs.ErrFileCRC)
	require.ErrorIs(t, err, ErrNoSource)
	require.Zero(t, r.c.links.Len())
	for _, s := range r.Storages() {
		require.NoError(t, s.Revive())
	}
	require.NoError(t, r.Remove(id))
	r.requireContent(id, flipped(body, 100))
	require.Equal(t, 1, r.c.links.Len())
}

// TestRecheckFails: if the file cannot be read again, the last bytes are not delivered.
func TestRecheckFails(t *testing.T) {
	body := contenttest.Bytes(1 << 20)
	r, id, corrupted := twins(t, body, flipped(body, 5))
	r.servers = r.servers[:1]
	s := r.open(id)
	_, err := io.ReadFull(s, make([]byte, 1<<19))
	require.NoError(t, err)
	corrupted.Storage(0).SetFaults(fdfstest.Faults{Status: 5})
	_, err = r.read(s)
	require.ErrorIs(t, err, fdfs.ErrFileCRC)
	require.ErrorIs(t, err, ErrNoSource)
}

// TestTrunkLink: no request is sent for the content of a link in a trunk file, whose header may
// contain uploaded bytes.
func TestTrunkLink(t *testing.T) {
	r := newRig(t, 2, Options{})
	body := contenttest.Bytes(4096)
	link, err := fdfs.Encode(fdfs.Fields{Group: "group1", Source: fdfs.Source{127, 0, 0, 11}, Kind: fdfs.KindTrunk,
		Size:  60,
		CRC32: 12345, Trunk: fdfs.Trunk{ID: 1, Offset: 256, Alloc: 256}})
	require.NoError(t, err)
	r.put(fdfstest.FileSpec{ID: link.String(), Content: body})
	_, err = r.c.Stat(context.Background(), FetchRequest{ID: link}, r.servers)
	require.ErrorIs(t, err, ErrSlotLink)
	require.ErrorIs(t, err, fdfs.ErrNoFile)
	v, err := VersionOf(link, int64(len(body)), 0) // a version from another transport
	require.NoError(t, err)
	_, err = r.c.Open(context.Background(), FetchRequest{ID: link}, Part{Version: v, Length: v.Size}, r.servers)
	require.ErrorIs(t, err, ErrSlotLink)
	require.Zero(t, r.Downloads(link).Downloads)
	for _, h := range r.c.Health() {
		require.Equal(t, Healthy, h.State)
	}
}
