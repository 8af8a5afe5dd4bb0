package storage

import (
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"sync"

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

// recheck finds out whether content whose CRC32 is not that of the id is a link's or damaged.
func (s *Stream) recheck() error {
	if s.c.links.knows(s.id, s.sum) {
		return nil
	}
	s.c.counts.rechecks.Add(1)
	sum, from, sure, err := s.readAgain()
	if err == nil && sum == s.sum {
		if sure {
			s.c.links.add(s.id, sum)
		}
		s.c.log.Info("file is taken for a link: it was read twice and has another CRC32 than its id", "file", s.id.String(),
			"storage", s.from.Addr(), "again", from.Addr())
		return nil
	}
	s.c.counts.crcErrors.Add(1)
	if err != nil {
		err = fmt.Errorf("%w: storage %s gave %08x, and it cannot be read again: %w", ErrCRC, s.from.Addr(), s.sum, err)
	} else {
		err = fmt.Errorf("%w: storage %s gave %08x, storage %s gave %08x", ErrCRC, s.from.Addr(), s.sum, from.Addr(), sum)
	}
	s.c.log.Warn("content of a file is damaged", "file", s.id.String(), "error", err)
	return err
}

// readAgain is the CRC32 of the whole file at the first server that has it; the one that the content came from is asked last. It
// is not sure when it is that one's again while others that may have the file cannot be asked.
func (s *Stream) readAgain() (sum uint32, from Server, sure bool, err error) {
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
	return 0, Server{}, false, t.verdict(s.ctx)
}

// checksum is the CRC32 of a file at one server.
func (c *Client) checksum(ctx context.Context, id fdfs.FileID, info Info, server Server) (uint32, error) {
	s := &Stream{c: c, ctx: ctx, id: id, info: info, length: info.Size, servers: []Server{server}, tries: make([]int, 1)}
	defer s.Close()
	hash := crc32.NewIEEE()
	if err := s.connect(); err != nil { // before Read does: its errors do not tell that there is no such file
		return 0, err
	}
	if _, err := io.Copy(hash, s); err != nil {
		return 0, err
	}
	return hash.Sum32(), nil
}
