package origin

import (
	"context"
	"fmt"
	"io"
	"time"

	"fastdfs-gateway/internal/checksum"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/storage"
)

// An uploader can write the header of a trunk slot into the content of a file, and make an id that
// names this place. Storages compare the header alone, and send the bytes behind it, which are
// files of others. The CRC32 in such an id does not match, so no byte of a trunk file is given out
// before the CRC32 of its whole content was compared. Other content is not taken for that of a
// link: links among trunk files have another size than their id says. The cache compares files of
// one segment when they have arrived (cache.Options.CheckFirst); checkTrunk is for longer ones, and
// for a gateway without a cache.

// CheckFirst tells for which files the cache compares the CRC32 before it gives the first byte out.
func CheckFirst(file string) bool {
	id, err := fdfs.Parse(file)
	return err == nil && id.Kind == fdfs.KindTrunk
}

const (
	maxTrunkChecks    = 4096             // files that are remembered, some 200 bytes each
	trunkCheckTime    = time.Minute      // for which a match is remembered: the slot may be used anew
	trunkMismatchTime = 10 * time.Second // the same for a mismatch: requests for a forged id cost no download each
)

// trunkResult tells whether the content of a trunk file matched the CRC32 of its id.
type trunkResult struct {
	at  time.Time
	err error // storage.ErrCRC, or nil for a match
}

// isValid tells whether the result still counts.
func (r trunkResult) isValid() bool {
	valid := trunkCheckTime
	if r.err != nil {
		valid = trunkMismatchTime
	}
	return time.Since(r.at) < valid
}

// checkTrunk reads the whole content of a trunk file at a storage and compares its CRC32, unless it
// has done so a short time ago. The error is storage.ErrCRC where it does not match. Other files,
// and links, pass.
func (a *Resolver) checkTrunk(ctx context.Context, w storage.FetchRequest, info storage.Info,
	servers []storage.Server) error {
	if w.ID.Kind != fdfs.KindTrunk || info.Linked || info.Size == 0 {
		return nil
	}
	id := w.ID.String()
	if known, ok := a.trunks.Get(id); ok && known.isValid() {
		return known.err
	}
	w.Unchecked = true // a mismatch is no reason to read it once more
	stream, err := a.o.Protocol.Open(ctx, w, info, 0, info.Size, servers)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }() // all that counts was read
	var sum checksum.Sum
	n, err := io.Copy(&sum, stream)
	a.o.Counters.addBytes(int(n))
	if err != nil {
		return fmt.Errorf("cannot compare the CRC32 of %q: %w", id, err)
	}
	var wrong error
	if !sum.Matches(w.ID.CRC32) {
		a.o.Counters.addTrunkMismatch()
		wrong = fmt.Errorf("%w: trunk file %q has %08x", storage.ErrCRC, id, sum.Standard())
	}
	a.trunks.Add(id, trunkResult{time.Now(), wrong})
	return wrong
}
