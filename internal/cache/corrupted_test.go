package cache

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
)

// TestCorruptedThroughPeers: a gateway that reads a whole file detects a segment that a peer has
// stored from a corrupted storage. It then fetches the file without peers and without that storage,
// and so does the next reader at the peer.
func TestCorruptedThroughPeers(t *testing.T) {
	bubble(t, "segment of a peer", func(t *testing.T) {
		o := newOrigin(testFile(1), 3*SegmentSize)
		list := gateways(t, newFleet(), 2, Options{})
		o.corrupt(SegmentSize + 5)
		r := getRange(background, list[0], o, SegmentSize, 100) // of the corrupted storage
		require.NoError(t, r.err)
		require.NotEqual(t, o.content[SegmentSize+5], r.body[5], "a part cannot be checked")
		synctest.Wait()
		o.set(func() { o.order = []string{"storage", "corrupted"} })
		r = get(background, list[1], o)
		require.ErrorIs(t, r.err, ErrCorrupt)
		synctest.Wait()
		o.set(func() { o.order = []string{"corrupted", "storage"}; o.excluded["corrupted"] = true })
		requireWhole(t, o, get(background, list[1], o))
		_ = get(background, list[0], o) // detects it too
		synctest.Wait()
		requireWhole(t, o, get(background, list[0], o))
	})
	bubble(t, "segment that its gateway cannot judge", func(t *testing.T) {
		o := newOrigin(testFile(1), 3*SegmentSize)
		f := newFleet()
		list := gateways(t, f, 2, Options{})
		f.do(func() { f.names = []string{"b"} })
		require.NoError(t, getRange(background, list[1], o, 0, 100).err)
		require.NoError(t, getRange(background, list[1], o, 2*SegmentSize, 100).err)
		synctest.Wait()
		f.do(func() { f.names = []string{"a", "b"} })
		o.corrupt(SegmentSize + 5)
		require.NoError(t, getRange(background, list[0], o, SegmentSize, 100).err)
		synctest.Wait()
		o.set(func() { o.order = []string{"storage", "corrupted"} })
		require.ErrorIs(t, get(background, list[1], o).err, ErrCorrupt)
		synctest.Wait()
		requireWhole(t, o, get(background, list[1], o)) // without that gateway
		require.EqualValues(t, 1, list[1].Stats().CRCErrors)
		require.EqualValues(t, 1, list[0].Stats().Memory.Entries, "which still has it")
	})
	bubble(t, "verified first", func(t *testing.T) {
		o := newOrigin(testFile(1), 1000)
		o.corrupt(5)
		c := newCache(t, Options{VerifyFirst: func(string) (int64, bool) { return 1000, true }})
		requireWhole(t, o, get(background, c, o))
		require.Zero(t, o.rechecks.Load(), "it cannot be a link")
		require.True(t, o.excluded["corrupted"])
		synctest.Wait()
		c.purgeTiers(tier.MatchAll)
		requireWhole(t, o, get(background, c, o))
		require.EqualValues(t, 1, c.Stats().CRCErrors)
	})
}

// TestReadWhileCorruptIsPurged: a request that begins between the detection and the purge of wrong
// content does not get this content as a whole file.
func TestReadWhileCorruptIsPurged(t *testing.T) {
	o := newOrigin(testFile(1), 2*SegmentSize)
	good := o.content
	bad := slices.Clone(good)
	bad[100] ^= 1
	c := newCache(t, Options{})
	o.set(func() { o.content = bad })
	require.NoError(t, getRange(context.Background(), c, o, 0, SegmentSize).err)
	idle(t, c)
	o.set(func() { o.content = good })
	var during []result
	c.onPurge = func() {
		c.onPurge = nil
		for range 3 {
			during = append(during, get(context.Background(), c, o))
		}
	}
	first := getRange(context.Background(), c, o, SegmentSize, SegmentSize)
	require.True(t, first.err != nil || bytes.Equal(good[SegmentSize:], first.body))
	require.Len(t, during, 3)
	for _, r := range append(during, get(context.Background(), c, o)) {
		require.True(t, r.err != nil || bytes.Equal(good, r.body), "a wrong byte in a whole body")
	}
	requireWhole(t, o, get(context.Background(), c, o))
	require.EqualValues(t, 1, c.Stats().CRCErrors)
}

// TestPeerReadsWhatWasCorrupted: a peer can read a file whose content was wrong some time ago. If
// wrong content is detected during the read, the last bytes are not sent.
func TestPeerReadsWhatWasCorrupted(t *testing.T) {
	for name, meanwhile := range map[string]bool{"before": false, "meanwhile": true} {
		bubble(t, name, func(t *testing.T) {
			o := newOrigin(testFile(1), SegmentSize)
			o.whole = 10 * second
			c := newCache(t, Options{Source: func(file, _ string) (Source, error) { return originOf(file), nil }})
			wrong := func() {
				c.corrupted.beginPurge(o.file)
				c.corrupted.endPurge(o.file)
			}
			wrong()
			time.Sleep(time.Hour) // requests to other gateways are allowed again
			_, body, err := c.PeerOpen(background, PeerRequest{Key: SegmentKey{File: o.file}, Want: &o.v})
			require.NoError(t, err)
			defer body.Close()
			if meanwhile {
				time.AfterFunc(second, wrong)
			}
			got, err := readAll(body, o.content)
			if meanwhile {
				require.ErrorIs(t, err, ErrCorrupt)
				require.Less(t, len(got), len(o.content))
				return
			}
			require.NoError(t, err)
			require.True(t, bytes.Equal(o.content, got))
		})
	}
}
