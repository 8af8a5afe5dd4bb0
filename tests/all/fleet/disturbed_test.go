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

// warmState is a state of a file that all gateways have cached, with expired metadata.
type warmState struct {
	name    string
	prepare func(f *e2e.Fleet, id fdfs.FileID) // brings the file into this state
	broken  *int                               // BreakAt of replies about the file; nil = no storage replies
	mayMiss bool                               // clients may get 404
	settled func(f *e2e.Fleet, id fdfs.FileID) // waits for the final state after the failure
}

// warmTTL is the ttl of metadata, and questionTime the delay of a storage's reply about a file.
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

// breaksOff returns the failure of storages whose replies about files break off in the middle.
func breaksOff(s *warmState) *failure {
	return &failure{
		name: "replies break off",
		begin: func(f *e2e.Fleet) {
			f.Fault(fdfstest.Faults{Commands: []byte{fdfstest.CmdFileInfo}, BreakAt: s.broken})
		},
		end: func(f *e2e.Fleet) { f.Slow(questionTime, 0, 0) }, after: 2 * time.Second,
	}
}

// isFreshAgain waits until every running gateway serves the file with fresh metadata.
func isFreshAgain(f *e2e.Fleet, id fdfs.FileID) {
	f.Slow(0, 0, 0)
	for _, m := range living(f) {
		eventually.True(f.T, func() bool { return m.Get(e2e.Path(id)).Header.Get("X-Cache") == "HIT" },
			"it is refreshed")
	}
}

// revived starts the storages again, and waits until the file is fresh.
func revived(f *e2e.Fleet, id fdfs.FileID) {
	eachStorage(f, func(s *fdfstest.Storage) { require.NoError(f.T, s.Revive()) })
	isFreshAgain(f, id)
}

// isGone waits until every running gateway responds 404.
func isGone(f *e2e.Fleet, id fdfs.FileID) {
	f.Slow(0, 0, 0)
	for _, m := range living(f) {
		eventually.True(f.T, func() bool {
			status, _, _ := m.Try(e2e.Path(id)) // the body may be cut when the content is removed
			return status == http.StatusNotFound
		}, "it is known to be gone")
	}
}

// living returns the running gateways.
func living(f *e2e.Fleet) []*e2e.Member {
	return slices.DeleteFunc(slices.Clone(f.Gateways), (*e2e.Member).Ended)
}

// disturbedCase is a failure during the revalidation of a file.
type disturbedCase struct {
	failureCase
	state *warmState
}

func (c disturbedCase) String() string { return c.state.name + ", " + c.failureCase.String() }

// disturbedCases returns all failures in all states; in a short run, each failure in one state.
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
			if s.broken != nil { // killed storages send no reply that could break off
				c.failure = breaksOff(s)
				list = append(list, disturbedCase{c, s})
			}
		}
	}
	return list
}

// TestCacheDisturbed: while an expired file is revalidated, every client of a running gateway gets
// the file at once, with or without a failure, and with storages running or killed. A deleted file
// is served or rejected meanwhile, and every gateway responds 404 in the end. No gateway downloads
// the file.
func TestCacheDisturbed(t *testing.T) {
	t.Parallel()
	for _, o := range failingFleets("ttl = " + warmTTL.String()) {
		e2e.OnFleets(t, 2, o, disturbedCases(), disturbedCase.play)
	}
}

// play plays a case. Its error means that the storages got too many requests, or that no response
// was stale.
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
	// Two in each questionTime, since metadata is revalidated early if its last reply was slow; or
	// one by each gateway, since gateways cannot coordinate without Redis.
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

// disturb requests the file with one client after the other, from before the failure until after
// its end, and returns the duration of that. The first gateway leads the revalidation.
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
