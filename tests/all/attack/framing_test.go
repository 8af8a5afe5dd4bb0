package attack

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/eventually"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// seen is a request on a connection in the log of a server.
type seen struct {
	marker   string // in its target, or in its request line; empty = none
	line     string
	status   int
	rejected bool // the server took it for malformed or incomplete
}

// beginsWith reports whether the requests in two logs begin at the same place in the bytes. It does
// not compare targets: the log of the gateway has no fragment of a target.
func (s seen) beginsWith(o seen) bool {
	mine, _, _ := strings.Cut(s.line, " ")
	theirs, _, _ := strings.Cut(o.line, " ")
	return mine == theirs && (s.marker == o.marker || s.marker == "" || o.marker == "")
}

// view holds the requests that one server saw in one case, and its responses.
type view struct {
	requests []seen
	stream   []byte // its responses
}

// accepted returns the requests before the first rejected one. After a rejection no server reads
// on.
func (v *view) accepted() []seen {
	if i := slices.IndexFunc(v.requests, func(s seen) bool { return s.rejected }); i >= 0 {
		return v.requests[:i]
	}
	return v.requests
}

// stopped reports whether the server ended the connection: it rejected a request, or its last
// response has Connection: close. Then it parses no bytes behind. Otherwise the server took all
// bytes behind for a body, or waits for the rest of a body.
func (v *view) stopped() bool {
	if len(v.accepted()) < len(v.requests) {
		return true
	}
	last := bytes.LastIndex(v.stream, []byte("HTTP/1."))
	if last < 0 {
		return len(v.requests) == 0 && len(v.stream) == 0
	}
	head, _, _ := bytes.Cut(v.stream[last:], []byte("\r\n\r\n"))
	return bytes.Contains(bytes.ToLower(head), []byte("\nconnection: close"))
}

func (v *view) String() string {
	var b strings.Builder
	for _, s := range v.requests {
		fmt.Fprintf(&b, "    %-7s %d rejected=%-5v %q\n", s.marker, s.status, s.rejected, s.line)
	}
	fmt.Fprintf(&b, "    stopped=%v, %d bytes of responses\n", v.stopped(), len(v.stream))
	return b.String()
}

// parseGateway parses a line of the gateway's access log.
func parseGateway(line string) (string, seen, bool) {
	var e struct {
		Remote, Method, Target, Protocol string
		Rejected                         string `json:"refused_line"`
		Status                           int
	}
	if json.Unmarshal([]byte(line), &e) != nil {
		return "", seen{}, false
	}
	if e.Method == "" {
		return e.Remote, seen{line: e.Rejected, marker: markerIn(e.Rejected), status: e.Status, rejected: true}, true
	}
	return e.Remote, seen{line: e.Method + " " + e.Target + " " + e.Protocol, marker: markerIn(e.Target),
		status: e.Status}, true
}

func parseNginx(line string) (string, seen, bool) {
	var e struct {
		Remote, Line, Upstream string
		Status                 int
	}
	if json.Unmarshal([]byte(line), &e) != nil {
		return "", seen{}, false
	}
	rejected := e.Upstream == "" && slices.Contains([]int{400, 408, 413, 414, 494, 499, 501, 505}, e.Status)
	return e.Remote, seen{line: e.Line, marker: markerIn(e.Line), status: e.Status, rejected: rejected}, true
}

var haproxyForm = regexp.MustCompile(`^(?:<\d+>)?([0-9.]+)\|(-?\d+)\|(....)\|"?(.*?)"?$`)

// escapedForm matches an escaped byte in the log of haproxy: not printable, or special in the log.
var escapedForm = regexp.MustCompile(`#[0-9A-F]{2}`)

func parseHAProxy(line string) (string, seen, bool) {
	m := haproxyForm.FindStringSubmatch(line)
	if m == nil {
		return "", seen{}, false
	}
	text := escapedForm.ReplaceAllStringFunc(m[4], func(e string) string {
		b, _ := hex.DecodeString(e[1:]) // escapedForm has two hex digits
		return string(b)
	})
	s := seen{line: text, marker: markerIn(text), rejected: m[3][1] == 'R'}
	_, _ = fmt.Sscan(m[2], &s.status) // -1 where there was no response
	return m[1], s, true
}

// logReader reads the new lines of a log.
type logReader struct {
	path  string
	read  int
	parse func(string) (string, seen, bool)
}

// until reads whole lines until one has the marker, and returns all new requests by remote address.
func (l *logReader) until(t *testing.T, marker string) map[string][]seen {
	t.Helper()
	by := map[string][]seen{}
	eventually.True(t, func() bool {
		text, err := os.ReadFile(l.path)
		require.NoError(t, err)
		text = text[l.read:]
		text = text[:bytes.LastIndexByte(text, '\n')+1]
		l.read += len(text)
		found := false
		for _, line := range strings.Split(string(text), "\n") {
			if remote, s, ok := l.parse(line); ok {
				by[remote] = append(by[remote], s)
				found = found || s.marker == marker
			}
		}
		return found
	}, "%s has no line with %s", l.path, marker)
	return by
}

// arena holds the gateway, the proxies in front of it, and the logs of all servers.
type arena struct {
	t       *testing.T
	paths   []string // of the files; the content of file k is content(k)
	gateway *target
	proxies []*proxy
	logs    []*logReader // of the gateway, then of the proxies
}

func content(k int) []byte { return fmt.Appendf(nil, "[content %d]", k) }

var contentForm = regexp.MustCompile(`\[content (\d)\]`)

func newArena(t *testing.T) *arena {
	s := storetest.New(t)
	a := &arena{t: t}
	for k := range hidden + 1 {
		a.paths = append(a.paths, s.Normal("txt", content(k)).URL())
	}
	a.gateway = start(t, s.Config(), "read_timeout = 1s", "idle_timeout = 1s")
	a.proxies = startProxies(t, a.gateway)
	a.logs = []*logReader{{path: a.gateway.access, parse: parseGateway}}
	for _, p := range a.proxies {
		a.logs = append(a.logs, &logReader{path: p.log, parse: p.parse})
	}
	return a
}

func (a *arena) addrs() []string {
	addrs := []string{a.gateway.Addr}
	for _, p := range a.proxies {
		addrs = append(addrs, p.Addr)
	}
	return addrs
}

// remoteOf returns the source address of a case. It identifies the case in the logs, whatever a
// server makes of the bytes.
func remoteOf(number int) net.IP {
	return net.IPv4(127, byte(64+number>>16&63), byte(number>>8), byte(number))
}

// send sends bytes and reads until the server closes: after the last request, or when its timeout
// for an incomplete request ends. A close of the sending side would be quicker, but haproxy then
// drops requests that it has not parsed yet. A reset is an end like a close: the logs show the
// requests.
func send(addr string, from net.IP, b string) []byte {
	d := net.Dialer{Timeout: 30 * time.Second, LocalAddr: &net.TCPAddr{IP: from}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	_, _ = io.WriteString(c, b)
	stream, _ := io.ReadAll(c)
	return stream
}

// play sends cases to all servers. It returns the views, by case and server, and the numbers of
// requests that the gateway got from each proxy, by marker.
func (a *arena) play(cases []framingCase) (views [][]view, behind []map[string]int) {
	addrs := a.addrs()
	views = make([][]view, len(cases))
	var work sync.WaitGroup
	next := make(chan int)
	for range 64 { // nearly all goroutines wait for a timeout
		work.Go(func() {
			for i := range next {
				views[i] = make([]view, len(addrs))
				var servers sync.WaitGroup
				for s, addr := range addrs {
					servers.Go(func() {
						views[i][s].stream = send(addr, remoteOf(cases[i].number),
							cases[i].bytes)
					})
				}
				servers.Wait()
			}
		})
	}
	for i := range cases {
		next <- i
	}
	close(next)
	work.Wait()
	return views, a.readLogs(cases, views)
}

// readLogs adds the requests in the logs to the views, and returns the numbers of play.
func (a *arena) readLogs(cases []framingCase, views [][]view) (behind []map[string]int) {
	behind = make([]map[string]int, len(a.proxies))
	for s := len(a.logs) - 1; s >= 0; s-- { // the gateway last: it logs the forwarded requests too
		end := marker(cases[len(cases)-1].number, hidden+1+s)
		send(a.addrs()[s], net.IPv4(127, 0, 0, 1),
			"GET "+a.paths[0]+"?"+end+" HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
		by := a.logs[s].until(a.t, end)
		for i, c := range cases {
			views[i][s].requests = by[remoteOf(c.number).String()]
		}
		if s > 0 {
			continue
		}
		for p, proxy := range a.proxies {
			behind[p] = map[string]int{}
			for _, r := range by[proxy.source] {
				behind[p][r.marker]++
			}
		}
	}
	return behind
}

// difference describes an exploitable difference between the views of the gateway and of another
// server; empty = none. If a server rejects a request or closes after it, no bytes are left that
// two servers could parse differently.
func difference(gateway, other *view) string {
	g, o := gateway.accepted(), other.accepted()
	for i := range min(len(g), len(o)) {
		if !g[i].beginsWith(o[i]) {
			return "they begin requests at different places"
		}
	}
	if len(o) > len(g) && !gateway.stopped() {
		return "the gateway takes for a body what the other takes for a request"
	}
	if len(g) > len(o) && !other.stopped() {
		return "the gateway takes for a request what the other takes for a body"
	}
	return ""
}

// mismatch describes contents that are not those of the requests in the log, in the same order: a
// response that belongs to another request; empty = none.
func (a *arena) mismatch(v *view) string {
	var want, got []string
	for _, s := range v.requests {
		if s.status != 200 || !strings.HasPrefix(s.line, "GET ") {
			continue
		}
		k := slices.IndexFunc(a.paths, func(p string) bool { return strings.Contains(s.line, path.Base(p)) })
		if k < 0 {
			return "" // the mutated path of a file
		}
		want = append(want, fmt.Sprint(k))
	}
	for _, m := range contentForm.FindAllSubmatch(v.stream, -1) {
		got = append(got, string(m[1]))
	}
	if s := fmt.Sprint(want); s != fmt.Sprint(got) {
		return fmt.Sprintf("the log tells of contents %v, the responses hold %v", want, got)
	}
	return ""
}

// TestFraming: the gateway, nginx and haproxy parse the same bytes as the same requests, up to a
// rejection, and a proxy forwards no request that is not in its log.
func TestFraming(t *testing.T) {
	a := newArena(t)
	t.Logf("-attack.seed=%d", *seedFlag)
	until, least := time.Now().Add(lasts(0)), 600
	const batch = 300
	kinds := map[string]int{}
	number := 0
	if *only >= 0 {
		number, least = *only, *only+1
	}
	for ; number < least || *only < 0 && time.Now().Before(until); number += batch {
		var cases []framingCase
		for n := number; n < number+batch && (*only < 0 || n == *only); n++ {
			cases = append(cases, newCase(*seedFlag, n, a.paths))
		}
		views, behind := a.play(cases)
		for i, c := range cases {
			count(views[i], a.proxies, kinds)
			a.judge(c, views[i], behind)
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d cases: %v", number, kinds)
	if *only < 0 {
		require.NotZero(t, kinds["gateway takes the first request"])
		require.NotZero(t, kinds["gateway rejects the first request"])
	}
}

// count counts the cases by the servers that accept or reject the first request.
func count(views []view, proxies []*proxy, kinds map[string]int) {
	taken := len(views[0].accepted()) > 0
	if taken {
		kinds["gateway takes the first request"]++
	} else {
		kinds["gateway rejects the first request"]++
	}
	for p, proxy := range proxies {
		switch other := len(views[p+1].accepted()) > 0; {
		case taken && !other:
			kinds["only "+proxy.name+" rejects the first request"]++
		case !taken && other:
			kinds["only "+proxy.name+" takes the first request"]++
		}
	}
}

// judge reports the faults of one case. A case with faults is sent up to three times again:
// timeouts are short here, and on a machine that stands still one of them may end a connection
// between two requests.
func (a *arena) judge(c framingCase, views []view, behind []map[string]int) {
	faults := a.faults(c, views, behind)
	for try := 0; len(faults) > 0 && try < 3; try++ {
		again, behind := a.play([]framingCase{c})
		views = again[0]
		faults = a.faults(c, views, behind)
	}
	if len(faults) == 0 && *only < 0 {
		return
	}
	report := fmt.Sprintf("-attack.seed=%d -attack.case=%d (%s)\n%q\n", *seedFlag, c.number, c.shape, c.bytes)
	for s := range views {
		name := "gateway"
		if s > 0 {
			name = a.proxies[s-1].name
		}
		report += "  " + name + ":\n" + views[s].String()
	}
	if len(faults) == 0 {
		a.t.Log(report)
		return
	}
	a.t.Errorf("%s\n%s", strings.Join(faults, "\n"), report)
}

// faults returns the faults in the views of one case.
func (a *arena) faults(c framingCase, views []view, behind []map[string]int) (faults []string) {
	gateway := &views[0]
	if f := a.mismatch(gateway); f != "" {
		faults = append(faults, "gateway: "+f)
	}
	for p, proxy := range a.proxies {
		other := &views[p+1]
		if d := difference(gateway, other); d != "" {
			faults = append(faults, proxy.name+": "+d)
		}
		if f := a.mismatch(other); f != "" {
			faults = append(faults, "through "+proxy.name+": "+f)
		}
		forwarded := map[string]int{}
		for _, s := range other.requests {
			forwarded[s.marker]++
		}
		for k := range hidden + 1 {
			marker := marker(c.number, k)
			if behind[p][marker] > forwarded[marker] {
				faults = append(faults, fmt.Sprintf("%s saw %s %d times, the gateway behind it %d times",
					proxy.name, marker, forwarded[marker], behind[p][marker]))
			}
		}
	}
	return faults
}
