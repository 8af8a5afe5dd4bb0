package client

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/storage/client/stall"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestDrippingSource: a storage that sends few bytes, but never stalls, is replaced at the next
// byte. If all storages are that slow, the stream fails.
func TestDrippingSource(t *testing.T) {
	t.Parallel()
	drip := fdfstest.Faults{Commands: []byte{byte(fdfs.CmdDownload)}, Rate: 100}
	pace := unprobed
	pace.window = 100 * time.Millisecond
	body := contenttest.Bytes(300_000)
	t.Run("another one", func(t *testing.T) {
		r := newRigWith(t, 2, Options{HedgeBudget: -1}, pace)
		id := r.put(fdfstest.FileSpec{Content: body})
		r.Storage(0).SetFaults(drip)
		r.requireContent(id, body)
		require.Equal(t, uint64(1), r.c.Stats().Resumes)
	})
	t.Run("slow, and another one", func(t *testing.T) {
		r := newRigWith(t, 2, Options{HedgeBudget: -1}, pace)
		id := r.put(fdfstest.FileSpec{Content: body})
		slow := drip
		slow.Rate = 4 * stall.MinRate
		r.Storage(0).SetFaults(slow)
		r.requireContent(id, body)
		require.Equal(t, uint64(1), r.c.Stats().Resumes)
	})
	t.Run("nobody else", func(t *testing.T) {
		r := newRigWith(t, 2, Options{HedgeBudget: -1}, pace)
		id := r.put(fdfstest.FileSpec{Content: body})
		for i := range 2 {
			r.Storage(i).SetFaults(drip)
		}
		got, err := r.read(r.open(id))
		require.ErrorIs(t, err, stall.ErrSlow)
		require.ErrorIs(t, err, io.ErrUnexpectedEOF)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.True(t, bytes.HasPrefix(body, got))
	})
}

// TestSkippedBytes: storages send the bytes of a trunk slot before the requested range too. These
// bytes count as received, so the storage is not replaced, although it is slow enough for a
// measurement.
func TestSkippedBytes(t *testing.T) {
	t.Parallel()
	pace := unprobed
	pace.window = 500 * time.Millisecond
	body := contenttest.Bytes(300_000)
	r := newRigWith(t, 2, Options{HedgeBudget: -1}, pace)
	id := r.put(fdfstest.FileSpec{Content: body, Kind: fdfs.KindTrunk})
	info := r.stat(id)
	for _, s := range r.Storages() {
		s.SetFaults(fdfstest.Faults{Commands: []byte{byte(fdfs.CmdDownload)}, Rate: 200_000})
	}
	s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info, 299_000, 1000, r.servers)
	require.NoError(t, err)
	got, err := r.read(s)
	require.NoError(t, err)
	require.Equal(t, body[299_000:], got)
	require.Zero(t, r.c.Stats().Resumes)
}
