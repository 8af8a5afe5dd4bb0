package sendfile

import (
	"math"

	"fastdfs-gateway/internal/process/sys"

	"golang.org/x/sys/unix"
)

// pages advises the kernel which part of a file will be read next, and which will not be read
// again. Many connections may send from one descriptor, each at a place of its own: the kernel,
// which guesses by descriptor, cannot see that each of them goes straight ahead, and would read a
// cold file in small pieces.
type pages struct {
	drop     bool // forget what is sent
	resident bool // the file has no disk

	mark  int64 // where to look next
	ahead int64 // what is to be read is known up to here
	start int64 // where the sending began
	first int64 // what is sent and not forgotten begins here
	probe [1]byte
}

const (
	// window is how far ahead of the sending the file is read from its disk; transfers that are not
	// longer need no advice.
	window = 2 << 20
	// inFlight is how far behind the sending pages are still in use: a socket holds them until its
	// client has taken them.
	inFlight = 8 << 20
)

func (p *pages) begin(offset, length int64) {
	p.mark, p.ahead, p.start, p.first = math.MaxInt64, offset, offset, offset
	if length > window && !p.resident {
		p.mark = offset
	}
}

// about records the position of the sending and the bytes left.
func (p *pages) about(fd int, offset, left int64) {
	if offset < p.mark {
		return
	}
	end := offset + left
	to := min(offset+2*window, end)
	p.read(fd, p.ahead, to)
	p.ahead, p.mark = to, offset+window
	if p.drop && offset-inFlight > p.first {
		p.forget(fd, offset-inFlight)
	}
}

// read has a range read unless its end is in memory already: then all of it is, most likely.
// Advice that is not taken does no harm, so errors do not matter.
func (p *pages) read(fd int, from, to int64) {
	if from >= to {
		return
	}
	if _, err := sys.PreadNoWait(fd, p.probe[:], to-1); err == unix.EAGAIN {
		_ = unix.Fadvise(fd, from, to-from, unix.FADV_WILLNEED)
	}
}

// end records how far the sending came. A client on this host may have held more than inFlight, so
// all is forgotten once more.
func (p *pages) end(fd int, offset int64) {
	if p.drop && p.mark != math.MaxInt64 {
		p.first = p.start
		p.forget(fd, offset)
	}
	p.drop = false
}

// forget gives up what was sent before offset; pages that are half of something else, or in use,
// stay.
func (p *pages) forget(fd int, offset int64) {
	_ = unix.Fadvise(fd, p.first, offset-p.first, unix.FADV_DONTNEED)
	p.first = offset
}
