package client

import (
	"bytes"
	"context"
	"io"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// TestChangedMeanwhile: a reply to a download contains no version of the file. If the file changes
// between the request for its version and the download, or during the download, the stream does not
// end with io.EOF.
func TestChangedMeanwhile(t *testing.T) {
	body := contenttest.Bytes(300_000)
	for name, change := range map[string]func(r *rig, id fdfs.FileID) error{
		"appended": func(r *rig, id fdfs.FileID) error {
			return r.Change(id, append(bytes.Clone(body), 'x'),
				time.Now())
		},
		"overwritten": func(r *rig, id fdfs.FileID) error { return r.Change(id, flipped(body, 5), time.Now()) },
		"deleted":     func(r *rig, id fdfs.FileID) error { return r.Remove(id) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1, Options{})
			id := r.put(fdfstest.FileSpec{Kind: fdfs.KindAppender, Content: body, Modified: longPast})
			s := r.open(id)
			got := make([]byte, len(body))
			_, err := io.ReadFull(s, got[:1000])
			require.NoError(t, err)
			require.NoError(t, change(r, id))
			n, err := io.ReadFull(s, got[1000:])
			require.Error(t, err)
			require.Less(t, n, len(body)-1000)
			if name != "deleted" {
				require.ErrorIs(t, err, fdfs.ErrFileChanged)
			}
			require.NoError(t, s.Close())
			if name == "appended" {
				r.requireContent(id, append(bytes.Clone(body), 'x'))
			}
		})
	}
}

// TestChangedAndDeleted: a server that has sent a file and then deleted it may have changed it
// before the download. A stale replica, which has seen neither event, does not confirm the bytes.
func TestChangedAndDeleted(t *testing.T) {
	body := contenttest.Bytes(300_000)
	r, stale := newRig(t, 1, Options{}), newCluster(t, 1)
	id := r.put(fdfstest.FileSpec{Kind: fdfs.KindAppender, Content: body, Modified: longPast})
	_, err := stale.Put(fdfstest.FileSpec{ID: id.String(), Content: body, Modified: longPast})
	require.NoError(t, err)
	info := r.stat(id)
	r.servers = append(r.servers, serversOf(stale)...)
	require.NoError(t, r.Change(id, flipped(body, 5), time.Now()))
	s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info, r.servers)
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, r.Remove(id))
	_, err = io.ReadAll(s)
	require.ErrorIs(t, err, fdfs.ErrNoFile)
	require.Zero(t, stale.Storage(0).Counts().Requests[fdfstest.CmdFileInfo])
}

var longPast = time.Unix(1795181354, 0)

// TestNotReplicatedYet: if the sender does not report its version any more, the reply "no file" of
// another storage is not the result: the file may not be replicated to that storage yet.
func TestNotReplicatedYet(t *testing.T) {
	t.Parallel()
	body := contenttest.Bytes(300_000)
	r, without := newRig(t, 1, Options{}), newCluster(t, 1)
	id := r.put(fdfstest.FileSpec{Kind: fdfs.KindAppender, Content: body, Modified: longPast})
	info := r.stat(id)
	r.servers = append(r.servers, serversOf(without)...)
	r.c.t.replyTimeout = 300 * time.Millisecond
	r.Storage(0).SetFaults(fdfstest.Faults{Commands: []byte{fdfstest.CmdFileInfo}, Hang: true})
	s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info, r.servers)
	require.NoError(t, err)
	defer s.Close()
	_, err = io.ReadAll(s)
	require.ErrorIs(t, err, ErrNoSource)
	require.NotErrorIs(t, err, fdfs.ErrNoFile)
	require.Positive(t, without.Storage(0).Counts().Requests[fdfstest.CmdFileInfo], "it was asked")
}
