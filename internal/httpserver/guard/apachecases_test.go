package guard

import "strings"

// apacheCases are requests in the manner of the strict-parsing tests of
// Apache httpd, judged by the rules of this package.
func apacheCases() []requestCase {
	cases := []requestCase{
		{name: "httpd: FOO is no method here", in: with("FOO"), status: []int{405}, kept: true},
		{name: "httpd: get is not GET", in: with("get"), status: []int{405}, kept: true},
	}
	for in, status := range apacheRequests {
		lines := strings.ReplaceAll(in, "|", "\r\n") + "\r\n\r\n"
		if status == 200 {
			cases = append(cases, last("httpd: "+in, lines))
		} else {
			cases = append(cases, rejected("httpd: "+in, lines, status))
		}
	}
	return cases
}

// apacheRequests are heads, with | for a line end, and their statuses.
var apacheRequests = map[string]int{
	"GET / HTTP/1.0":                              200,
	"GET / HTTP/1.0|Host: localhost":              200,
	"GET / HTTP/1.0|Foo: bar":                     200,
	"GET / HTTP/1.0|Foo:bar":                      200,
	"GET / HTTP/1.0|X: bar":                       200,
	"GET / HTTP/1.0|Fo: b\tar":                    200,
	"GET / HTTP/1.0|Host: foo_bar.example.com":    200,
	"GET / HTTP/1.0|Host: [4711:abcd::]":          200,
	"GET / HTTP/1.0|Host: [4711::abcd]:8000":      200,
	"GET http://127.0.0.1/ HTTP/1.0":              200,
	"GET http://localhost:80/ HTTP/1.0":           200,
	"GET http://[::1]/ HTTP/1.0":                  200,
	"GET http://[4712::abcd:1]/ HTTP/1.0":         200,
	"GET http://[4712::abcd]:8000/ HTTP/1.0":      200,
	"GET http://foo:81/ HTTP/1.0|Host: bar":       200,
	"GET http://foo_bar/ HTTP/1.0":                200,
	"G ET / HTTP/1.0":                             400,
	"GET /\x00 HTTP/1.0":                          400,
	"GET / HTTP/1.0\x00":                          400,
	"GET /\x01 HTTP/1.0":                          400,
	"GET / HTTP/1.11|Host: localhost":             400,
	"GET / HTTP/10.0|Host: localhost":             400,
	"GET / HTTP/1.0 x|Host: localhost":            400,
	"GET / HTTP/1.0|Foo: b\x00ar":                 400,
	"GET / HTTP/1.0|Foo: b\x01ar":                 400,
	"GET / HTTP/1.0|Foo":                          400,
	"GET / HTTP/1.0|Foo bar":                      400,
	"GET / HTTP/1.0|: bar":                        400,
	"GET / HTTP/1.0|Foo bar:bash":                 400,
	"GET / HTTP/1.0|Foo :bar":                     400,
	"GET / HTTP/1.0| Foo:bar":                     400,
	"GET / HTTP/1.0|F\x01o: bar":                  400,
	"GET / HTTP/1.0|F\ro: bar":                    400,
	"GET / HTTP/1.0|F\to: bar":                    400,
	"GET / HTTP/1.0|Fo: bar\r":                    400,
	"GET http://%3127.0.0.1/ HTTP/1.0":            400,
	"GET / HTTP/1.0|Host: localhost:80 x":         400,
	"GET http://localhost:80x/ HTTP/1.0":          400,
	"GET http://localhost:80:80/ HTTP/1.0":        400,
	"GET http://localhost::80/ HTTP/1.0":          400,
	"GET http://foo@localhost:80/ HTTP/1.0":       400,
	"GET http://[4712::abcd::]/ HTTP/1.0":         400,
	"GET http://4713::abcd:8001/ HTTP/1.0":        400,
	"GET / HTTP/1.0|Host: 4714::abcd:8001":        400,
	"GET / HTTP/1.0|Host: abc\xa0":                400,
	"GET / HTTP/1.0|Host: abc\\foo":               400,
	"GET / HTTP/1.0|Host: localhost|Host: remote": 400,
}

// generatedCases hold every byte value in each place of a request where it
// could matter.
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
		name := strings.ToUpper(string("0123456789abcdef"[ch>>4])) + strings.ToUpper(string("0123456789abcdef"[ch&15]))
		// LF makes two lines of one, and neither is a whole one.
		add(name+" in a field name", get("Ab"+b+"cd: x"), token || ch == ':')
		add(name+" in a target", line("GET /a"+b+"b HTTP/1.1"), ch > ' ' && ch != 0x7f)
		add(name+" in Content-Length", get("Content-Length: 1"+b+"0")+strings.Repeat("x", 100+10*ch), false)
		if isDigit(byte(ch)) {
			cases = cases[:len(cases)-1] // a number, and a body of another length
		}
		if ch != '\n' {
			add(name+" in a value", get("A: b"+b+"c"), (ch >= ' ' || ch == '\t') && ch != 0x7f)
		}
	}
	return cases
}
