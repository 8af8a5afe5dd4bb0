package client

import (
	"context"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

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
	s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info.At(299_000, 1000), r.servers)
	require.NoError(t, err)
	got, err := r.read(s)
	require.NoError(t, err)
	require.Equal(t, body[299_000:], got)
	require.Zero(t, r.c.Stats().Resumes)
}
