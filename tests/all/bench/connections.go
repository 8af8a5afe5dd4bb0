package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

// clientGroup is a number of clients that behave in an unusual manner.
type clientGroup struct {
	name    string
	wanted  string // expected effect on the gateway
	clients int
	header  string // a further line of each request's head
	rate    int    // bytes per second that a client takes; 0 = it takes nothing
	idle    bool   // a client reads the whole response, and stays without another request
}

// effect is the cost of a group of clients for a server.
type effect struct {
	before, during usage
	taken          int64 // bytes that the clients have got
}

func (e *effect) rss() int64   { return e.during.rss - e.before.rss }
func (e *effect) threads() int { return e.during.threads - e.before.threads }

// clientGroups returns the groups of the table, and the files that they request.
func (w *world) clientGroups() ([]clientGroup, []testCase, error) {
	small, err := w.store.plain(4 * kib)
	if err != nil {
		return nil, nil, err
	}
	slot, err := w.store.packed(w.store.content(900_000))
	if err != nil {
		return nil, nil, err
	}
	plain, err := w.store.plain(900_000)
	if err != nil {
		return nil, nil, err
	}
	huge, err := w.store.plain(100 * mib)
	if err != nil {
		return nil, nil, err
	}
	idle := affordable(10_000)
	list := []clientGroup{
		{name: fmt.Sprintf("%d idle connections after a 4 KiB file", idle), wanted: "below 10 KB each", clients: idle,
			idle: true},
		{name: "2,000 clients that take 10 KB/s of 100 MiB each", wanted: "no threads, no buffers", clients: 2000,
			rate: 10_000},
		{name: "100 clients that stop reading a 900 KB trunk slot", wanted: "below 10 MB", clients: 100},
		{name: "1 client, `bytes=0-,0-,0-,0-,0-` of 100 MiB, not reading", wanted: "below 1 MB", clients: 1,
			header: "Range: bytes=0-,0-,0-,0-,0-\r\n"},
	}
	asked := make([]testCase, len(list))
	for i, o := range []object{small, huge, slot, huge} {
		asked[i].same(o)
		asked[i].nginx = asked[i].gateway
	}
	asked[2].nginx.paths = []string{plain.path}
	return list, asked, nil
}

// connections measures the effect of each group of clients on both sides.
func (w *world) connections(sides [2]side, s *settings) ([]string, error) {
	list, asked, err := w.clientGroups()
	if err != nil {
		return nil, err
	}
	var rows []string
	for i := range list {
		row := "| " + list[i].name + " | " + list[i].wanted
		for _, side := range sides {
			e, err := measureClients(&list[i], side, &asked[i], s.groupTime)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", list[i].name, side.name, err)
			}
			row += fmt.Sprintf(" | %s (+%s), %d threads (%+d)", megabytes(float64(e.during.rss)),
				megabytes(float64(e.rss())), e.during.threads, e.threads())
		}
		rows = append(rows, row+" |")
		fmt.Println(rows[len(rows)-1])
	}
	return rows, nil
}

func measureClients(g *clientGroup, side side, asked *testCase, d time.Duration) (effect, error) {
	p, err := side.start(manyClients)
	if err != nil {
		return effect{}, err
	}
	defer p.Stop()
	a := side.ask(asked)
	return g.gather(p, a.paths[0], asked.want.size, d)
}

// gather measures the effect of the clients during d. The server serves one request before, so the
// cost of a first request is not counted.
func (g *clientGroup) gather(p *process, path string, size int64, d time.Duration) (e effect, err error) {
	once := clientGroup{clients: 1, idle: true, header: "Range: bytes=0-0\r\n"}
	if g.idle {
		once.header = ""
	}
	first, err := once.enter(p.Addr, path)
	if err != nil {
		return e, err
	}
	closeAll(first)
	time.Sleep(200 * time.Millisecond)
	if e.before, err = p.usage(); err != nil {
		return e, err
	}
	conns, err := g.enter(p.Addr, path)
	defer func() { closeAll(conns) }()
	if err != nil {
		return e, err
	}
	if e.taken, err = g.take(conns, d); err != nil {
		return e, err
	}
	e.during, err = p.usage()
	return e, err
}

// enter opens the connections and sends their requests.
func (g *clientGroup) enter(addr, path string) (conns []net.Conn, err error) {
	request := "GET " + path + " HTTP/1.1\r\nHost: bench\r\n" + g.header + "\r\n"
	dialer := net.Dialer{Timeout: testTimeout, Control: smallBuffer}
	for range g.clients {
		conn, err := dialer.Dial("tcp", addr)
		if err != nil {
			return conns, err
		}
		conns = append(conns, conn)
		if _, err := io.WriteString(conn, request); err != nil {
			return conns, err
		}
		if g.idle {
			if err := readResponse(conn); err != nil {
				return conns, err
			}
		}
	}
	return conns, nil
}

// smallBuffer bounds the bytes that the kernel of a client receives before the client reads them.
func smallBuffer(_, _ string, raw syscall.RawConn) error {
	var set error
	err := raw.Control(func(fd uintptr) {
		set = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF,
			32*kib)
	})
	return errors.Join(err, set)
}

func readResponse(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		return err
	}
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 512), nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%w: status %s", errWrong, resp.Status)
	}
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

// take reads from all connections at the rate of the clients during d; at rate 0 it only waits.
func (g *clientGroup) take(conns []net.Conn, d time.Duration) (total int64, err error) {
	if g.rate == 0 {
		time.Sleep(d)
		return 0, nil
	}
	var wg sync.WaitGroup
	taken, errs := make([]int64, len(conns)), make([]error, len(conns))
	for i, conn := range conns {
		wg.Go(func() { taken[i], errs[i] = g.sip(conn, d) })
	}
	wg.Wait()
	for _, n := range taken {
		total += n
	}
	return total, errors.Join(errs...)
}

// sip reads from a connection at the rate of a client. The end of the connection is an error: the
// file is larger than the bytes that sip reads.
func (g *clientGroup) sip(conn net.Conn, d time.Duration) (total int64, err error) {
	const steps = 2 // in a second
	buf := make([]byte, g.rate/steps)
	end := time.Now().Add(d)
	if err := conn.SetReadDeadline(end.Add(testTimeout)); err != nil {
		return 0, err
	}
	for time.Now().Before(end) {
		n, err := io.ReadFull(conn, buf)
		total += int64(n)
		if err != nil {
			return total, err
		}
		time.Sleep(time.Second / steps)
	}
	return total, nil
}

// affordable returns the number of connections of one group, at most wanted: a server needs
// descriptors for them and for files, within its limit on open files.
func affordable(wanted int) int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return wanted
	}
	return min(wanted, int(min(limit.Cur, 1<<20))*2/5)
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		_ = conn.Close() // nothing can be lost
	}
}

// clientTable returns the table of the groups of clients.
func clientTable(sides [2]side, rows []string) string {
	return fmt.Sprintf(
		"| clients | wanted | %s: resident (more than before), threads | %s |\n| --- | --- | --- | --- |\n%s\n",
		sides[0].name, sides[1].name, strings.Join(rows, "\n"))
}
