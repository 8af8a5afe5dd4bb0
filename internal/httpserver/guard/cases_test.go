package guard

import (
	"fmt"
	"strings"
)

// requestCase is the input of a client and its expected result.
type requestCase struct {
	name   string // the source of the case, and its subject
	in     string // the bytes sent
	status []int  // of the responses to in, in order, without 100
	kept   bool   // a request behind it is served too
	target string // target of the first request as the server parses it, "" = not checked
}

func ok(name, in string) requestCase {
	return requestCase{name: name, in: in, status: []int{200}, kept: true}
}

func okTarget(name, in, target string) requestCase {
	c := ok(name, in)
	c.target = target
	return c
}

func last(name, in string) requestCase {
	return requestCase{name: name, in: in, status: []int{200}}
}

func rejected(name, in string, status int) requestCase {
	return requestCase{name: name, in: in, status: []int{status}}
}

// get returns a GET request with further field lines.
func get(fields ...string) string { return with("GET", fields...) }

func with(method string, fields ...string) string {
	lines := append([]string{method + " /f HTTP/1.1", "Host: h"}, fields...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

func line(l string) string      { return l + "\r\nHost: h\r\n\r\n" }
func host(value string) string  { return "GET /f HTTP/1.1\r\nHost:" + value + "\r\n\r\n" }
func chunks(body string) string { return with("GET", "Transfer-Encoding: chunked") + body }

func allCases() []requestCase {
	var all []requestCase
	for _, part := range [][]requestCase{
		lineCases(), targetCases(), versionCases(), hostCases(), fieldCases(),
		lengthCases(), codingCases(), chunkCases(), connectionCases(), expectCases(),
		limitCases(), pipelineCases(), smugglingCases(), generatedCases(),
	} {
		all = append(all, part...)
	}
	return all
}

func lineCases() []requestCase {
	return []requestCase{
		ok("9112-3 plain", get()),
		ok("9112-3 HEAD", with("HEAD")),
		ok("9112-2.2 one empty line before", "\r\n"+get()),
		ok("9112-2.2 eight empty lines before", strings.Repeat("\r\n", 8)+get()),
		ok("9112-2.2 bare LF empty line before", "\n"+get()),
		rejected("9112-2.2 nine empty lines before", strings.Repeat("\r\n", 9)+get(), 400),
		rejected("9112-2.2 CR CR LF before", "\r\r\n"+get(), 400),
		rejected("9112-3 leading blank", " "+get(), 400),
		rejected("9112-3 two blanks behind method", line("GET  /f HTTP/1.1"), 400),
		rejected("9112-3 trailing blank", line("GET /f HTTP/1.1 "), 400),
		rejected("9112-3 tab behind method", line("GET\t/f HTTP/1.1"), 400),
		rejected("9112-3 only a method", line("GET"), 400),
		rejected("9110-9.1 method with NUL", line("G\x00ET /f HTTP/1.1"), 400),
		rejected("9112-3.1 method of 33 letters", line(strings.Repeat("M", 33)+" /f HTTP/1.1"), 501),
		rejected("TLS hello on a plain port", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
		rejected("HTTP/0.9", "GET /f\r\n", 400),
	}
}

func targetCases() []requestCase {
	cases := []requestCase{
		okTarget("9112-3.2.1 root", line("GET / HTTP/1.1"), "/"),
		okTarget("9112-3.2.1 query", line("GET /a?b=c&d HTTP/1.1"), "/a?b=c&d"),
		okTarget("9112-3.2.1 two slashes inside", line("GET /a//b HTTP/1.1"), "/a//b"),
		okTarget("9112-3.2.1 two slashes first", line("GET //a/b HTTP/1.1"), "/a/b"),
		okTarget("9112-3.2.1 slashes and URI", line("GET ///a?http://x/ HTTP/1.1"), "/a?http://x/"),
		okTarget("9112-3.2.1 percent", line("GET /a%20b%00%2F HTTP/1.1"), "/a%20b%00%2F"),
		okTarget("9112-3.2.1 dots are not ours", line("GET /a/../b HTTP/1.1"), "/a/../b"),
		okTarget("nginx raw UTF-8 in the query", line("GET /a?filename=\xe4\xb8\xad.jpg HTTP/1.1"),
			"/a?filename=\xe4\xb8\xad.jpg"),
		okTarget("nginx odd characters", line("GET /a\"<>^`{|}\\ HTTP/1.1"), "/a\"<>^`{|}\\"),
		okTarget("nginx fragment", line("GET /a#frag HTTP/1.1"), "/a"),
		okTarget("nginx fragment behind query", line("GET /a?b#c?d HTTP/1.1"), "/a?b"),
		okTarget("9112-3.2.2 absolute", line("GET http://x/a?b HTTP/1.1"), "/a?b"),
		okTarget("9112-3.2.2 absolute https", line("GET https://x/a HTTP/1.1"), "/a"),
		okTarget("9110-4.2.3 scheme in capitals", line("GET HTTP://x/a HTTP/1.1"), "/a"),
		okTarget("9112-3.2.2 absolute without path", line("GET http://x HTTP/1.1"), "/"),
		okTarget("9112-3.2.2 absolute with query only", line("GET http://x?a=/b HTTP/1.1"), "/?a=/b"),
		okTarget("9112-3.2.2 absolute with two slashes", line("GET http://x//a HTTP/1.1"), "/a"),
		okTarget("9112-3.2.2 absolute with fragment", line("GET http://x/a#b HTTP/1.1"), "/a"),
		okTarget("9112-3.2.2 absolute IPv6", line("GET http://[::1]:8080/a HTTP/1.1"), "/a"),
		rejected("9112-3.2.2 absolute without Host", "GET http://x/a HTTP/1.1\r\n\r\n", 400),
		rejected("9112-3.2.2 absolute with bad Host", "GET http://x/a HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
		rejected("9110-4.2.1 absolute without host", line("GET http:///a HTTP/1.1"), 400),
		rejected("9110-4.2.4 userinfo", line("GET http://u:p@x/a HTTP/1.1"), 400),
		rejected("9112-3.2 other scheme", line("GET ftp://x/a HTTP/1.1"), 400),
		rejected("9112-3.2 scheme without slashes", line("GET http:a HTTP/1.1"), 400),
		rejected("9112-3.2 no slash", line("GET f HTTP/1.1"), 400),
		rejected("9112-3.2.4 asterisk with GET", line("GET * HTTP/1.1"), 400),
		rejected("9112-3.2.3 CONNECT with a port only", line("CONNECT 80 HTTP/1.1"), 400),
		rejected("9112-3.2.3 CONNECT without port", line("CONNECT x HTTP/1.1"), 400),
		rejected("9112-3.2.3 CONNECT with empty port", line("CONNECT x: HTTP/1.1"), 400),
		rejected("9112-3.2.3 CONNECT bare IPv6", line("CONNECT ::1 HTTP/1.1"), 400),
	}
	return append(cases, otherFormCases()...)
}

// otherFormCases returns requests with targets of methods that the server does not offer.
func otherFormCases() []requestCase {
	var cases []requestCase
	for method, target := range map[string]string{
		"OPTIONS *": "*", "OPTIONS http://x": "*", "OPTIONS http://x/": "/", "OPTIONS /a": "/a",
		"OPTIONS http://x?a": "/?a", "CONNECT x:443": "x:443", "CONNECT [::1]:443": "[::1]:443", "CONNECT /a": "/a",
	} {
		c := okTarget("9112-3.2 "+method, line(method+" HTTP/1.1"), target)
		c.status = []int{405}
		c.kept = !strings.HasPrefix(method, "CONNECT")
		cases = append(cases, c)
	}
	body := last("9110-9.3.6 CONNECT with a body",
		"CONNECT x:443 HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello")
	body.status = []int{405}
	return append(cases, body)
}

func versionCases() []requestCase {
	cases := []requestCase{
		last("9112-2.3 1.0", line("GET /f HTTP/1.0")),
		last("9112-3.2 1.0 without Host", "GET /f HTTP/1.0\r\n\r\n"),
		last("1.0 without Host, two slashes", "GET //x/f HTTP/1.0\r\n\r\n"),
		ok("9110-2.5 1.2", line("GET /f HTTP/1.2")),
		rejected("9110-2.5 1.2 without Host", "GET /f HTTP/1.2\r\n\r\n", 400),
		rejected("9113-3.4 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
	}
	for _, v := range []string{"HTTP/2.0", "HTTP/0.9"} {
		cases = append(cases, rejected("9110-15.6.6 "+v, line("GET /f "+v), 505))
	}
	for _, v := range []string{
		"http/1.1", "HTTP/1.10", "HTTP/1", "HTTP/1.", "HTTP/1,1", "HTTP/1.x", "HTTP/x.1", "HTTP/1.1\r", "HTTP\\1.1",
	} {
		cases = append(cases, rejected(fmt.Sprintf("9112-2.3 %q", v), line("GET /f "+v), 400))
	}
	return cases
}

func hostCases() []requestCase {
	cases := []requestCase{
		rejected("9112-3.2 no Host", "GET /f HTTP/1.1\r\n\r\n", 400),
		rejected("9112-3.2 two Hosts", get("Host: other"), 400),
		rejected("9112-3.2 two Hosts, other case", get("HOST: h"), 400),
		rejected("9112-3.2 two Hosts in 1.0", "GET /f HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", 400),
		rejected("Go: bad Host in 1.0", "GET /f HTTP/1.0\r\nHost: \xff\r\n\r\n", 400),
	}
	for _, v := range []string{
		" h", "h", "\th\t", " h:80", " h:", " h:65535", " 127.0.0.1:8080", " a-b_c.d~e", " [::1]:80",
		" [::ffff:1.2.3.4]", " [fe80::1%25en0]:80", " EXAMPLE.com", " a!$&'()*+;=b", " b%C3%BCcher",
	} {
		cases = append(cases, ok(fmt.Sprintf("9110-7.2 Host %q", v), host(v)))
	}
	for _, v := range []string{
		"", " ", " :80", " a b", " a,b", " a/b", " http://h", " u@h", " h:x", " h:-1", " h:+80", " h:65536",
		" h:80:80", " ::1", " [::1", " [::1]x80", " [::1]:x", " [h]", " []", " [1.2.3.4]", " [::1::2]",
		" [::1%en0]", " [::1%25]", " [::1%25a/b]", " h?x", " h\"", " \xff", " %", " %4", " %41", " %zz", " [::1]]",
		" h:80, h:81",
	} {
		cases = append(cases, rejected(fmt.Sprintf("9110-7.2 Host %q", v), host(v), 400))
	}
	return cases
}

func fieldCases() []requestCase {
	return []requestCase{
		ok("9112-5 no blank behind colon", get("A:b")),
		ok("9112-5 blanks around value", get("A: \t b \t ")),
		ok("9110-5.5 empty value", get("A:")),
		ok("9110-5.6.2 all token characters", get("!#$%&'*+-.^_`|~09azAZ: x")),
		ok("9110-5.3 repeated field", get("A: 1", "A: 2", "a: 3")),
		ok("9110-6.6.2 Trailer", get("Trailer: Host, Content-Length")),
		ok("9110-10.1.4 TE", get("TE: trailers, deflate;q=0.5")),
		ok("9110-7.8 Upgrade without Connection", get("Upgrade: h2c", "HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA")),
		rejected("9112-5.2 obs-fold", get("A: b", " c"), 400),
		rejected("9112-5.2 obs-fold with tab", get("A: b", "\tc"), 400),
		rejected("9112-5.2 fold before the first field", "GET /f HTTP/1.1\r\n Host: h\r\n\r\n", 400),
		rejected("9112-5 no colon", get("abc"), 400),
		rejected("9112-5 no name", get(": x"), 400),
		rejected("9112-5.1 blank before colon", get("A : b"), 400),
		rejected("9112-2.2 CR CR LF", get("A: b\r"), 400),
		rejected("9112-2.2 CR at the start of a line", get("\rA: b"), 400),
		rejected("9112-2.2 CR before the end", "GET /f HTTP/1.1\r\nHost: h\r\n\r\r\n", 400),
	}
}

func limitCases() []requestCase {
	many := func(n int) string { return get(strings.Split(strings.Repeat("A: b\n", n)[:5*n-1], "\n")...) }
	return []requestCase{
		ok("target of 8 KiB", line("GET /"+strings.Repeat("a", 8191)+" HTTP/1.1")),
		rejected("9110-15.5.15 target of 8 KiB and one", line("GET /"+strings.Repeat("a", 8192)+" HTTP/1.1"), 414),
		rejected("9110-15.5.15 line without end", "GET /"+strings.Repeat("a", 20000), 414),
		rejected("9110-15.5.15 method without end", strings.Repeat("A", 20000), 414),
		rejected("9110-15.5.15 HEAD has no body", "HEAD /"+strings.Repeat("a", 20000), 414),
		ok("field of 15 KiB", get("A: "+strings.Repeat("b", 15<<10))),
		rejected("6585-5 field of 16 KiB", get("A: "+strings.Repeat("b", 16<<10)), 431),
		rejected("6585-5 field without end", "GET /f HTTP/1.1\r\nHost: h\r\nA: "+strings.Repeat("b", 40000), 431),
		rejected("6585-5 name without end", "GET /f HTTP/1.1\r\nHost: h\r\n"+strings.Repeat("b", 40000), 431),
		ok("100 fields", many(99)),
		rejected("6585-5 101 fields", many(100), 431),
		rejected("LF lines near the limit",
			"GET /f HTTP/1.1\nHost: h\n"+strings.Repeat("A:\n", 98)+"B: "+strings.Repeat("b", 16<<10)+"\n\n", 431),
		last("LF lines below the limit",
			"GET /f HTTP/1.1\nHost: h\n"+strings.Repeat("A:\n", 98)+"B: "+strings.Repeat("b", 15<<10)+"\n\n"),
	}
}

// generatedCases returns requests with every byte value in each place where it could matter.
func generatedCases() []requestCase {
	var cases []requestCase
	for ch := range 256 {
		b := string([]byte{byte(ch)})
		token := isToken[ch]
		add := func(what, in string, good bool) {
			c := rejected("byte "+what, in, 400)
			if good {
				c = ok("byte "+what, in)
			}
			cases = append(cases, c)
		}
		name := fmt.Sprintf("%02X", ch)
		// LF divides a line into two incomplete ones.
		add(name+" in a field name", get("Ab"+b+"cd: x"), token || ch == ':')
		add(name+" in a target", line("GET /a"+b+"b HTTP/1.1"), ch > ' ' && ch != 0x7f)
		add(name+" in Content-Length", get("Content-Length: 1"+b+"0")+strings.Repeat("x", 100+10*ch), false)
		if isDigit(byte(ch)) {
			cases = cases[:len(cases)-1] // a digit makes a valid number, with another length of the body
		}
		if ch != '\n' {
			add(name+" in a value", get("A: 12345678"+b+"1234567"), (ch >= ' ' || ch == '\t') && ch != 0x7f)
		}
	}
	return cases
}
