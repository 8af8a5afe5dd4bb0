package fdfstest

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sendBuffer = 128 << 10
	// The interval at which a stalled connection checks its condition and its client.
	stallPoll = 5 * time.Millisecond
	// The number of checks, one a millisecond, whether the bytes before a reset have reached the
	// client.
	drainPolls  = 1000
	garbageLen  = 512
	garbageSeed = 20
)

// reply is the reply of a node to a request, before faults.
type reply struct {
	status byte
	body   io.ReaderAt // may be nil when size is 0
	from   int64       // offset in body of the first byte of the reply
	size   int64
	file   string // id of the downloaded file; empty = another kind of reply
}

func reject(status byte) reply { return reply{status: status} }

func replyOf(body []byte) reply {
	return reply{body: bytesAt(body), size: int64(len(body))}
}

// conn is one connection, served by one goroutine.
type conn struct {
	ctx  context.Context // ends when the node is killed
	node *Node
	tcp  *net.TCPConn
	in   *bufio.Reader
	buf  []byte
}

// serve handles requests one after the other until the client or the node ends the connection.
func (c *conn) serve() {
	defer c.node.dismiss(c)
	for {
		r, err := c.read()
		if err != nil || !c.stall(c.node.isPartitioned) {
			return
		}
		c.node.countRequest(r)
		if r.Command == CmdQuit || !c.reply(r) {
			return
		}
	}
}

var errLength = errors.New("bad length of a request")

// read reads one request.
func (c *conn) read() (Request, error) {
	var head [headerLen]byte
	if _, err := io.ReadFull(c.in, head[:]); err != nil {
		return Request{}, err
	}
	length := binary.BigEndian.Uint64(head[:])
	if length > maxBody {
		return Request{}, fmt.Errorf("%w: %d bytes, at most %d are taken", errLength, int64(length), maxBody)
	}
	r := Request{Command: head[8], Status: head[9], Body: make([]byte, length)}
	_, err := io.ReadFull(c.in, r.Body)
	return r, err
}

// reply handles a request and reports whether the connection may be used further.
func (c *conn) reply(r Request) bool {
	fault, set := c.node.takeFault(r.Command)
	for fault.Hang {
		if !c.stall(func() bool { return c.node.inForce(set) }) {
			return false
		}
		fault, set = c.node.takeFault(r.Command)
	}
	if !c.pause(fault.Delay) {
		return false
	}
	a := c.node.handle(r)
	if fault.Status != 0 {
		a = reject(fault.Status)
	}
	if fault.Garbage && c.stall(c.node.isPartitioned) {
		_, err := c.tcp.Write(garbage())
		return err == nil
	}
	return c.send(r.Command, a, fault, set)
}

// send writes a reply with its faults.
func (c *conn) send(command byte, a reply, fault Faults, set *rules) bool {
	out := io.NewSectionReader(&packet{
		header: appendHeader(nil, uint64(a.size+fault.WrongLength), cmdReply, a.status),
		reply:  a,
	}, 0, headerLen+a.size)
	end, reset := fault.stop(out.Size())
	c.node.addDownload(a.file, FileCount{Downloads: 1})
	frozen := end
	if fault.FreezeAt != nil {
		frozen = min(end, max(0, headerLen+int64(*fault.FreezeAt)))
	}
	rate := func() int { return c.node.rate(command, set, fault.Rate) }
	err := c.copy(out, 0, frozen, rate, a.file)
	if err == nil && frozen < end {
		if !c.stall(func() bool { return c.node.inForce(set) }) {
			return false
		}
		err = c.copy(out, frozen, end, rate, a.file)
	}
	if reset && err == nil {
		c.reset()
	}
	return err == nil && end == out.Size()
}

// packet is the header and the body of a reply as an io.ReaderAt.
type packet struct {
	header []byte
	reply  reply
}

func (p *packet) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	if off < headerLen {
		n = copy(b, p.header[off:])
	}
	if n == len(b) {
		return n, nil
	}
	m, err := p.reply.body.ReadAt(b[n:], p.reply.from+off+int64(n)-headerLen)
	if n += m; n == len(b) {
		err = nil // io.EOF may come with the last bytes
	}
	return n, err
}

var errEnded = errors.New("the node was killed or the client has left")

// copy sends the bytes of out between two offsets. rate is called before each piece.
func (c *conn) copy(out *io.SectionReader, from, to int64, rate func() int, file string) error {
	if c.buf == nil {
		c.buf = make([]byte, sendBuffer)
	}
	for sent := from; sent < to; {
		piece := min(to-sent, sendBuffer)
		perSecond := rate()
		if perSecond > 0 {
			piece = min(piece, max(1, int64(perSecond)/100))
		}
		if _, err := out.ReadAt(c.buf[:piece], sent); err != nil {
			return fmt.Errorf("cannot read content at %d: %w", sent, err)
		}
		if !c.stall(c.node.isPartitioned) {
			return errEnded
		}
		if err := c.write(c.buf[:piece], sent, file); err != nil {
			return err
		}
		sent += piece
		if perSecond > 0 && !c.pause(time.Duration(piece)*time.Second/time.Duration(perSecond)) {
			return errEnded
		}
	}
	return nil
}

// write sends one piece, which begins at byte at of the reply. The piece is counted before it is
// sent, so that the counts are complete when a client has the last byte.
func (c *conn) write(piece []byte, at int64, file string) error {
	body := func(upTo int64) int64 { return max(0, upTo-headerLen) }
	after := at + int64(len(piece))
	c.node.addDownload(file, FileCount{Bytes: body(after) - body(at)})
	n, err := c.tcp.Write(piece)
	c.node.addDownload(file, FileCount{Bytes: body(at+int64(n)) - body(after)})
	return err
}

// pause waits for d. It returns false if the node is killed meanwhile.
func (c *conn) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// stall waits while cond returns true. It returns false if the node is killed or the client leaves
// meanwhile.
func (c *conn) stall(cond func() bool) bool {
	if !cond() {
		return true
	}
	defer c.tcp.SetReadDeadline(time.Time{})
	for cond() {
		c.tcp.SetReadDeadline(time.Now().Add(stallPoll))
		_, err := c.in.Peek(1)
		if err == nil && !c.pause(stallPoll) { // the next request is there already
			return false
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return false
		}
	}
	return c.ctx.Err() == nil
}

// reset ends the connection by RST. It first waits until the bytes before have arrived, as the
// kernel discards bytes that it has not sent.
func (c *conn) reset() {
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		return
	}
	for range drainPolls { // no deadline: it may have passed after a halt of the whole machine
		queued := 0
		raw.Control(func(fd uintptr) { queued, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) })
		if queued == 0 || !c.pause(time.Millisecond) {
			break
		}
	}
	c.tcp.SetLinger(0)
	c.tcp.Close()
}

// garbage returns the same bytes in each call. As a header they are no reply: the command is not
// 100.
func garbage() []byte {
	b := make([]byte, garbageLen)
	random := rand.New(rand.NewPCG(garbageSeed, garbageSeed))
	for i := range b {
		b[i] = byte(random.Uint32())
	}
	b[8] = ^cmdReply
	return b
}
