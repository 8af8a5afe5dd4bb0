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

// TestSlotsOfOldStorages: storages before 5.11 begin every download of a trunk slot at its first
// byte. Ranges, and downloads that continue after a source breaks off or freezes, still have the
// requested bytes.
func TestSlotsOfOldStorages(t *testing.T) {
	const size = 500_000
	pace := unprobed
	pace.stall = 50 * time.Millisecond
	body := contenttest.Bytes(size)
	for _, version := range []string{"5.05", "5.10", "5.11", "6.16.1"} {
		t.Run(version, func(t *testing.T) {
			r := newRigWith(t, 2, Options{HedgeBudget: -1}, pace)
			for _, s := range r.Storages() {
				s.SetVersion(version)
			}
			id := r.put(fdfstest.FileSpec{Content: body, Kind: fdfs.KindTrunk})
			plain := r.put(fdfstest.FileSpec{Content: body})
			info := r.stat(id)
			for _, test := range []struct{ offset, length int64 }{{0, size}, {1, 1}, {size - 1, 1}, {300_000, 50_000}} {
				for _, id := range []fdfs.FileID{id, plain} {
					s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info.At(test.offset, test.length),
						r.servers)
					require.NoError(t, err)
					got, err := r.read(s)
					require.NoError(t, err)
					require.Equal(t, body[test.offset:test.offset+test.length], got)
				}
			}
			for name, fault := range map[string]fdfstest.Faults{
				"break":  {BreakAt: new(200_000)},
				"freeze": {FreezeAt: new(100_000)},
			} {
				fault.Commands, fault.Times = []byte{fdfstest.CmdDownload}, 1
				before := r.c.Stats().Resumes
				for _, s := range r.Storages() { // health may have changed their order
					s.SetFaults(fault)
				}
				r.requireContent(id, body)
				require.Greater(t, r.c.Stats().Resumes, before, name)
				for _, s := range r.Storages() {
					s.SetFaults()
				}
			}
		})
	}
}
