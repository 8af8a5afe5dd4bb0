package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"fastdfs-gateway/internal/checksum"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/stall"
)

// triesPerServer is how often a Stream asks a server for bytes.
const triesPerServer = 2

// progress is how many bytes a source must have given before it broke to be asked as if it never had.
const progress = 64 << 10

var (
	errStreamClosed = errors.New("stream is closed")
	errStalled      = errors.New("it sends nothing, and another storage does")
)

// Stream is content of a file, as it comes from a storage. When its source breaks, or sends nothing
// for 2 s while another one can, it goes on from the next byte at another one that has the same
// version; each server is asked twice at most without giving 64 KiB. A source that has broken after
// the reader made a pause of 5 s or more does not count: storages close connections that nobody
// reads from. Nothing is held in memory.
//
// Only one goroutine may use it. To end a Read that waits, end the context that was given to Open.
type Stream struct {
	c       *Client
	ctx     context.Context // of Open: a Read may have to ask another server, and has no context of its own
	id      fdfs.FileID
	info    Info
	offset  int64 // of the first byte, in the file
	length  int64 // how many bytes were asked for
	servers []Server
	tries   []int // for each of servers

	whole   bool         // sum is to be compared with the id's CRC32
	src     *source      // nil before the first byte, between two sources and after the end
	from    Server       // of the newest source
	got     int64        // bytes received
	sum     checksum.Sum // of these, in the variants that files of the group have
	broken  error        // why the last source was given up
	err     error        // what Read returns from now on
	version bool         // every source must be asked for its version
}

var _ io.ReadCloser = (*Stream)(nil)

// source is an answer to CmdDownload whose body is being read.
type source struct {
	c    *Client
	m    *member
	conn *fdfs.Conn
	end  func() // of its answer; nil before it is known to be used

	watch *stall.Watch[*source] // of the reads; nil before it is known to be used

	began  int64     // bytes of the stream that were there before
	read   time.Time // when the last Read ended
	paused bool      // the reader has let it wait
}

// close gives the connection back. One whose answer was not read to its end is closed.
func (s *source) close() {
	s.conn.Release()
	if s.end != nil {
		s.end()
	}
	s.c.release(s.m)
}

// Open asks for bytes of a file, offset to offset+length of the Info that Stat gave, and returns when an answer has begun: errors before
// that can still become a status of HTTP. The server that Info is from comes first, when it is among servers and as healthy as the
// others; the others follow as in Stat. An answer of any other length than the one asked for is wrong, and so is one of another
// version of a slave, appender or link; then the next server is asked. The errors are those of Stat, and ErrChanged. An empty range cannot
// be asked for: whoever wants no bytes needs no storage.
//
// The Stream lives no longer than ctx. The caller closes it.
//
// Of a file that can change, the version is asked for once more before Read gives out the last
// bytes, and Read returns ErrChanged when it is another one. Storages tell times in whole seconds:
// a change that keeps the size, within the second of the change before, stays unseen.
//
// A Stream over all of a normal or trunk file compares the content with the CRC32 in the id before
// Read gives out the last bytes. When it is another one the file may be a symbolic link, which
// storages do not tell of, or be damaged, so it is read once more, from another server where there
// is one. The same content again is that of a link, and it is remembered. Anything else makes Read
// return ErrCRC, and the body stays incomplete. A file that fits into the first Read is then taken
// from another server instead. The CRC32 may be that of either variant; of a group without known
// files of the legacy one, the first longer file that has it is read twice as well.
func (c *Client) Open(ctx context.Context, id fdfs.FileID, info Info, offset, length int64, servers []Server) (*Stream, error) {
	return c.open(ctx, id, info, offset, length, servers, id.Immutable() && !info.Linked && info.Size == id.Size && length == info.Size)
}

// OpenUnchecked is Open for a caller that compares the content with the CRC32 in the id itself: it
// is read once.
func (c *Client) OpenUnchecked(ctx context.Context, id fdfs.FileID, info Info, offset, length int64, servers []Server) (*Stream, error) {
	return c.open(ctx, id, info, offset, length, servers, false)
}

// open is Open; check tells that the content is compared with the CRC32 in the id.
func (c *Client) open(ctx context.Context, id fdfs.FileID, info Info, offset, length int64, servers []Server, check bool) (*Stream, error) {
	if offset < 0 || length <= 0 || offset > info.Size-length {
		return nil, fmt.Errorf("cannot open %q: %d bytes from %d on are not inside of its %d", id, length, offset, info.Size)
	}
	s := &Stream{
		c: c, ctx: ctx, id: id.Clone(), info: info, offset: offset, length: length,
		servers: slices.Clone(servers),
		whole:   check,
		sum:     checksum.New(c.legacyGroups.Variants(id.Group)),
		version: !id.Immutable() || info.Linked,
	}
	if i := slices.Index(servers, info.From); i > 0 {
		s.servers = slices.Insert(slices.Delete(s.servers, i, i+1), 0, info.From)
	}
	s.tries = make([]int, len(servers))
	if err := s.connect(); err != nil {
		return nil, fmt.Errorf("cannot open %q: %w", id, err)
	}
	return s, nil
}

// From is the server that the newest bytes came from.
func (s *Stream) From() Server { return s.from }

// connect asks for the bytes that are missing.
func (s *Stream) connect() error {
	again := s.broken != nil
	src, err := s.ask(s.ctx, s.candidates(), again)
	if err != nil {
		return err
	}
	s.use(src, again)
	return nil
}

// candidates are the servers that may still be asked, in this order.
func (s *Stream) candidates() []Server {
	var list []Server
	for try := range triesPerServer {
		for i, server := range s.servers {
			if s.tries[i] == try {
				list = append(list, server)
			}
		}
	}
	return s.c.Order(list)
}

// ask asks servers for the bytes that are missing; again tells that others have come from another source.
func (s *Stream) ask(ctx context.Context, servers []Server, again bool) (*source, error) {
	body, left := fdfs.AppendDownload(nil, s.id, s.offset+s.got, s.length-s.got), s.length-s.got
	a, err := askEach(ctx, s.c, servers, question[*source]{
		ask: func(ctx context.Context, m *member) (*source, error) {
			if s.version && (again || m.server != s.info.From) {
				if err := s.sameVersion(ctx, m); err != nil {
					return nil, err
				}
			}
			return s.c.download(ctx, m, body, left)
		},
		drop: (*source).close,
		seen: s.seen, download: true,
	})
	if err != nil {
		return nil, err
	}
	a.value.end, a.value.began = a.end, s.got
	return a.value, nil
}

// use makes a source the one that is read from.
func (s *Stream) use(src *source, again bool) {
	s.src, s.from = src, src.m.server
	src.watch = stall.New(s.ctx, stall.Options[*source]{
		Floor: s.c.t.stall, Read: src.conn.Read, Find: s.findOther, Stop: src.end, Drop: s.dropOther,
	})
	if again {
		s.c.counts.resumes.Add(1)
		s.c.log.Info("download goes on", "file", s.id.String(), "byte", s.offset+s.got, "storage", s.from.Addr(), "after", s.broken)
	}
}

// findOther looks for another source while the present one sends nothing. Fetch waits for it.
func (s *Stream) findOther(search context.Context) (*source, error) {
	if !s.c.enter() {
		return nil, errClientClosed
	}
	defer s.c.running.Done()
	ctx, cancel := context.WithCancel(s.ctx) // that of the source, which outlives the search
	unlink := context.AfterFunc(search, cancel)
	tries := slices.Clone(s.tries)
	others := slices.DeleteFunc(s.candidates(), func(o Server) bool { return o == s.from })
	src, err := s.ask(ctx, others, true)
	if err != nil {
		if search.Err() != nil { // nobody was waited for to the end
			s.tries = tries
		}
		cancel()
		return nil, err
	}
	unlink()
	end := src.end
	src.end = func() {
		end()
		cancel()
	}
	return src, nil
}

// dropOther gives back a source that was found too late.
func (s *Stream) dropOther(src *source) {
	s.count(src.m.server, -1)
	src.close()
}

// seen counts the tries of a server. One that does not have what is wanted is not asked again.
func (s *Stream) seen(server Server, err error) {
	if errors.Is(err, ErrNotFound) || errors.Is(err, ErrChanged) || errors.Is(err, errWrong) {
		s.count(server, triesPerServer)
		return
	}
	s.count(server, 1)
}

// count adds tries of a server.
func (s *Stream) count(server Server, n int) {
	for i := range s.servers { // it may be there twice
		if s.servers[i] == server {
			s.tries[i] += n
		}
	}
}

// sameVersion asks a server whether it has the version of the file that is wanted. It may run for two servers at a time.
func (s *Stream) sameVersion(ctx context.Context, m *member) error {
	got, err := s.c.stat(ctx, m, s.id, fdfs.AppendFile(nil, s.id))
	if err != nil {
		return err
	}
	if got.Size != s.info.Size || got.ModTime.Unix() != s.info.ModTime.Unix() {
		return fmt.Errorf("%w: storage %s has %d bytes of %s, wanted are %d of %s", ErrChanged, m.server.Addr(),
			got.Size, got.ModTime.UTC(), s.info.Size, s.info.ModTime.UTC())
	}
	return nil
}

// download asks one server for bytes, of which there must be length.
func (c *Client) download(ctx context.Context, m *member, body []byte, length int64) (*source, error) {
	conn, h, err := m.pool.Request(ctx, fdfs.CmdDownload, 0, body)
	switch {
	case errors.Is(err, fdfs.ErrInvalid):
		return nil, fmt.Errorf("%w: storage %s has fewer bytes of the file: %w", errWrong, m.server.Addr(), err)
	case err != nil:
		return nil, absent(m, err)
	case h.Length != length:
		conn.Release()
		return nil, fmt.Errorf("%w: storage %s sends %d bytes, asked for were %d", errWrong, m.server.Addr(), h.Length, length)
	}
	c.hold(m)
	return &source{c: c, m: m, conn: conn, read: time.Now()}, nil
}

// Read reads bytes of the file as they come. io.EOF comes after the last byte that was asked for and never before. An end that
// comes too early is io.ErrUnexpectedEOF and ErrNoSource, with the reasons; wrong content is ErrCRC.
func (s *Stream) Read(p []byte) (int, error) {
	if len(p) == 0 && s.err == nil {
		return 0, nil
	}
	// What fits into p is read into it whole: nobody has seen any of it when it turns out to be damaged.
	atOnce := s.whole && s.got == 0 && s.length <= int64(len(p))
	n := 0
	for s.err == nil {
		if s.src == nil {
			if err := s.connect(); err != nil {
				s.err = s.cut(err)
				break
			}
		}
		n += s.fetch(p[n:])
		switch {
		case s.got == s.length:
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
				s.err = fmt.Errorf("cannot read %q: %w", s.id, err)
				break
			}
			s.startAgain(err)
			n = 0
		case n > 0 && !atOnce:
			return n, nil
		}
	}
	return 0, s.err
}

// fetch reads from the source, and gives it up when that fails.
func (s *Stream) fetch(p []byte) int {
	src := s.src
	src.paused = src.paused || time.Since(src.read) >= s.c.t.pause
	n, next, err := src.watch.Read(p)
	if next.OK {
		s.lose(errStalled)
		s.use(next.Source, true)
		return 0
	}
	src.read = time.Now()
	s.c.counts.bytes.Add(uint64(n))
	s.got += int64(n)
	if s.whole {
		_, _ = s.sum.Write(p[:n])
	}
	if err != nil && s.got < s.length {
		s.lose(err)
	}
	return n
}

// lose gives the source up.
func (s *Stream) lose(err error) {
	switch {
	case s.ctx.Err() != nil || s.c.life.Err() != nil:
		// the caller's own affair
	case s.src.paused:
		s.count(s.from, -1)
	default:
		if s.got-s.src.began >= progress {
			s.count(s.from, -1)
		}
		s.c.failed(s.src.m, err, true)
	}
	s.broken = fmt.Errorf("storage %s broke off: %w", s.from.Addr(), timedOut(err))
	s.src.close()
	s.src = nil
}

// complete is called when all bytes are there, before the last of them are given out; all is nil,
// or all of them.
func (s *Stream) complete(all []byte) error {
	m := s.src.m
	s.c.hold(m)
	defer s.c.release(m)
	s.c.completed(m, true)
	s.src.close()
	s.src = nil
	if s.version {
		return s.confirm(m)
	}
	if s.whole && !s.sum.Matches(s.id.CRC32) {
		return s.recheck(all)
	}
	return nil
}

// confirmTimeout is how long the server that bytes came from may take to confirm their version.
const confirmTimeout = 2 * time.Second

// confirm asks for the version of a file that can change once more, when all bytes are there: a
// download does not tell which version its bytes are of, so they are of the wanted one for sure
// when it was there before and afterwards. The server that they came from is asked, and where that
// does not answer any more, the others.
func (s *Stream) confirm(m *member) error {
	ctx, cancel := context.WithTimeout(s.ctx, confirmTimeout)
	err := s.sameVersion(ctx, m)
	cancel()
	if err == nil || errors.Is(err, ErrChanged) || errors.Is(err, ErrNotFound) || s.ctx.Err() != nil {
		return err
	}
	others := slices.DeleteFunc(s.c.Order(s.servers), func(other Server) bool { return other == m.server })
	a, otherErr := askEach(s.ctx, s.c, others, question[struct{}]{ask: func(ctx context.Context, m *member) (struct{}, error) {
		return struct{}{}, s.sameVersion(ctx, m)
	}})
	if otherErr != nil {
		return errors.Join(err, otherErr)
	}
	a.end()
	return nil
}

// startAgain is called when all bytes were damaged and none was given out.
func (s *Stream) startAgain(why error) {
	s.seen(s.from, errWrong)
	s.got, s.broken = 0, why
	s.sum.Reset()
}

// cut is the error for a body that stays incomplete.
func (s *Stream) cut(err error) error {
	why := causes{err}
	if s.broken != nil {
		why = append(why, s.broken)
	}
	return fmt.Errorf("cannot read %q beyond byte %d of %d: %w: %w: %w", s.id, s.offset+s.got, s.info.Size,
		io.ErrUnexpectedEOF, ErrNoSource, why)
}

// Close ends the stream. When there are bytes left to read the connection is closed. Further calls do nothing.
func (s *Stream) Close() error {
	if s.src != nil {
		s.src.close()
		s.src = nil
	}
	s.err = errStreamClosed
	return nil
}
