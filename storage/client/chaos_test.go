package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

// randomFault returns a random fault, or in 2 of 15 cases none.
func randomFault(rng *rand.Rand, size int) []fdfstest.Faults {
	at := rng.IntN(size)
	f := fdfstest.Faults{Times: 1 + rng.IntN(5)}
	switch rng.IntN(15) {
	case 0, 9, 10:
		f.BreakAt, f.Commands = &at, []byte{fdfstest.CmdDownload}
	case 1, 11, 12:
		f.ResetAt, f.Commands = &at, []byte{fdfstest.CmdDownload}
	case 2:
		f.BreakAt = new(-1 - rng.IntN(10))
	case 3:
		f.WrongLength = int64(rng.IntN(100) - 50)
	case 4:
		f.WrongLength = 2 << 30
	case 5:
		f.Garbage = true
	case 6:
		f.Status = []byte{2, 5, 11, 16, 22, 28, 95}[rng.IntN(7)]
		if f.Status == 2 || f.Status == 22 { // a file that is deleted before the last byte ends the download
			f.Commands = []byte{fdfstest.CmdDownload}
		}
	case 7:
		f.Delay = time.Duration(rng.IntN(40)) * time.Millisecond
	case 8:
		f.Hang, f.Times = true, 1
	default:
		return nil
	}
	return []fdfstest.Faults{f}
}

// meddle sets random faults at the first n storages until stop is closed, and then removes all
// faults.
func meddle(r *rig, n, size int, stop chan struct{}) {
	rng := rand.New(rand.NewPCG(1, 2))
	for {
		s := r.Storage(rng.IntN(n))
		select {
		case <-stop:
			for _, s := range r.Storages() {
				s.Partition(false)
				s.SetFaults()
				_ = s.Revive()
			}
			return
		case <-time.After(time.Duration(rng.IntN(1000)) * time.Microsecond):
		}
		switch rng.IntN(100) {
		case 0:
			s.Kill()
		case 1:
			s.Partition(true)
		case 2, 3, 4, 5:
			s.Partition(false)
			_ = s.Revive()
		default:
			s.SetFaults(randomFault(rng, size)...)
		}
	}
}

// chaos counts the results of many downloads.
type chaos struct {
	whole, cut, rejected int // complete; an error after some bytes; an error before
	wrong, clean         int // bugs of the Client: wrong bytes; a short body without an error
}

// TestChaos: while storages fail at random, no download has a wrong byte, or a short body without
// an error. With one healthy storage all downloads are complete. newRig checks that nothing stays
// open.
func TestChaos(t *testing.T) {
	for name, meddled := range map[string]int{"one is well": 2, "none is sure to be well": 3} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, 3, Options{}, quick)
			got := runChaos(r, meddled, 200)
			t.Logf("%+v; %+v", got, r.c.Stats())
			require.Zero(t, got.wrong)
			require.Zero(t, got.clean)
			if meddled < 3 {
				require.Zero(t, got.cut+got.rejected)
			}
			stats := r.c.Stats()
			require.NotZero(t, stats.Resumes)
			require.NotZero(t, stats.Failures)
			require.Zero(t, stats.CRCErrors)
		})
	}
}

// runChaos downloads parts of files of three kinds, all with the same content.
func runChaos(r *rig, meddled, downloads int) (sum chaos) {
	const size, workers = 300_000, 8
	body := contenttest.Bytes(size)
	ids := []fdfs.FileID{
		r.put(fdfstest.FileSpec{Content: body}),
		r.put(fdfstest.FileSpec{Content: body, Kind: fdfs.KindTrunk}),
		r.put(fdfstest.FileSpec{Content: body, Kind: fdfs.KindAppender}),
	}
	stop := make(chan struct{})
	var meddler, group sync.WaitGroup
	var mu sync.Mutex // guards sum
	meddler.Go(func() { meddle(r, meddled, size, stop) })
	for w := range workers {
		group.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			for i := w; i < downloads || i < 20*downloads && r.c.Stats().Resumes == 0; i += workers {
				from := rng.IntN(size)
				got, want, err := chaoticDownload(r, ids[i%len(ids)], from, rng.IntN(size-from)+1)
				mu.Lock()
				sum.count(got, body[from:min(from+len(got), size)], want, err)
				mu.Unlock()
				if err != nil && (meddled < len(r.servers) || !errors.Is(err, ErrNoSource) &&
					!errors.Is(err, fdfs.ErrNoFile)) {
					r.t.Error(err)
				}
			}
		})
	}
	group.Wait()
	close(stop)
	meddler.Wait()
	for _, id := range ids { // without faults all files are readable again
		eventually.True(r.t, func() bool { return r.c.Order(r.servers)[0] == r.servers[0] })
		r.requireContent(id, body)
	}
	return sum
}

func (c *chaos) count(got, part []byte, want int, err error) {
	switch {
	case !bytes.Equal(got, part):
		c.wrong++
	case err == nil && len(got) != want:
		c.clean++
	case err == nil:
		c.whole++
	case got == nil:
		c.rejected++
	default:
		c.cut++
	}
}

// chaoticDownload reads a part of a file; if length is even, all bytes from the offset from on. got
// is nil if nothing was opened.
func chaoticDownload(r *rig, id fdfs.FileID, from, length int) (got []byte, want int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	info, err := r.c.Stat(ctx, FetchRequest{ID: id}, r.servers)
	if err != nil {
		return nil, 0, err
	}
	if length%2 == 0 {
		length = int(info.Size) - from
	}
	s, err := r.c.Open(ctx, FetchRequest{ID: id}, info.At(int64(from), int64(length)), r.servers)
	if err != nil {
		return nil, 0, err
	}
	defer s.Close()
	got, err = io.ReadAll(s)
	return got, length, err
}
