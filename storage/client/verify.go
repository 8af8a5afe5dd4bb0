package client

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"fastdfs-gateway/internal/content"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/fdfs/checksum"
)

const (
	maxLinks    = 8192             // entries of Client.links, about 150 bytes each
	maxExcluded = 4096             // files in Client.excluded, about 300 bytes each
	excludeTime = 10 * time.Minute // for which a server is excluded for a file: a replica may be repaired

	maxRereads = 3 // complete reads in a Recheck
	// A read in a Recheck may take rereadTime, and as long as its bytes take at rereadRate, in
	// bytes per second.
	rereadTime = 30 * time.Second
	rereadRate = 256 << 10
)

// exclusion are the servers with wrong content of a file.
type exclusion struct {
	servers []Server
	until   time.Time
}

// Exclude excludes a server for one file: for ten minutes Open requests the file from this server
// only if all of the servers are excluded.
func (c *Client) Exclude(id fdfs.FileID, server Server) {
	c.excludeMu.Lock()
	defer c.excludeMu.Unlock()
	name := id.String()
	known, _ := c.excluded.Get(name)
	servers := known.servers
	if time.Now().After(known.until) {
		servers = nil
	}
	if !slices.Contains(servers, server) {
		servers = append(slices.Clip(servers), server) // a copy: others may read the old ones
	}
	c.excluded.Add(name, exclusion{servers, time.Now().Add(excludeTime)})
}

// allowed returns the servers that are not excluded for a file, or all servers if each one is
// excluded.
func (c *Client) allowed(id fdfs.FileID, servers []Server) []Server {
	if c.excluded.Len() == 0 {
		return servers
	}
	known, ok := c.excluded.Get(id.String())
	if !ok || time.Now().After(known.until) {
		return servers
	}
	left := slices.DeleteFunc(slices.Clone(servers), func(s Server) bool { return slices.Contains(known.servers, s) })
	if len(left) == 0 {
		return servers
	}
	return left
}

// recheck decides why content does not have the CRC32 of the id: the file is a link, or its id has
// the legacy CRC32 and only the standard one was computed, or it is corrupted. all is the whole
// content if it is in memory, else nil.
func (s *Stream) recheck(all []byte) error {
	if s.sum.Variants() == checksum.OnlyStandard && all != nil && checksum.UpdateLegacy(0, all) == s.r.ID.CRC32 {
		s.c.legacyGroups.Learn(s.r.ID.Group)
		return nil
	}
	sum, err := s.c.Recheck(s.ctx, s.r, s.part.Version, s.sum, s.senders, s.servers)
	if err == nil && sum.Matches(s.r.ID.CRC32) {
		s.c.legacyGroups.Learn(s.r.ID.Group)
	}
	return err
}

// reading is the result of one complete read of a file.
type reading struct {
	sum  uint32   // standard CRC32
	from []Server // all senders of bytes; the zero Server is an unknown one
}

// independent reports whether two reads have no sender in common.
func (r reading) independent(other reading) bool {
	return !slices.Contains(r.from, Server{}) && !slices.Contains(other.from, Server{}) &&
		!slices.ContainsFunc(r.from, func(s Server) bool { return slices.Contains(other.from, s) })
}

// Recheck decides why the whole content of a file does not have the CRC32 of the id. first is its
// sum, and senders are the servers that each sent some bytes of it; the zero Server is an unknown
// one. Recheck reads the file again from one server after the other, first from servers that are no
// senders, until the case is decided, at most three times:
//
//   - The error is nil if the content is right: it is that of a link, because two different servers
//     have sent the same content, or one server has sent it twice while all others reply that they
//     do not have the file; or its legacy CRC32 is the one of the id, and again has this sum.
//   - The error is fdfs.ErrFileCRC for all other content. A server is excluded for the file if its
//     content is proven to be wrong: another server has content with the CRC32 of the id, or two
//     other servers agree on different content.
func (c *Client) Recheck(ctx context.Context, r FetchRequest, v content.Version, first checksum.Sum, senders,
	servers []Server) (again checksum.Sum, err error) {
	r.ID = r.ID.Clone()
	if known, ok := c.links.Get(r.ID.String()); ok && known == first.Standard() {
		return first, nil
	}
	c.counts.rechecks.Add(1)
	j := judge{c: c, id: r.ID, readings: []reading{{first.Standard(), senders}}}
	var t tally
	for _, server := range c.rereadOrder(senders, servers) {
		if len(j.readings) > maxRereads || ctx.Err() != nil {
			break
		}
		again, err = c.checksum(ctx, r, v, server)
		if t.addFailure(err); err != nil {
			continue
		}
		if done, right := j.addReading(again, server); right {
			return again, nil
		} else if done {
			return again, j.corrupted(nil)
		}
	}
	if len(j.readings) == 2 && len(t.causes) == 0 && ctx.Err() == nil && j.readings[1].sum == first.Standard() {
		j.isLink() // this server is the only one that has the file
		return again, nil
	}
	return again, j.corrupted(t.err(ctx))
}

// rereadOrder returns the servers that are no senders, by health, and then the senders.
func (c *Client) rereadOrder(senders, servers []Server) []Server {
	var others, same []Server
	for _, server := range c.Order(servers) {
		if slices.Contains(senders, server) {
			same = append(same, server)
		} else {
			others = append(others, server)
		}
	}
	return append(others, same...)
}

// judge compares the reads of one file with the first one.
type judge struct {
	c        *Client
	id       fdfs.FileID
	readings []reading // the first is that of Recheck's caller
}

// addReading adds a read of the whole file from one server. done: the case is decided; right: the
// first read was right.
func (j *judge) addReading(sum checksum.Sum, server Server) (done, right bool) {
	next, first := reading{sum.Standard(), []Server{server}}, j.readings[0]
	if sum.Matches(j.id.CRC32) {
		if next.sum == first.sum { // its legacy CRC32 was not computed before
			return true, true
		}
		j.excludeOthers(next)
		return true, false
	}
	for i, before := range j.readings {
		if before.sum == next.sum && before.independent(next) {
			if i == 0 {
				j.isLink()
			} else {
				j.excludeOthers(next, before)
			}
			return true, next.sum == first.sum
		}
	}
	j.readings = append(j.readings, next)
	return false, false
}

// excludeOthers excludes the senders of reads whose content differs from the right reads.
func (j *judge) excludeOthers(right ...reading) {
	for _, r := range j.readings {
		for _, server := range r.from {
			sender := func(ok reading) bool { return slices.Contains(ok.from, server) }
			if r.sum != right[0].sum && server != (Server{}) && !slices.ContainsFunc(right, sender) {
				j.c.Exclude(j.id, server)
				j.c.log.Warn("storage has corrupted content of a file, and is not asked for it",
					"storage", server.Addr(), "file", j.id.String(), "crc32", fmt.Sprintf("%08x", r.sum))
			}
		}
	}
}

// isLink records that the first read is the content of a link.
func (j *judge) isLink() {
	j.c.links.Add(j.id.String(), j.readings[0].sum)
	j.c.log.Info("file is taken for a link: it was read twice and has another CRC32 than its id", "file",
		j.id.String(), "storage", addrs(j.readings[0].from))
}

// corrupted logs and returns the error for content that is not that of the file.
func (j *judge) corrupted(cause error) error {
	first := j.readings[0]
	j.c.counts.crcErrors.Add(1)
	err := fmt.Errorf("%w: %s gave %08x, the id says %08x", fdfs.ErrFileCRC, addrs(first.from), first.sum, j.id.CRC32)
	if cause != nil {
		err = fmt.Errorf("%w: it cannot be compared with another storage: %w", err, cause)
	}
	j.c.log.Warn("content of a file is corrupted", "file", j.id.String(), "error", err)
	return err
}

// addrs returns the addresses of servers, for logs and errors.
func addrs(servers []Server) (list []string) {
	for _, s := range servers {
		if s == (Server{}) {
			list = append(list, "another gateway")
		} else {
			list = append(list, s.Addr())
		}
	}
	return list
}

// checksum reads the whole file from one server and returns its sum.
func (c *Client) checksum(ctx context.Context, r FetchRequest, v content.Version, server Server) (sum checksum.Sum,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, rereadTime+time.Duration(v.Size/rereadRate)*time.Second)
	defer cancel()
	r.Unchecked = true
	s, err := c.Open(ctx, r, Part{Version: v, Length: v.Size}, []Server{server})
	if err != nil {
		return sum, err
	}
	defer s.Close()
	_, err = io.Copy(&sum, s)
	return sum, err
}
