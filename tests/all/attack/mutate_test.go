package attack

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// odd are bytes with a meaning for some parser.
const odd = "\x00\r\n\t \x0b\x0c\x7f\x80\xff:;,=\"\\/?#%0159aAfF-+.&_"

// mutate changes up to n places of s.
func mutate(r *rand.Rand, s string, n int) string {
	b := []byte(s)
	for range 1 + r.IntN(n) {
		if len(b) == 0 {
			return ""
		}
		at := r.IntN(len(b))
		switch r.IntN(6) {
		case 0:
			b[at] = odd[r.IntN(len(odd))]
		case 1:
			b[at] ^= 1 << r.IntN(8)
		case 2:
			b = append(b[:at], append([]byte{odd[r.IntN(len(odd))]}, b[at:]...)...)
		case 3:
			b = append(b[:at], b[at+1:]...)
		case 4: // repeat a piece
			end := min(len(b), at+1+r.IntN(30))
			b = append(b[:end], append([]byte(string(b[at:end])), b[end:]...)...)
		case 5: // cut
			if r.IntN(4) == 0 {
				b = b[:at]
			}
		}
	}
	return string(b)
}

func choose(r *rand.Rand, choices ...string) string { return choices[r.IntN(len(choices))] }

// number returns a number that is hard for parsers, or one from 0 to size+2.
func number(r *rand.Rand, size int) string {
	if r.IntN(3) > 0 {
		return fmt.Sprint(r.IntN(size + 3))
	}
	return choose(r, "0", "-1", "", "18446744073709551615", "9223372036854775807", "9223372036854775808",
		"99999999999999999999999", "00", "+1",
		"1e3", "0x1", " 1", fmt.Sprint(size), fmt.Sprint(size-1), fmt.Sprint(size+1))
}

// ranges returns a value of Range for a file of size bytes.
func ranges(r *rand.Rand, size int) string {
	var parts []string
	count := 1
	if r.IntN(4) == 0 {
		count = r.IntN(40)
	}
	for range count {
		switch r.IntN(4) {
		case 0:
			parts = append(parts, number(r, size)+"-")
		case 1:
			parts = append(parts, "-"+number(r, size))
		default:
			parts = append(parts, number(r, size)+"-"+number(r, size))
		}
	}
	return choose(r, "bytes=", "bytes=", "bytes=", "bytes=", "Bytes=", "bytes =", "items=",
		"bytes") + strings.Join(parts, choose(r, ",", ", ", ",,"))
}

// query returns a valid or invalid query, or none.
func query(r *rand.Rand, size int) string {
	if r.IntN(2) == 0 {
		return ""
	}
	var parts []string
	for range r.IntN(4) {
		name := choose(r, "token", "ts", "filename", "attname", "redirect", "start", "end", "x", "", "t%6fken")
		parts = append(parts, name+"="+choose(r, number(r, size), "0123456789abcdef0123456789abcdef",
			"a%0d%0aSet-Cookie:x", "%", "%zz", strings.Repeat("a", r.IntN(3000)), "\xff\xfe", "1"))
	}
	return "?" + strings.Join(parts, choose(r, "&", "&", ";", "&&"))
}

// pathOf returns the path of a file, or a path that should lead to no file.
func pathOf(r *rand.Rand, url string) string {
	switch r.IntN(6) {
	case 0:
		return mutate(r, url, 3)
	case 1:
		up := choose(r, "..", "%2e%2e", "..%2f", ".%2e", "%252e%252e", "..;", "..\\", "%c0%ae%c0%ae", "..%00",
			"....//", "..%5c")
		climb := strings.Repeat(up+"/", 1+r.IntN(10))
		return choose(r, "/", "/group1/M00/", "/group1/M00/00/0A/", url+"/",
			"/group1/M00/data/") + climb + choose(r, "canary", "etc/passwd", url[1:], "data/00/0A/000001")
	case 2:
		return url + choose(r, "-m", "%2dm", "%00", "%00.jpg", "/", "/.", "\\", "::$DATA", "%20", ".", "~",
			"/../"+url)
	}
	return url
}

// fields returns header lines, each with its line end.
func fields(r *rand.Rand, size int, tag string) string {
	var b strings.Builder
	for range r.IntN(5) {
		b.WriteString(choose(r, "Range: "+ranges(r, size), "Range: "+ranges(r, size), "If-None-Match: "+choose(r,
			tag, "W/"+tag, "*", "\"x\"", "\"", tag+","+tag, ""),
			"If-Match: "+choose(r, tag, "*", "W/"+tag, ","), "If-Range: "+choose(r, tag,
				"Thu, 29 Feb 2024 12:30:45 GMT", "\"", "W/"+tag),
			"If-Modified-Since: "+choose(r, "Thu, 29 Feb 2024 12:30:45 GMT", "Thursday, 29-Feb-24 12:30:45 GMT",
				"Thu Feb 29 12:30:45 2024", "0", "Thu, 31 Feb 2024 99:99:99 GMT"),
			"Expect: 100-continue", "Connection: "+choose(r, "close", "keep-alive", "upgrade", "a,b,close"),
			"Accept-Encoding: gzip", "X-Forwarded-For: 127.0.0.1", "Cookie: "+strings.Repeat("a", r.IntN(5000)),
			"Content-Length: "+number(r, 10), "Transfer-Encoding: "+choose(r, "chunked", "gzip", "identity"),
			"Host: i", "Origin: https://evil.example", "Upgrade: h2c", "Via: 1.1 a") + "\r\n")
	}
	return b.String()
}
