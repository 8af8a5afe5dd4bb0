package storage

import (
	"context"
	"fmt"
	"io"
	"sync"

	"fastdfs-gateway/internal/checksum"
	"fastdfs-gateway/internal/fdfs"
)

// maxLinks is how many links are remembered, some 150 bytes each.
const maxLinks = 8192

// linkMemory knows the CRC32 of files whose ids have another one because they are links. The zero value is ready, and it is safe
// for concurrent use.
type linkMemory struct {
	mu   sync.Mutex // guards sums
	sums map[string]uint32
}

func (l *linkMemory) knows(id fdfs.FileID, sum uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	known, ok := l.sums[id.String()]
	return ok && known == sum
}

func (l *linkMemory) add(id fdfs.FileID, sum uint32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sums == nil {
		l.sums = make(map[string]uint32)
	}
	if len(l.sums) >= maxLinks {
		for some := range l.sums {
			delete(l.sums, some)
			break
		}
	}
	l.sums[id.String()] = sum
}

// recheck finds out whether content whose CRC32 is not that of the id is a link's, one that was
// summed up in the standard variant alone while its id has the legacy one, or damaged. all is the
// whole content; nil when it is not at hand any more.
func (s *Stream) recheck(all []byte) error {
	if s.sum.Variants() == checksum.OnlyStandard && all != nil && checksum.UpdateLegacy(0, all) == s.id.CRC32 {
		s.c.legacyGroups.Learn(s.id.Group)
		return nil
	}
	had := s.sum.Standard()
	if s.c.links.knows(s.id, had) {
		return nil
	}
	s.c.counts.rechecks.Add(1)
	sum, from, sure, err := s.readAgain()
	same := err == nil && sum.Standard() == had
	if same && sum.Matches(s.id.CRC32) {
		s.c.legacyGroups.Learn(s.id.Group)
		return nil
	}
	if same {
		if sure {
			s.c.links.add(s.id, had)
		}
		s.c.log.Info("file is taken for a link: it was read twice and has another CRC32 than its id", "file", s.id.String(),
			"storage", s.from.Addr(), "again", from.Addr())
		return nil
	}
	s.c.counts.crcErrors.Add(1)
	if err != nil {
		err = fmt.Errorf("%w: storage %s gave %08x, and it cannot be read again: %w", ErrCRC, s.from.Addr(), had, err)
	} else {
		err = fmt.Errorf("%w: storage %s gave %08x, storage %s gave %08x", ErrCRC, s.from.Addr(), had, from.Addr(), sum.Standard())
	}
	s.c.log.Warn("content of a file is damaged", "file", s.id.String(), "error", err)
	return err
}

// readAgain is the sum of the whole file at the first server that has it; the one that the content
// came from is asked last. It is not sure when it is that one's again while others that may have
// the file cannot be asked.
func (s *Stream) readAgain() (sum checksum.Sum, from Server, sure bool, err error) {
	var others []Server
	for _, server := range s.c.Order(s.servers) {
		if server != s.from {
			others = append(others, server)
		}
	}
	var t tally
	for _, server := range append(others, s.from) {
		sum, err := s.c.checksum(s.ctx, s.id, s.info, server)
		if err == nil {
			return sum, server, len(t.causes) == 0, nil
		}
		t.add(err)
	}
	return checksum.Sum{}, Server{}, false, t.verdict(s.ctx)
}

// checksum is the sum of a file at one server.
func (c *Client) checksum(ctx context.Context, id fdfs.FileID, info Info, server Server) (sum checksum.Sum, err error) {
	s := &Stream{c: c, ctx: ctx, id: id, info: info, length: info.Size, servers: []Server{server}, tries: make([]int, 1)}
	defer s.Close()
	if err := s.connect(); err != nil { // before Read does: its errors do not tell that there is no such file
		return sum, err
	}
	_, err = io.Copy(&sum, s)
	return sum, err
}
