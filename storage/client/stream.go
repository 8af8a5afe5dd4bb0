package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
	"fastdfs-gateway/storage/client/stall"
)

// triesPerServer bounds the requests of a Stream to one server.
const triesPerServer = 2

// minProgress is the number of bytes after which a failure of the source does not count as a try.
const minProgress = 64 << 10

var (
	errStreamClosed = errors.New("stream is closed")
	errStalled      = errors.New("it sends nothing or little, and another storage can")
)

// Stream is the content of a file that a storage sends. If its source fails, sends nothing for 2 s
// while another one can, or less than 16 KiB/s for 10 s (stall.LowRate), the Stream continues with
// the next byte at another source that has the same version. A Stream requests bytes at most twice
// from a server that does not send 64 KiB. A failure of a source after the reader paused for 5 s or
// more does not count: storages close connections that are not read from. A Stream holds no content
// in memory.
//
// Only one goroutine may use it. To end a blocked Read, cancel the context that was given to Open.
type Stream struct {
	c *Client
	// ctx is the context of Open, for requests to another server in Read, which has no such
	// parameter.
	ctx     context.Context
	r       FetchRequest
	part    Part // requested
	servers []Server
	tries   map[Server]int

	checkCRC     bool         // compare sum with the CRC32 in the id
	src          *source      // nil before the first byte, between two sources and at the end
	from         Server       // the newest source
	senders      []Server     // all sources that have sent bytes
	got          int64        // bytes received
	sum          checksum.Sum // of these bytes, in the variants that files of the group have
	sourceErr    error        // failure of the last source
	err          error        // result of further Reads
	checkVersion bool         // request the version again after the last byte
}

var _ io.ReadCloser = (*Stream)(nil)

// source is a response with the bytes of a file, whose body is being read.
type source struct {
	m    *member
	body io.ReadCloser
	stop func() // ends the running read
	end  func() // ends the use of the reply

	watch *stall.Watch[*source] // of the reads; nil before Stream.use

	began  int64     // position in the stream where it began
	last   time.Time // end of the last Read
	paused bool      // the reader has paused for timing.pause
}

// close ends the use of the reply. Its connection is closed unless the reply was read completely.
func (s *source) close() {
	_ = s.body.Close() // what counts was read
	s.end()
}

// Open requests a part of a file that is not empty, and returns when a reply has begun: until then
// an error can still become an HTTP status. The server in From gets the request first if it is
// among servers and not less healthy than the others, which follow as in Stat. If the reply has
// another length, or is of another version of a slave, an appender or a link, the next server gets
// the request. The errors are those of Stat, and fdfs.ErrFileChanged.
//
// The Stream ends with ctx. The caller closes it.
//
// For a file that can change, the version is requested again before Read returns the last bytes; if
// it has changed, Read returns fdfs.ErrFileChanged. Storages report times in whole seconds, so a
// change that keeps the size, within one second of the change before, is not detected here, see
// Version.AsOf.
//
// A Stream of a whole normal or trunk file compares the content with the CRC32 in the id before
// Read returns the last bytes. If it differs, the file is a symbolic link, which storages do not
// report, or corrupted. Recheck decides that: for a corrupted file Read returns fdfs.ErrFileCRC,
// and the body stays incomplete; if the file fits into the first Read, the Stream continues at
// another server instead. The CRC32 may be of either variant: the first long file of a group that
// turns out to have the legacy one is read twice as well.
func (c *Client) Open(ctx context.Context, r FetchRequest, part Part, servers []Server) (*Stream, error) {
	r.ID = r.ID.Clone()
	if part.Offset < 0 || part.Length <= 0 || part.Offset > part.Size-part.Length {
		return nil, fmt.Errorf("cannot open %q: %d bytes from %d on are not inside of its %d", r.ID, part.Length,
			part.Offset, part.Size)
	}
	s := &Stream{
		c: c, ctx: ctx, r: r, part: part,
		servers:      slices.Clone(c.allowed(r.ID, servers)),
		tries:        make(map[Server]int),
		sum:          checksum.New(c.legacyGroups.Variants(r.ID.Group)),
		checkVersion: mayDiffer(r.ID, part.Version),
	}
	s.checkCRC = !r.Unchecked && !s.checkVersion && part.Size == r.ID.Size && part.Length == part.Size
	if i := slices.Index(s.servers, part.From); i > 0 {
		s.servers = slices.Insert(slices.Delete(s.servers, i, i+1), 0, part.From)
	}
	if err := s.connect(); err != nil {
		return nil, fmt.Errorf("cannot open %q: %w", r.ID, err)
	}
	return s, nil
}

// Senders returns all servers that have sent bytes.
func (s *Stream) Senders() []Server { return s.senders }

// connect requests the missing bytes.
func (s *Stream) connect() error {
	again := s.sourceErr != nil
	src, err := s.ask(s.ctx, s.candidates(), again)
	if err != nil {
		return err
	}
	s.use(src, again)
	return nil
}

// candidates returns the servers to which further requests are allowed, in order.
func (s *Stream) candidates() []Server {
	list := slices.DeleteFunc(slices.Clone(s.servers), func(v Server) bool { return s.tries[v] >= triesPerServer })
	slices.SortStableFunc(list, func(v, w Server) int { return s.tries[v] - s.tries[w] })
	return s.c.Order(list)
}

// ask requests the missing bytes from servers; again: earlier bytes came from another source.
func (s *Stream) ask(ctx context.Context, servers []Server, again bool) (*source, error) {
	part := s.part.At(s.part.Offset+s.got, s.part.Length-s.got)
	if again {
		part.From = Server{} // that was some time ago
	}
	a, err := s.c.askEach(ctx, servers, request{
		ask: func(ctx context.Context, m *member) (reply, error) {
			body, err := m.transport.Open(ctx, s.r, part)
			if err != nil {
				return reply{}, err
			}
			return reply{source: &source{m: m, body: body, last: time.Now()}}, nil
		},
		onResult: s.onResult, download: true, file: s.r,
	})
	if err != nil {
		return nil, err
	}
	a.source.began = s.got
	return a.source, nil
}

// use sets the source of the following reads.
func (s *Stream) use(src *source, again bool) {
	s.src, s.from = src, src.m.server
	o := stall.Options[*source]{
		Floor: s.c.t.stall, Window: s.c.t.window, Read: src.body.Read, Find: s.findOther, Stop: src.stop,
		Drop: s.dropOther,
	}
	if body, ok := src.body.(skipper); ok {
		o.Skipped = body.Skipped
	}
	src.watch = stall.New(s.ctx, o)
	if again {
		s.c.counts.resumes.Add(1)
		s.c.log.Info("download goes on", "file", s.r.ID.String(), "byte", s.part.Offset+s.got, "storage", s.from.Addr(),
			"after", s.sourceErr)
	}
}

// findOther requests the missing bytes from the other servers while the current source sends
// nothing or little. fetch waits until findOther returns.
func (s *Stream) findOther(ctx context.Context) (*source, error) {
	tries := maps.Clone(s.tries)
	others := slices.DeleteFunc(s.candidates(), func(o Server) bool { return o == s.from })
	src, err := s.ask(ctx, others, true)
	if ctx.Err() != nil && err != nil { // the search was cancelled
		s.tries = tries
	}
	return src, err
}

// dropOther closes a source that was found too late.
func (s *Stream) dropOther(src *source) {
	s.tries[src.m.server]--
	src.close()
}

// onResult counts a try of a server, unless the request was cancelled for a faster server. A server
// without the file, or with another version, gets no further requests.
func (s *Stream) onResult(server Server, err error) {
	switch {
	case errors.Is(err, errHedgeWon), errors.Is(err, errUnneeded):
	case errors.Is(err, fdfs.ErrNoFile), errors.Is(err, fdfs.ErrFileChanged), errors.Is(err, ErrWrong):
		s.tries[server] += triesPerServer
	default:
		s.tries[server]++
	}
}

// sameVersion requests the version of the file from a server and returns fdfs.ErrFileChanged if it
// is not that of the part. It may run for two servers concurrently.
func (s *Stream) sameVersion(ctx context.Context, m *member) error {
	got, err := s.c.stat(ctx, m, s.r)
	if err != nil {
		return err
	}
	return compareVersions(m.server, got.Version, s.part.Version)
}

// Read implements io.Reader. It returns io.EOF only after the last requested byte. If the stream
// ends before, the error is io.ErrUnexpectedEOF and ErrNoSource, with the reasons. The error is
// fdfs.ErrFileCRC for wrong content, and fdfs.ErrFileChanged for content that changed.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 && s.err == nil {
		return 0, nil
	}
	// A stream that fits into p is read completely before Read returns, so that corrupted content
	// can be replaced.
	atOnce := s.checkCRC && s.got == 0 && s.part.Length <= int64(len(p))
	n := 0
	for s.err == nil {
		if s.src == nil {
			if err := s.connect(); err != nil {
				s.err = s.incomplete(err)
				break
			}
		}
		n += s.fetch(p[n:])
		switch {
		case s.got == s.part.Length:
			var all []byte
			if atOnce {
				all = p[:n]
			}
			err := s.complete(all)
			if err == nil {
				s.err = io.EOF
				return n, nil
			}
			if !atOnce {
				s.err = fmt.Errorf("cannot read %q: %w", s.r.ID, err)
				break
			}
			s.restart(err)
			n = 0
		case n > 0 && !atOnce:
			return n, nil
		}
	}
	return 0, s.err
}

// fetch reads from the source. It closes the source after an error, and replaces it if another one
// was found.
func (s *Stream) fetch(p []byte) int {
	src := s.src
	src.paused = src.paused || time.Since(src.last) >= s.c.t.pause
	n, next, err := src.watch.Read(p)
	if next.OK {
		s.dropSource(errStalled)
		s.use(next.Source, true)
		return 0
	}
	src.last = time.Now()
	if s.got += int64(n); n > 0 && !slices.Contains(s.senders, src.m.server) {
		s.senders = append(s.senders, src.m.server)
	}
	if s.checkCRC {
		_, _ = s.sum.Write(p[:n])
	}
	if err != nil && s.got < s.part.Length {
		s.dropSource(err)
	}
	return n
}

// dropSource closes the source and records its failure.
func (s *Stream) dropSource(err error) {
	switch {
	case s.ctx.Err() != nil || s.c.ctx.Err() != nil:
		// the caller ended the stream
	case s.src.paused:
		s.tries[s.from]--
	default:
		if s.got-s.src.began >= minProgress {
			s.tries[s.from]--
		}
		s.c.failed(s.src.m, err, true)
	}
	s.sourceErr = fmt.Errorf("storage %s broke off: %w", s.from.Addr(), timedOut(err))
	s.src.close()
	s.src = nil
}

// complete is called when all bytes have been received, before Read returns the last of them; all
// is the whole content if it is in memory, else nil.
func (s *Stream) complete(all []byte) error {
	src := s.src
	s.src = nil
	_ = src.body.Close() // the next source may need its connection, if all others are in use
	defer src.end()
	s.c.completed(src.m, true)
	if s.checkVersion {
		return s.confirm(src.m)
	}
	if s.checkCRC && !s.sum.Matches(s.r.ID.CRC32) {
		return s.recheck(all)
	}
	return nil
}

// confirmTimeout bounds the request for the version to the server that sent the bytes.
const confirmTimeout = 2 * time.Second

// confirm requests the version once more after the last byte of a file that can change. A download
// does not contain the version of its bytes: they are of the requested version if the server had
// that before and after the download. If the server does not reply any more, confirm requests the
// version from the others; not if the server has deleted the file, since it may have changed the
// file before.
func (s *Stream) confirm(m *member) error {
	ctx, cancel := context.WithTimeout(s.ctx, confirmTimeout)
	err := s.sameVersion(ctx, m)
	cancel()
	if err == nil || errors.Is(err, fdfs.ErrFileChanged) || errors.Is(err, fdfs.ErrNoFile) || s.ctx.Err() != nil {
		return err
	}
	others := slices.DeleteFunc(s.c.Order(s.servers), func(other Server) bool { return other == m.server })
	a, otherErr := s.c.askEach(s.ctx, others, request{ask: func(ctx context.Context, m *member) (reply, error) {
		return reply{}, s.sameVersion(ctx, m)
	}})
	if otherErr != nil { // even ErrNoFile of the others is ErrNoSource here: the sender had the file
		var t tally
		t.addFailure(err)
		t.addFailure(otherErr)
		return t.err(s.ctx)
	}
	a.end()
	return nil
}

// restart begins again at the first byte, after corrupted content of which Read has returned no
// byte. It leaves out the excluded servers; if none is excluded, the senders.
func (s *Stream) restart(why error) {
	left := s.c.allowed(s.r.ID, s.servers)
	if len(left) == len(s.servers) {
		for _, server := range s.senders {
			s.onResult(server, ErrWrong)
		}
	}
	s.servers, s.senders = left, nil
	s.got, s.sourceErr = 0, why
	s.sum = checksum.New(s.sum.Variants())
}

// incomplete returns the error of a Read that cannot continue before the last byte.
func (s *Stream) incomplete(err error) error {
	return fmt.Errorf("cannot read %q beyond byte %d of %d: %w: %w: %w", s.r.ID, s.part.Offset+s.got, s.part.Size,
		io.ErrUnexpectedEOF, ErrNoSource, errors.Join(err, s.sourceErr))
}

// Close ends the stream. If bytes are left, the connection is closed. Further calls do nothing.
func (s *Stream) Close() error {
	if s.src != nil {
		s.src.close()
		s.src = nil
	}
	s.err = errStreamClosed
	return nil
}
