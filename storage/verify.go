package storage

import (
	"context"
	"fmt"
	"io"

	"fastdfs-gateway/internal/checksum"
)

// maxLinks bounds Client.links, which take about 150 bytes each.
const maxLinks = 8192

// recheck decides why content does not have the CRC32 of the id: the file is a link, or its id has
// the legacy CRC32 and only the standard one was computed, or it is damaged. all is the whole
// content if it is in memory, else nil.
func (s *Stream) recheck(all []byte) error {
	if s.sum.Variants() == checksum.OnlyStandard && all != nil && checksum.UpdateLegacy(0, all) == s.r.ID.CRC32 {
		s.c.legacyGroups.Learn(s.r.ID.Group)
		return nil
	}
	had := s.sum.Standard()
	if known, ok := s.c.links.Get(s.r.ID.String()); ok && known == had {
		return nil
	}
	s.c.counts.rechecks.Add(1)
	sum, from, sure, err := s.readAgain()
	same := err == nil && sum.Standard() == had
	if same && sum.Matches(s.r.ID.CRC32) {
		s.c.legacyGroups.Learn(s.r.ID.Group)
		return nil
	}
	if same {
		if sure {
			s.c.links.Add(s.r.ID.String(), had)
		}
		s.c.log.Info("file is taken for a link: it was read twice and has another CRC32 than its id", "file",
			s.r.ID.String(),
			"storage", s.from.Addr(), "again", from.Addr())
		return nil
	}
	s.c.counts.crcErrors.Add(1)
	if err != nil {
		err = fmt.Errorf("%w: storage %s gave %08x, and it cannot be read again: %w", ErrCRC, s.from.Addr(), had, err)
	} else {
		err = fmt.Errorf("%w: storage %s gave %08x, storage %s gave %08x", ErrCRC, s.from.Addr(), had, from.Addr(),
			sum.Standard())
	}
	s.c.log.Warn("content of a file is damaged", "file", s.r.ID.String(), "error", err)
	return err
}

// readAgain returns the sum of the whole file at the first server that has it. The server that sent
// the content is asked last; if it is the one, and others that may have the file could not be
// asked, sure is false.
func (s *Stream) readAgain() (sum checksum.Sum, from Server, sure bool, err error) {
	var others []Server
	for _, server := range s.c.Order(s.servers) {
		if server != s.from {
			others = append(others, server)
		}
	}
	var t tally
	for _, server := range append(others, s.from) {
		sum, err := s.c.checksum(s.ctx, s.r, s.info, server)
		if err == nil {
			return sum, server, len(t.causes) == 0, nil
		}
		t.add(err)
	}
	return checksum.Sum{}, Server{}, false, t.err(s.ctx)
}

// checksum returns the sum of the file at one server.
func (c *Client) checksum(ctx context.Context, r FetchRequest, info Info, server Server) (sum checksum.Sum, err error) {
	s := &Stream{c: c, ctx: ctx, r: r, info: info, length: info.Size, servers: []Server{server},
		tries: make(map[Server]int)}
	defer s.Close()
	if err := s.connect(); err != nil { // before Read does, whose errors are not ErrNotFound
		return sum, err
	}
	_, err = io.Copy(&sum, s)
	return sum, err
}
