package client

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/testing/contenttest"
	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/fdfstest"

	"github.com/stretchr/testify/require"
)

func TestOpenRanges(t *testing.T) {
	r := newRig(t, 1, Options{})
	body := contenttest.Bytes(100_000)
	id := r.put(fdfstest.FileSpec{Content: body})
	info := r.stat(id)
	for _, test := range []struct{ offset, length int64 }{{0, 100_000}, {0, 1}, {99_999, 1}, {5000, 60_000}} {
		s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info.At(test.offset, test.length), r.servers)
		require.NoError(t, err)
		require.Equal(t, r.servers[0], s.from)
		got, err := io.ReadAll(s)
		require.NoError(t, err)
		require.Equal(t, body[test.offset:test.offset+test.length], got)
		n, err := s.Read(make([]byte, 10))
		require.Equal(t, io.EOF, err)
		require.Zero(t, n)
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
	}
	for _, test := range []struct{ offset, length int64 }{{0, 0}, {0, -1}, {-1, 5}, {0, 100_001}, {100_000, 1},
		{1, 1<<63 - 1}} {
		_, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info.At(test.offset, test.length), r.servers)
		require.ErrorContains(t, err, "not inside", test)
		require.NotErrorIs(t, err, ErrNoSource)
	}
	require.Equal(t, 2, r.Storage(0).Counts().Accepted,
		"one connection for questions and one for downloads did for all")
}

// TestOpenFaults: if the first server fails, Open and Read use the second one; without a second one
// they return ErrNoSource.
func TestOpenFaults(t *testing.T) {
	third := 300
	for name, test := range map[string]struct {
		faults fdfstest.Faults
		wrong  bool // counted as a wrong reply, not as a failure
	}{
		"busy":          {faults: fdfstest.Faults{Status: 16}},
		"i/o error":     {faults: fdfstest.Faults{Status: 5}},
		"garbage":       {faults: fdfstest.Faults{Garbage: true}},
		"no header":     {faults: fdfstest.Faults{BreakAt: new(-10)}},
		"half a header": {faults: fdfstest.Faults{BreakAt: new(-5)}},
		"reset":         {faults: fdfstest.Faults{ResetAt: new(-10)}},
		"too long":      {faults: fdfstest.Faults{WrongLength: 10}, wrong: true},
		"too short":     {faults: fdfstest.Faults{WrongLength: -10}, wrong: true},
		"2 GB":          {faults: fdfstest.Faults{WrongLength: 2 << 30}, wrong: true},
		"offset":        {faults: fdfstest.Faults{Status: 22}, wrong: true},
		"short":         {faults: fdfstest.Faults{BreakAt: &third}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2, Options{HedgeBudget: -1})
			body := contenttest.Bytes(1000)
			id := r.put(fdfstest.FileSpec{Content: body})
			info := r.stat(id)
			test.faults.Commands = []byte{fdfstest.CmdDownload}
			r.Storage(0).SetFaults(test.faults)
			r.requireContent(id, body)
			stats := r.c.Stats()
			if test.wrong {
				require.Equal(t, uint64(1), stats.WrongReplies)
				require.Zero(t, stats.Failures)
			} else {
				require.NotZero(t, stats.Failures)
			}
			s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info.At(0, 1000), r.servers[:1])
			if err == nil {
				_, err = io.ReadAll(s)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.NoError(t, s.Close())
			}
			require.ErrorIs(t, err, ErrNoSource)
			require.LessOrEqual(t, r.requests(0, fdfs.CmdDownload), 1+triesPerServer)
		})
	}
}

// TestResume: a source that breaks off, at each tenth of a body, is replaced, and the reader gets
// the whole body.
func TestResume(t *testing.T) {
	const size = 1 << 20
	r := newRigWith(t, 3, Options{}, quick)
	body := contenttest.Bytes(size)
	id := r.put(fdfstest.FileSpec{Content: body})
	for tenth := range 10 {
		at := tenth * size / 10
		fault := fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Times: 1}
		if tenth%2 == 0 {
			fault.BreakAt = &at
		} else {
			fault.ResetAt = &at
		}
		for _, s := range r.Storages() {
			s.SetFaults()
		}
		r.Storage(0).SetFaults(fault)
		eventually.True(t, func() bool { return r.c.Order(r.servers)[0] == r.servers[0] })
		r.requireContent(id, body)
		require.Equal(t, uint64(tenth+1), r.c.Stats().Resumes)
	}
	require.Less(t, r.Downloads(id).Bytes, int64(size*16), "a resume does not begin at the first byte")
}

// TestResumeBounds: a single server that breaks off early gets one more request; then the body ends
// with an error.
func TestResumeBounds(t *testing.T) {
	r := newRig(t, 1, Options{})
	body := contenttest.Bytes(1 << 20)
	id := r.put(fdfstest.FileSpec{Content: body})
	broken := func(times int) fdfstest.Faults {
		return fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, Times: times, BreakAt: new(30_000)}
	}
	r.Storage(0).SetFaults(broken(1))
	r.requireContent(id, body)
	r.Storage(0).SetFaults(broken(0))
	s := r.open(id)
	got, err := io.ReadAll(s)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.ErrorIs(t, err, ErrNoSource)
	require.Equal(t, body[:60_000], got)
	_, again := r.read(s)
	require.Equal(t, err, again)
}

// TestPauses: a storage that disconnects because the reader pauses stays healthy, and is used again
// without a limit.
func TestPauses(t *testing.T) {
	r := newRig(t, 1, Options{})
	r.c.t.pause = 20 * time.Millisecond
	body := contenttest.Bytes(1 << 20)
	id := r.put(fdfstest.FileSpec{Content: body})
	r.Storage(0).SetFaults(fdfstest.Faults{Commands: []byte{fdfstest.CmdDownload}, BreakAt: new(200_000)})
	s := r.open(id)
	got := make([]byte, len(body))
	for n := 0; n < len(got); n += 100_000 {
		time.Sleep(25 * time.Millisecond)
		_, err := io.ReadFull(s, got[n:min(n+100_000, len(got))])
		require.NoError(t, err)
	}
	require.True(t, bytes.Equal(body, got))
	require.NoError(t, s.Close())
	require.Equal(t, uint64(5), r.c.Stats().Resumes)
	require.Zero(t, r.c.Stats().Failures)
	require.Equal(t, Healthy, r.c.Health()[0].State)
}

// hasten sets the network timeout of one storage to d until restore is called. The other storages
// keep theirs.
func (r *rig) hasten(i int, d time.Duration) (restore func()) {
	m, err := r.c.acquire(r.servers[i])
	require.NoError(r.t, err)
	defer r.c.releaseMember(m)
	before := m.transport
	o := r.c.o.Pool
	o.NetworkTimeout = d
	m.transport = newTCPTransport(m.server, o)
	return func() {
		m.transport.Close()
		m.transport = before
	}
}

// TestResumeVersion: the download of an appender file continues at another server only if that has
// the same version.
func TestResumeVersion(t *testing.T) {
	first, second := time.Unix(1795181354, 0), time.Unix(1795181999, 0)
	body := contenttest.Bytes(20 << 20)
	for name, change := range map[string]struct {
		body []byte
		time time.Time
		bad  bool
	}{
		"same":    {body, first, false},
		"time":    {body, second, true},
		"shorter": {body[:1<<20], first, true},
		"longer":  {append(bytes.Clone(body), 'x'), first, true},
	} {
		r := newRig(t, 2, Options{})
		id := r.put(fdfstest.FileSpec{Kind: fdfs.KindAppender, Content: body, Modified: first})
		s := r.open(id)
		got := make([]byte, len(body))
		_, err := io.ReadFull(s, got[:1<<20])
		require.NoError(t, err)
		require.NoError(t, r.Change(id, change.body, change.time))
		r.Storage(0).Kill()
		_, err = io.ReadFull(s, got[1<<20:])
		if change.bad {
			require.ErrorIs(t, err, fdfs.ErrFileChanged, name)
			require.ErrorIs(t, err, ErrNoSource, name)
			require.ErrorIs(t, err, io.ErrUnexpectedEOF, name)
		} else {
			require.NoError(t, err, name)
			require.True(t, bytes.Equal(body, got), name)
		}
		require.NoError(t, s.Close())
	}
}

// TestOpenVersion: before the download of a mutable file from another server than info.From, that
// server's version is compared with info.
func TestOpenVersion(t *testing.T) {
	var log bytes.Buffer
	r := newRig(t, 2, Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	id := r.put(fdfstest.FileSpec{Kind: fdfs.KindAppender, Content: contenttest.Bytes(100)})
	info := r.stat(id)
	require.NoError(t, r.Change(id, contenttest.Bytes(200)[100:], info.Time().Add(time.Second)))
	_, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info.At(0, 100), r.servers[1:])
	require.ErrorIs(t, err, fdfs.ErrFileChanged)
	require.ErrorIs(t, err, ErrNoSource)
	require.Equal(t, 0, r.requests(1, fdfs.CmdDownload))
	require.Contains(t, log.String(), "another version of a file")
	require.NotContains(t, log.String(), "WARN", "a change of a file is no fault of the storage")
	s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, r.stat(id).At(0, 100), r.servers[1:])
	require.NoError(t, err)
	require.NoError(t, s.Close())

	log.Reset()
	r.Storage(1).SetFaults(fdfstest.Faults{Status: 22, Commands: []byte{fdfstest.CmdDownload}})
	_, err = r.c.Open(context.Background(), FetchRequest{ID: id}, r.stat(id).At(0, 100), r.servers[1:])
	require.ErrorIs(t, err, ErrNoSource)
	require.Empty(t, log.String(), "clients cause this reply by ids of files that do not exist")
}

// TestOpenFrom: the server info.From comes first, but only if it is one of the candidates.
func TestOpenFrom(t *testing.T) {
	r := newRig(t, 3, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(100)})
	info := r.stat(id)
	for from, want := range map[Server]Server{
		r.servers[2]: r.servers[2], r.servers[1]: r.servers[1], {}: r.servers[0],
		{Host: "192.0.2.1", Port: 1}: r.servers[0],
	} {
		info.From = from
		s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info.At(0, 100), r.servers)
		require.NoError(t, err)
		require.Equal(t, want, s.from)
		require.NoError(t, s.Close())
	}
}

// TestFull: if all connections to a server are in use, the next one gets the request.
func TestFull(t *testing.T) {
	r := newRig(t, 2, Options{Pool: fdfs.PoolOptions{MaxOpen: 2}})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(20 << 20)})
	info := r.stat(id)
	var from []Server
	for range 3 {
		s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info, r.servers)
		require.NoError(t, err)
		defer s.Close()
		from = append(from, s.from)
	}
	require.Equal(t, []Server{r.servers[0], r.servers[0], r.servers[1]}, from)
}

// TestFullIsNoFailure: a wait for a free connection does not count as a failure of the storage,
// whether the reply timeout or the caller's deadline ends it.
func TestFullIsNoFailure(t *testing.T) {
	r := newRig(t, 2, Options{HedgeBudget: -1, Pool: fdfs.PoolOptions{MaxOpen: 1}})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(20 << 20)})
	info := r.stat(id)
	for i := range r.servers {
		s, err := r.c.Open(context.Background(), FetchRequest{ID: id}, info, r.servers[i:i+1])
		require.NoError(t, err)
		defer s.Close()
	}
	r.c.t.replyTimeout = 10 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), 2*blameAfter)
	defer cancel()
	_, err := r.c.Open(ctx, FetchRequest{ID: id}, info, r.servers)
	require.ErrorIs(t, err, fdfs.ErrFull)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Zero(t, r.c.Stats().Failures)
}

func TestStreamCancel(t *testing.T) {
	r := newRig(t, 2, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(20 << 20)})
	info := r.stat(id)
	ctx, cancel := context.WithCancel(context.Background())
	s, err := r.c.Open(ctx, FetchRequest{ID: id}, info, r.servers)
	require.NoError(t, err)
	r.Storage(0).Partition(true)
	time.AfterFunc(30*time.Millisecond, cancel)
	_, err = io.Copy(io.Discard, s)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.NoError(t, s.Close())
	require.Zero(t, r.c.Stats().Failures)
	require.Zero(t, r.requests(1, fdfs.CmdDownload))
}

// TestStreamClose: a stream that is closed early closes its connection; a stream that was read to
// its end keeps it for reuse.
func TestStreamClose(t *testing.T) {
	r := newRig(t, 1, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(20 << 20)})
	s := r.open(id)
	_, err := io.ReadFull(s, make([]byte, 1000))
	require.NoError(t, err)
	require.Equal(t, 2, r.Storage(0).Counts().Open, "one for questions, one for the download")
	require.NoError(t, s.Close())
	_, err = s.Read(make([]byte, 1))
	require.ErrorIs(t, err, errStreamClosed)
	eventually.True(t, func() bool { return r.Storage(0).Counts().Open == 1 })
	s = r.open(id)
	_, err = io.Copy(io.Discard, s)
	require.NoError(t, err)
	require.Equal(t, 2, r.Storage(0).Counts().Open, "kept before Close")
	require.NoError(t, s.Close())
	require.Equal(t, 3, r.Storage(0).Counts().Accepted)
}

// TestSourceEnds: a source is released exactly once when it is read to its end, breaks off, or is
// closed early.
func TestSourceEnds(t *testing.T) {
	r := newRig(t, 2, Options{})
	id := r.put(fdfstest.FileSpec{Content: contenttest.Bytes(1000)})
	for name, use := range map[string]func(s *Stream){
		"read":   func(s *Stream) { _, _ = io.Copy(io.Discard, s) },
		"broken": func(s *Stream) { _, _ = io.Copy(io.Discard, s) },
		"closed": func(s *Stream) { _ = s.Close() },
	} {
		if name == "broken" {
			r.Storage(0).SetFaults(fdfstest.Faults{BreakAt: new(500), Times: 1, Commands: []byte{fdfstest.CmdDownload}})
		}
		s := r.open(id)
		ended := 0
		end := s.src.end
		s.src.end = func() { ended++; end() }
		use(s)
		require.Equal(t, 1, ended, name)
		require.NoError(t, s.Close())
		require.Equal(t, 1, ended, name)
	}
}

// TestFrozenSource: a source that stops in the middle of the body is replaced at the next byte, if
// another source has the same version.
func TestFrozenSource(t *testing.T) {
	const size = 300_000
	at := 100_000
	freeze := fdfstest.Faults{Commands: []byte{byte(fdfs.CmdDownload)}, FreezeAt: &at}
	pace := unprobed
	pace.stall = 50 * time.Millisecond
	body := contenttest.Bytes(size)
	for name, kind := range map[string]fdfs.Kind{"normal": fdfs.KindNormal, "appender": fdfs.KindAppender} {
		t.Run(name, func(t *testing.T) {
			r := newRigWith(t, 2, Options{HedgeBudget: -1}, pace)
			id := r.put(fdfstest.FileSpec{Content: body, Kind: kind})
			r.Storage(0).SetFaults(freeze)
			r.requireContent(id, body)
			require.Equal(t, uint64(1), r.c.Stats().Resumes)
			s := r.open(id)
			require.Equal(t, r.servers[1], s.from, "the one that has stalled is asked last")
			require.NoError(t, s.Close())
		})
	}
	t.Run("nobody else", func(t *testing.T) { // the download continues when the source does
		r := newRigWith(t, 2, Options{HedgeBudget: -1}, pace)
		id := r.put(fdfstest.FileSpec{Content: body})
		r.Storage(0).SetFaults(freeze)
		r.Storage(1).SetFaults(fdfstest.Faults{Commands: freeze.Commands, Status: 5})
		time.AfterFunc(4*pace.stall, func() { r.Storage(0).SetFaults() })
		r.requireContent(id, body)
		require.Zero(t, r.c.Stats().Resumes)
	})
	t.Run("another version", func(t *testing.T) { // at the only other source
		r := newRigWith(t, 2, Options{HedgeBudget: -1}, pace)
		id := r.put(fdfstest.FileSpec{Content: body, Kind: fdfs.KindAppender})
		r.Storage(0).SetFaults(freeze)
		s := r.open(id)
		got := make([]byte, size)
		_, err := io.ReadFull(s, got[:at])
		require.NoError(t, err)
		require.NoError(t, r.Change(id, body[1:], time.Now()))
		time.AfterFunc(4*pace.stall, func() { r.Storage(0).SetFaults() })
		_, err = io.ReadFull(s, got[at:])
		require.ErrorIs(t, err, fdfs.ErrFileChanged, "the last bytes are not given out")
		require.Zero(t, r.c.Stats().Resumes)
		require.NoError(t, s.Close())
	})
}
