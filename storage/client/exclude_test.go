package client

import (
	"bytes"
	"context"
	"io"
	"testing"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// read reads the rest of a stream in pieces of 10 kB and closes it. The error is nil at io.EOF.
func (r *rig) read(s *Stream) ([]byte, error) {
	var got bytes.Buffer
	_, err := io.CopyBuffer(struct{ io.Writer }{&got}, s, make([]byte, 10_000))
	require.NoError(r.t, s.Close())
	return got.Bytes(), err
}

// suspect marks a server as suspect, so that it comes last in the order.
func (r *rig) suspect(server Server) {
	m, err := r.c.acquire(server)
	require.NoError(r.t, err)
	r.c.failed(m, io.ErrUnexpectedEOF, true)
	r.c.releaseMember(m)
}

// TestCorruptedAndHealthy: the corrupted storage is healthy and the good ones are suspect, so the
// corrupted one comes first in the order. Its content does not count as a link, and the storage is
// excluded for this file: the next download is right.
func TestCorruptedAndHealthy(t *testing.T) {
	body := contenttest.Bytes(1 << 20)
	r, id, corrupted := twins(t, body, flipped(body, 77))
	for _, good := range r.servers[1:] {
		r.suspect(good)
	}
	_, err := r.read(r.open(id))
	require.ErrorIs(t, err, fdfs.ErrFileCRC)
	require.Zero(t, r.c.links.Len())
	sent := corrupted.Downloads(id).Downloads
	for _, good := range r.servers[1:] { // the good ones are suspect again
		r.suspect(good)
	}
	got, err := r.read(r.open(id))
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, got))
	require.Equal(t, sent, corrupted.Downloads(id).Downloads, "the corrupted storage is not asked again")
	require.Equal(t, r.servers[0], r.c.Order(r.servers)[0], "for other files it comes first")
}

// TestCorruptedBeforeAResume: the corrupted storage sends the first half and breaks off, a good one
// sends the rest. The corrupted one is excluded, though it did not send the newest bytes.
func TestCorruptedBeforeAResume(t *testing.T) {
	body := contenttest.Bytes(1 << 20)
	r, id, corrupted := twins(t, body, flipped(body, 5))
	r.servers = r.servers[:2]
	half := 1 << 19
	corrupted.Storage(0).SetFaults(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, BreakAt: &half, Times: 1})
	s := r.open(id)
	_, err := r.read(s)
	require.ErrorIs(t, err, fdfs.ErrFileCRC)
	require.Len(t, s.Senders(), 2)
	require.Equal(t, r.servers[1:], r.c.allowed(id, r.servers))
	got, err := r.read(r.open(id))
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, got))
}

// TestLinkWithACorruptedReplica: if one of three storages has corrupted content of a link, the
// equal content of the other two shows which one.
func TestLinkWithACorruptedReplica(t *testing.T) {
	body := contenttest.Bytes(300_000)
	r, id, _ := twins(t, body, flipped(body, 5))
	id.CRC32++ // as in the id of a link; requests use the text of the id, which is unchanged
	s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, r.stat(id).At(0, int64(len(body))), r.servers)
	require.NoError(t, err)
	_, err = r.read(s)
	require.ErrorIs(t, err, fdfs.ErrFileCRC)
	require.Equal(t, r.servers[1:], r.c.allowed(id, r.servers))
	require.Zero(t, r.c.links.Len(), "this content was not the link's")
	got, err := r.read(r.open(id))
	require.NoError(t, err)
	require.True(t, bytes.Equal(body, got))
}
