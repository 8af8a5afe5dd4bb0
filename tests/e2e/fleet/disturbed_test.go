package fleet

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/fdfstest"
	"fastdfs-gateway/tests/stampede"

	"github.com/stretchr/testify/require"
)

// warmState is what has become of a file that all gateways have, and whose entry has expired.
type warmState struct {
	name    string
	prepare func(f *e2e.Fleet, id fdfs.FileID) // what has become of it
	broken  *int                               // bytes after which a reply about it breaks off, in the middle
	mayMiss bool                               // clients may learn that it is not there
	settled func(f *e2e.Fleet, id fdfs.FileID) // what is so when the failure is over, sooner or later
}

// warmTTL is how long an entry is fresh, and questionTime how long a storage takes to say that the
// file is still there.
const (
	warmTTL      = 2 * time.Second
	questionTime = time.Second
)

var warmStates = []warmState{
	{name: "expired, live origin", prepare: func(f *e2e.Fleet, _ fdfs.FileID) {
		f.Slow(questionTime, 0, 0)
	}, broken: new(20), settled: isFreshAgain},
	{name: "expired, dead origin", prepare: func(f *e2e.Fleet, _ fdfs.FileID) {
		eachStorage(f, (*fdfstest.Storage).Kill)
	},
		settled: revived},
	{name: "deleted", prepare: func(f *e2e.Fleet, id fdfs.FileID) {
		require.NoError(f.T, f.Cluster.Remove(id))
		f.Slow(questionTime, 0, 0)
	}, broken: new(-5), mayMiss: true, settled: isGone},
}

func eachStorage(f *e2e.Fleet, do func(*fdfstest.Storage)) {
	for _, s := range f.Cluster.Storages() {
		do(s)
	}
}

// breaksOff is the failure that the storages make: all that they say about files ends in the
// middle.
func breaksOff(s *warmState) *failure {
	return &failure{
		name: "replies break off",
		begin: func(f *e2e.Fleet) {
			f.Fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdFileInfo}, BreakAt: s.broken})
		},
		end: func(f *e2e.Fleet) { f.Slow(questionTime, 0, 0) }, after: 2 * time.Second,
	}
}

// isFreshAgain: every gateway that lives has asked, or has heard of it.
func isFreshAgain(f *e2e.Fleet, id fdfs.FileID) {
	f.Slow(0, 0, 0)
	for _, m := range living(f) {
		eventually.True(f.T, func() bool { return m.Get(e2e.Path(id)).Header.Get("X-Cache") == "HIT" },
			"it is refreshed")
	}
}

// revived: the storages come back, and all is as if they had never been away.
func revived(f *e2e.Fleet, id fdfs.FileID) {
	eachStorage(f, func(s *fdfstest.Storage) { require.NoError(f.T, s.Revive()) })
	isFreshAgain(f, id)
}

// isGone: every gateway that lives knows.
func isGone(f *e2e.Fleet, id fdfs.FileID) {
	f.Slow(0, 0, 0)
	for _, m := range living(f) {
		eventually.True(f.T, func() bool {
			status, _, _ := m.Try(e2e.Path(id)) // a response may be cut when the content goes
			return status == http.StatusNotFound
		}, "it is known to be gone")
	}
}

// living are the gateways that were not killed.
func living(f *e2e.Fleet) []*e2e.Member {
	return slices.DeleteFunc(slices.Clone(f.Gateways), (*e2e.Member).Ended)
}

// disturbedCase is a failure in the middle of the refresh of a file.
type disturbedCase struct {
	failureCase
	state *warmState
}

func (c disturbedCase) String() string { return c.state.name + ", " + c.failureCase.String() }

// disturbedCases are all of them. Where time is short each failure meets one state.
func disturbedCases() (list []disturbedCase) {
	for i := range warmStates {
		s := &warmStates[i]
		for j, c := range failureCases(100 << 10) {
			if e2e.Long || j%len(warmStates) == (i+1)%len(warmStates) {
				list = append(list, disturbedCase{c, s})
			}
		}
		some := failureCases(100 << 10)
		for _, c := range some {
			if c.failure != some[0].failure {
				continue
			}
			c.failure = &failure{name: "nothing fails", begin: func(*e2e.Fleet) {}}
			list = append(list, disturbedCase{c, s})
			if s.broken != nil { // the dead say nothing that could break off
				c.failure = breaksOff(s)
				list = append(list, disturbedCase{c, s})
			}
		}
	}
	return list
}

// TestCacheDisturbed: whatever fails, or nothing, while an expired file is refreshed, whether its
// storages live or not, every client of a gateway that lives gets it at once; and one that was
// deleted is served or rejected, and known to be gone in the end. No gateway downloads it.
func TestCacheDisturbed(t *testing.T) {
	t.Parallel()
	for _, o := range failingFleets("ttl = " + warmTTL.String()) {
		e2e.OnFleets(t, 2, o, disturbedCases(), disturbedCase.play)
	}
}

// play plays a case. Its error says that the storages were asked too often.
func (c disturbedCase) play(f *e2e.Fleet) error {
	t, gateways := f.T, len(f.Gateways)
	id, content := f.Put(c.size)
	f.Warm(id, content)
	time.Sleep(warmTTL + 500*time.Millisecond)
	c.state.prepare(f, id)
	f.ForgetCounts()
	report, took := c.disturb(f, id, content)
	e2e.RequireHonest(t, report)
	for i := range report {
		r := &report[i]
		missed := c.state.mayMiss && (r.Status == 404 || r.Outcome == stampede.Cut)
		if !c.harms(i%gateways) && !missed {
			require.Equal(t, stampede.Whole, r.Outcome, "client %d of gateway %d: %v", i, i%gateways, r.Err)
		}
	}
	if !c.state.mayMiss && e2e.XCaches(report)["STALE"] == 0 {
		return fmt.Errorf("X-Cache was %v", e2e.XCaches(report))
	}
	if n := f.Cluster.Downloads(id).Downloads; n > 0 { // content of an id never changes
		return fmt.Errorf("%d downloads", n)
	}
	// Two for as long as one takes, as an entry whose last reply took long is asked about again
	// early; or one by each gateway, which cannot agree while there is no Redis.
	questions := f.Questions()
	if most := gateways * (1 + int(took/questionTime)); questions > most {
		return fmt.Errorf("%d questions in %v, want %d at most", questions, took, most)
	}
	c.state.settled(f, id)
	require.Zero(t, f.Cluster.Downloads(id).Downloads)
	t.Logf("%d questions in %v, %v, whole after %v at most", questions, took.Round(100*time.Millisecond),
		e2e.XCaches(report), report.Whole(1))
	return nil
}

// disturb lets the clients come, one client after the other, from before the failure until after
// it. The first gateway leads.
func (c disturbedCase) disturb(f *e2e.Fleet, id fdfs.FileID, content []byte) (stampede.Report, time.Duration) {
	began := time.Now()
	lone := stampede.Run(stampede.Options{Clients: 1, URLs: e2e.URLs(f.Gateways[:1], id), Want: content})
	e2e.RequireHonest(f.T, lone)
	if c.state.name != warmStates[1].name {
		eventually.True(f.T, func() bool { return f.Questions() > 0 }, "no gateway asks")
	}
	c.begin(f)
	done := make(chan stampede.Report)
	go func() {
		done <- stampede.Run(stampede.Options{Clients: c.clients, URLs: f.Urls(id), Want: content,
			Pause: (c.after + warmTTL) / time.Duration(c.clients)})
	}()
	if c.end != nil {
		time.Sleep(c.after)
		c.end(f)
	}
	return <-done, time.Since(began)
}
