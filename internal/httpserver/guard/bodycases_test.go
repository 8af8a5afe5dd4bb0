package guard

import (
	"fmt"
	"strings"
)

func lengthCases() []requestCase {
	cases := []requestCase{
		ok("9112-6.2 body of GET", get("Content-Length: 5")+"hello"),
		ok("9112-6.2 zero", get("Content-Length: 0")),
		ok("9110-8.6 leading zeros", get("Content-Length: 0005")+"hello"),
		ok("9112-6.2 body looks like a request",
			get("Content-Length: 38")+"GET /evil HTTP/1.1\r\nHost: evil.com\r\n\r\n"),
		ok("64 KiB body", get(fmt.Sprint("Content-Length: ", 64<<10))+strings.Repeat("x", 64<<10)),
		last("9112-6.2 body in 1.0", "GET /f HTTP/1.0\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"),
		{name: "9110-9.3.3 POST", in: with("POST", "Content-Length: 5") + "hello", status: []int{405}, kept: true},
		{name: "9110-9.3.3 POST without a length", in: with("POST"), status: []int{405}, kept: true},
		{name: "9110-9.3.4 PUT chunked", in: with("PUT", "Transfer-Encoding: chunked") + "5\r\nhello\r\n0\r\n\r\n",
			status: []int{405}, kept: true},
		rejected("9110-15.5.14 64 KiB and one", get(fmt.Sprint("Content-Length: ", 64<<10+1)), 413),
		rejected("9110-15.5.14 2^40", get("Content-Length: 1099511627776"), 413),
		rejected("9110-8.6 2^63", get("Content-Length: 9223372036854775808"), 413),
		rejected("9110-8.6 2^64+5", get("Content-Length: 18446744073709551621")+"hello", 413),
		rejected("9110-8.6 forty digits", get("Content-Length: "+strings.Repeat("9", 40)), 413),
		rejected("9112-6.3 two different", get("Content-Length: 5", "Content-Length: 6")+"hello", 400),
		rejected("9112-6.3 two equal", get("Content-Length: 5", "Content-Length: 5")+"hello", 400),
		rejected("9112-6.3 two zeros", get("Content-Length: 0", "content-length: 0"), 400),
	}
	for _, v := range []string{
		"", "-5", "+5", "5 5", "5, 5", ",5", "0x5", "5.0", "5e0", "\"5\"", "5;", "5_0", "5a", "٥", "5\xa0",
	} {
		cases = append(cases, rejected(fmt.Sprintf("9110-8.6 %q", v), get("Content-Length: "+v)+"hello", 400))
	}
	return cases
}

func codingCases() []requestCase {
	const body = "5\r\nhello\r\n0\r\n\r\n"
	cases := []requestCase{
		ok("9112-7.1 chunked", chunks(body)),
		rejected("9112-6.1 with Content-Length", get("Transfer-Encoding: chunked", "Content-Length: 5")+body, 400),
		rejected("9112-6.1 with Content-Length before", get("Content-Length: 5", "Transfer-Encoding: chunked")+body,
			400),
		rejected("9112-6.1 with Content-Length 0", get("Content-Length: 0", "Transfer-Encoding: chunked")+body, 400),
		rejected("9112-6.1 identity with Content-Length",
			get("Content-Length: 5", "Transfer-Encoding: identity")+"hello", 400),
		rejected("9112-6.1 HTTP/1.0", "GET /f HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"+body, 400),
		rejected("9112-6.1 HTTP/1.0 keep-alive",
			"GET /f HTTP/1.0\r\nHost: h\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"+body, 400),
		rejected("9112-6.1 gzip, chunked in two fields",
			get("Transfer-Encoding: gzip", "Transfer-Encoding: chunked")+body, 501),
		rejected("9112-6.1 chunked in two fields", get("Transfer-Encoding: chunked", "Transfer-Encoding: chunked")+body,
			400),
		rejected("9112-6.1 chunked, then identity",
			get("Transfer-Encoding: chunked", "Transfer-Encoding: identity")+body, 400),
		rejected("9112-6.1 chunked, then empty", get("Transfer-Encoding: chunked", "Transfer-Encoding:")+body, 400),
		rejected("9112-6.1 folded", get("Transfer-Encoding:", " chunked")+body, 400),
		rejected("9112-6.1 folded behind", get("Transfer-Encoding: chunked", "\tx")+body, 400),
	}
	for _, v := range []string{"Chunked", "CHUNKED", "chunked ", "\tchunked", "chunked\t"} {
		cases = append(cases, ok(fmt.Sprintf("9112-7 %q", v), get("Transfer-Encoding:"+v)+body))
	}
	for _, v := range []string{
		"", "chunked, chunked", "chunked,gzip", "gzip", "identity", "xchunked", "chunkedx", "\"chunked\"",
		"chunked;q=1", ", chunked", "chunked,", "chun ked", "'chunked'", "\xa0chunked",
	} {
		cases = append(cases, rejected(fmt.Sprintf("9112-6.1 %q", v), get("Transfer-Encoding: "+v)+body, 400))
	}
	for _, v := range []string{"gzip, chunked", "gzip,deflate,chunked", "x-gzip , chunked"} {
		cases = append(cases, rejected(fmt.Sprintf("9112-6.1 %q", v), get("Transfer-Encoding: "+v)+body, 501))
	}
	return cases
}

func chunkCases() []requestCase {
	var cases []requestCase
	const end = "0\r\n\r\n"
	for _, body := range []string{
		"0\r\n\r\n", "000\r\n\r\n", "5\r\nhello\r\n" + end, "05\r\nhello\r\n" + end, "a\r\n0123456789\r\n" + end,
		"A\r\n0123456789\r\n" + end,
		"1\r\na\r\n1\r\nb\r\n" + end, "2\r\n\r\n\r\n" + end, "0000000000000005\r\nhello\r\n" + end,
		"5;a\r\nhello\r\n" + end, "5;a=b\r\nhello\r\n" + end, "5;a=\"b;\\\"c\"\r\nhello\r\n" + end,
		"5;a;b=c;d=\"\"\r\nhello\r\n" + end,
		"5 ; a = b \t; c\r\nhello\r\n" + end, "5;a=\"\xff\t\"\r\nhello\r\n" + end, "0;a\r\n\r\n",
		"0\r\nA: b\r\n\r\n", "0\r\nA:\r\nB: c\td\r\n\r\n",
		"0\r\nContent-Length: 5\r\nTransfer-Encoding: x\r\nHost: evil\r\n\r\n",
		"10000\r\n" + strings.Repeat("x", 65536) + "\r\n" + end,
		"5;" + strings.Repeat("a", 4000) + "\r\nhello\r\n" + end,
	} {
		cases = append(cases, ok(fmt.Sprintf("9112-7.1 %.40q", body), chunks(body)))
	}
	for _, body := range []string{
		"\r\n", "g\r\n", "-5\r\nhello\r\n" + end, "+5\r\nhello\r\n" + end, "0x5\r\nhello\r\n" + end,
		" 5\r\nhello\r\n" + end, "5 \r\nhello\r\n" + end,
		"5\t\r\nhello\r\n" + end, "5\nhello\r\n" + end, "5\r\nhello\n" + end, "5\r\nhello" + end,
		"5\r\nhelloX\r\n" + end, "5\r\nhell\r\n" + end,
		"5\rhello\r\n" + end, "5\r\r\nhello\r\n" + end, "5\r\nhello\r\r\n" + end, "5\r\nhello\r\n0\n\n",
		"5\r\nhello\r\n0\r\n\n", "5\r\nhello\r\n0\r\n\r\r",
		"5\r\nhello\r\n0\n\r\n", "5x\r\nhello\r\n" + end, "5,5\r\nhello\r\n" + end, "5\x00\r\nhello\r\n" + end,
		"00000000000000005\r\nhello\r\n" + end, "fffffffffffffffff\r\n",
		"5;\r\nhello\r\n" + end, "5;=b\r\nhello\r\n" + end, "5;a=\r\nhello\r\n" + end, "5;a\nhello\r\n" + end,
		"5;a\rb\r\nhello\r\n" + end,
		"5;a=\"b\r\nhello\r\n" + end, "5;a=\"b\"c\r\nhello\r\n" + end, "5;a=\"\x00\"\r\nhello\r\n" + end,
		"5;a\x00\r\nhello\r\n" + end, "5;a b\r\nhello\r\n" + end,
		"5;a \r\nhello\r\n" + end, "5;a=\"\\\n\"\r\nhello\r\n" + end,
		"5;" + strings.Repeat("a", 5000) + "\r\nhello\r\n" + end,
		strings.Repeat("1;"+strings.Repeat("a", 500)+"\r\nx\r\n", 10) + end,
		"0\r\n A: b\r\n\r\n", "0\r\nA: b\r\n c\r\n\r\n", "0\r\nA : b\r\n\r\n", "0\r\nA\r\n\r\n", "0\r\n: b\r\n\r\n",
		"0\r\nA: b\n\r\n", "0\r\nA: b\rc\r\n\r\n",
		"0\r\nA: \x00\r\n\r\n", "0\r\nA b: c\r\n\r\n", "0\r\nGET /evil HTTP/1.1\r\nHost: x\r\n\r\n",
		"5\r\nhello\r\n\r\n" + end, "\n5\r\nhello\r\n" + end,
		"{5}\r\n", "five\r\n", "\xef\xbc\x95\r\nhello\r\n" + end, "5\r\nhello\r\nGET / HTTP/1.1\r\n",
	} {
		cases = append(cases, rejected(fmt.Sprintf("9112-7.1 %.40q", body), chunks(body), 400))
	}
	for _, body := range []string{
		"10001\r\n", "ffffffff\r\n", "7fffffffffffffff\r\n", "8000000000000000\r\n", "ffffffffffffffff\r\n",
		"fffffffffffffffe\r\n",
		"10000\r\n" + strings.Repeat("x", 65536) + "\r\n1\r\nx\r\n" + end, "100000005\r\nhello\r\n" + end,
	} {
		cases = append(cases, rejected(fmt.Sprintf("9110-15.5.14 chunk %.40q", body), chunks(body), 413))
	}
	cases = append(cases,
		rejected("6585-5 101 trailer fields", chunks("0\r\n"+strings.Repeat("A: b\r\n", 101)+"\r\n"), 431),
		rejected("6585-5 trailer of 9 KiB", chunks("0\r\nA: "+strings.Repeat("b", 9<<10)+"\r\n\r\n"), 431),
	)
	return cases
}

func connectionCases() []requestCase {
	ten := func(fields ...string) string {
		return strings.Join(append([]string{"GET /f HTTP/1.0"}, fields...), "\r\n") + "\r\n\r\n"
	}
	cases := []requestCase{
		last("9112-9.3 two fields", get("Connection: x", "Connection: close")),
		last("9112-9.3 close first", get("Connection: close", "Connection: keep-alive")),
		last("9112-9.3 close with a body", get("Connection: close", "Content-Length: 5")+"hello"),
		last("9112-9.3 1.0", ten()),
		last("9112-9.3 1.0 close", ten("Connection: close")),
		last("9112-9.3 1.0 close, keep-alive", ten("Connection: close, keep-alive")),
		last("9112-9.3 1.0 other option", ten("Connection: x")),
		ok("9112-9.3 1.0 keep-alive", ten("Connection: keep-alive")),
		ok("9112-9.3 1.0 Keep-Alive", ten("Connection: Keep-Alive", "Keep-Alive: timeout=5")),
		ok("9112-9.3 1.0 keep-alive with Host and body",
			ten("Host: h", "Connection: x,keep-alive", "Content-Length: 2")+"ab"),
		ok("9110-7.8 h2c upgrade", get("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
			"HTTP2-Settings: AAMAAABk")),
		ok("9110-7.8 websocket", get("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
			"Sec-WebSocket-Key: AAAA")),
		ok("9110-7.6.1 names Host", get("Connection: Host")),
		ok("9110-7.6.1 names Range", get("Connection: Range, keep-alive", "Range: bytes=0-1")),
	}
	for _, v := range []string{"close", "CLOSE", "x, close", "close,x", "keep-alive, close", " ,close", "x,\tclose\t"} {
		cases = append(cases, last(fmt.Sprintf("9112-9.6 Connection %q", v), get("Connection: "+v)))
	}
	for _, v := range []string{"keep-alive", "Keep-Alive", "", "x", "closed", "x-close", ",", "\"close\""} {
		cases = append(cases, ok(fmt.Sprintf("9112-9.3 Connection %q", v), get("Connection: "+v)))
	}
	return cases
}

func expectCases() []requestCase {
	return []requestCase{
		ok("9110-10.1.1 no body", get("Expect: 100-continue")),
		ok("9110-10.1.1 body at once", get("Expect: 100-continue", "Content-Length: 5")+"hello"),
		ok("9110-10.1.1 case", get("Expect: 100-Continue", "Content-Length: 5")+"hello"),
		ok("9110-10.1.1 chunked at once",
			get("Expect: 100-continue", "Transfer-Encoding: chunked")+"5\r\nhello\r\n0\r\n\r\n"),
		ok("9110-10.1.1 empty", get("Expect:")),
		ok("9110-10.1.1 twice", get("Expect: 100-continue", "Expect: 100-continue")),
		rejected("9110-10.1.1 unknown", get("Expect: tea"), 417),
		rejected("9110-10.1.1 unknown in a list", get("Expect: 100-continue, tea"), 417),
		rejected("9110-10.1.1 with a parameter", get("Expect: 100-continue;a=b"), 417),
		rejected("9110-10.1.1 200-ok", get("Expect: 200-ok", "Content-Length: 5")+"hello", 417),
		rejected("9110-10.1.1 too large", get("Expect: 100-continue", "Content-Length: 999999"), 413),
		last("9110-10.1.1 HTTP/1.0", "GET /f HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\nhello"),
		last("9110-10.1.1 HTTP/1.0 unknown", "GET /f HTTP/1.0\r\nExpect: tea\r\n\r\n"),
	}
}

func pipelineCases() []requestCase {
	good := get()
	bad := "GET /f HTTP/1.1\r\nHost: h\r\nA : b\r\n\r\n"
	return []requestCase{
		{name: "9112-9.3.2 three", in: good + good + good, status: []int{200, 200, 200}, kept: true},
		{name: "9112-9.3.2 GET, HEAD, POST", in: good + with("HEAD") + with("POST", "Content-Length: 3") + "abc",
			status: []int{200, 200, 405}, kept: true},
		{name: "9112-9.3.2 bad second", in: good + bad + good, status: []int{200, 400}},
		{name: "9112-9.3.2 bad third", in: good + good + bad, status: []int{200, 200, 400}},
		{name: "9112-9.3.2 close in the middle", in: good + get("Connection: close") + good, status: []int{200, 200}},
		{name: "9112-9.3.2 bodies", in: strings.Repeat(get("Content-Length: 5")+"hello"+chunks("1\r\nx\r\n0\r\n\r\n"),
			3), status: []int{200, 200, 200, 200, 200, 200}, kept: true},
		{name: "9112-2.2 empty lines between", in: good + "\r\n\r\n" + good + "\r\n", status: []int{200, 200},
			kept: true},
		{name: "9112-9.3.2 too long second", in: good + "GET /" + strings.Repeat("a", 20000), status: []int{200, 414}},
		{name: "9112-9.3.2 fifty", in: strings.Repeat(good, 50), status: slicesRepeat(200, 50), kept: true},
		{name: "9112-9.3.2 large heads", in: strings.Repeat(get("A: "+strings.Repeat("b", 5000)), 4),
			status: slicesRepeat(200, 4), kept: true},
		{name: "9112-9.3 body longer than its length", in: get("Content-Length: 3") + "hello\r\n",
			status: []int{200, 400}},
		{name: "9112-9.3 body without a length", in: good + "hello\r\n\r\n", status: []int{200, 400}},
	}
}

func slicesRepeat(status, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = status
	}
	return s
}

// smugglingCases returns requests that two servers understand in two ways. None of them may lead to
// a response to the request that is hidden in it.
func smugglingCases() []requestCase {
	const evil = "GET /evil HTTP/1.1\r\nHost: h\r\n\r\n"
	cases := []requestCase{
		last("9112-2.2 LF only", "GET /f HTTP/1.1\nHost: h\n\n"),
		last("9112-2.2 LF in 1.0", "GET /f HTTP/1.0\n\n"),
		last("9112-2.2 LF of the request line", "GET /f HTTP/1.1\nHost: h\r\n\r\n"),
		last("9112-2.2 LF of the last line", "GET /f HTTP/1.1\r\nHost: h\r\n\n"),
		last("9112-2.2 LF with keep-alive", "GET /f HTTP/1.1\nHost: h\nConnection: keep-alive\n\n"),
		last("9112-2.2 LF hides a request", "GET /f HTTP/1.1\r\nHost: h\r\nA: b\n\n"+evil),
		rejected("LF with Content-Length", "GET /f HTTP/1.1\r\nHost: h\nContent-Length: 5\r\n\r\nhello", 400),
		rejected("LF with chunked", "GET /f HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\n\n0\r\n\r\n", 400),
		rejected("CL.TE", get("Content-Length: 6", "Transfer-Encoding: chunked")+"0\r\n\r\nG", 400),
		rejected("TE.CL", get("Transfer-Encoding: chunked", "Content-Length: 4")+"21\r\n"+evil+"\r\n0\r\n\r\n", 400),
		rejected("TE.TE other name", get("Transfer-Encoding: chunked", "Transfer-encoding: cow")+"0\r\n\r\n", 400),
		rejected("TE.TE x first", get("Transfer-Encoding: x", "Transfer-Encoding: chunked")+"0\r\n\r\n", 501),
		rejected("TE.TE LF in a value",
			"GET /f HTTP/1.1\r\nHost: h\r\nX: x\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
		rejected("TE.TE CR in a value",
			"GET /f HTTP/1.1\r\nHost: h\r\nX: x\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
		rejected("TE.TE leading blank", "GET /f HTTP/1.1\r\nHost: h\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
			400),
		rejected("CL folded", "GET /f HTTP/1.1\r\nHost: h\r\nX: x\r\n Content-Length: 32\r\n\r\n"+evil, 400),
		rejected("chunk size wraps 64 bits", chunks("10000000000000000\r\n"+evil), 400),
		rejected("chunk size wraps 32 bits", chunks("100000000\r\n"+evil), 413),
		rejected("chunk ends in LF", chunks("1\nx\r\n0\r\n\r\n"+evil), 400),
		rejected("chunk extension with LF", chunks("1;a\nx\r\n0\r\n\r\n"+evil), 400),
		rejected("chunk extension hides an end", chunks("5;\n0\r\n\r\n"+evil), 400),
		rejected("chunk data runs over", chunks("3\r\nabcde\r\n0\r\n\r\n"+evil), 400),
		{name: "CL.0", in: with("POST", "Content-Length: 33") + evil, status: []int{405}, kept: true},
		{name: "0.CL", in: get("Content_Length: 33") + evil, status: []int{200, 200}, kept: true},
		{name: "GET with the second request as its body", in: get("Content-Length: 33") + evil, status: []int{200},
			kept: true},
	}
	for _, name := range []string{"Content-Length", "Transfer-Encoding", "Host", "Connection"} {
		for _, bad := range []string{"%s :", "%s\t:", " %s:", "\x00%s:", "%s\r:", "%s\xa0:"} {
			field := fmt.Sprintf(bad, name) + " 0"
			cases = append(cases, rejected(fmt.Sprintf("disguised %q", field), get(field)+evil, 400))
		}
	}
	return cases
}
