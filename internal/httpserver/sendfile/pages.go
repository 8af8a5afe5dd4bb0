package sendfile

import (
	"math"

	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// pages advises the kernel about the parts of a file that will be read next, or not again. Many
// connections may send from one descriptor at different offsets. The kernel predicts by descriptor:
// without advice it would read a cold file in small pieces.
type pages struct {
	drop     bool // drop the pages of sent bytes
	resident bool // the file is in memory, not on a disk
	guarded  bool // only bytes in the page cache are sent by sendfile(2), see content.Chunk

	mark  int64 // offset of the next check
	ahead int64 // end of the advised range
	start int64 // start of the transfer, which has several parts if the rate has a limit
	next  int64 // end of the last part
	first int64 // start of the sent bytes whose pages are not dropped
}

const (
	// window is the length of the read-ahead. Shorter transfers need no advice.
	window = 2 << 20
	// inFlight is the length of the sent bytes whose pages a socket may still hold, until its
	// client has acknowledged them.
	inFlight = 8 << 20
)

func (p *pages) beginTransfer(offset, length int64) {
	p.mark, p.ahead = math.MaxInt64, offset
	if offset != p.next {
		p.start, p.first = offset, offset
	}
	if (length > window || p.drop) && !p.resident {
		p.mark = offset
	}
}

// about advises about the pages around offset, from which left bytes are going to be sent.
func (p *pages) about(fd int, offset, left int64) {
	if offset < p.mark {
		return
	}
	end := offset + left
	to := min(offset+2*window, end)
	if !p.guarded { // the advice may hang as a read does
		p.read(fd, p.ahead, to)
	}
	p.ahead, p.mark = to, offset+window
	if p.drop && offset-inFlight > p.first {
		p.forget(fd, offset-inFlight)
	}
}

// read advises to read a range, unless its end is in memory: then most likely the whole range is.
// Errors have no effect.
func (p *pages) read(fd int, from, to int64) {
	if from >= to {
		return
	}
	var b [1]byte
	if _, err := sys.PreadNoWait(fd, b[:], to-1); err == unix.EAGAIN {
		_ = unix.Fadvise(fd, from, to-from, unix.FADV_WILLNEED)
	}
}

// endTransfer drops all sent pages at the end of a transfer: a client on this host may have held
// more than inFlight.
func (p *pages) endTransfer(fd int, offset int64) {
	if p.drop && p.mark != math.MaxInt64 {
		p.first = p.start
		p.forget(fd, offset)
	}
	p.next, p.drop = offset, false
}

// forget drops the pages of bytes before offset. Pages in use, and those with other bytes, stay.
func (p *pages) forget(fd int, offset int64) {
	_ = unix.Fadvise(fd, p.first, offset-p.first, unix.FADV_DONTNEED)
	p.first = offset
}
