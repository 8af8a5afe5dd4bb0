package guard_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"

	"fastdfs-gateway/internal/httpserver/guard"
)

// A lenient parser behind the guard gets a canonical head, and nothing of a request that two
// parsers could read in two ways.
func ExampleGuard_Wrap() {
	for _, request := range []string{
		"GET http://example.test//a HTTP/1.1\r\nHost: other.test\r\n\r\n",
		"GET /a HTTP/1.1\r\nHost: example.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
	} {
		g := guard.New(guard.Options{})
		client, server := net.Pipe()
		go func() { _, _ = io.WriteString(client, request) }()
		conn := g.Wrap(server)
		if req, err := http.ReadRequest(bufio.NewReader(respondent(client, conn))); err != nil {
			fmt.Println("rejected")
		} else {
			fmt.Println(req.Method, req.Host, req.URL)
		}
		_ = conn.Close()
		_ = client.Close()
	}
	// Output:
	// GET example.test /a
	// rejected
}

// respondent returns conn, and reads the responses that it sends to the client.
func respondent(client net.Conn, conn io.Reader) io.Reader {
	go func() { _, _ = io.Copy(io.Discard, client) }() // ends with the connection
	return conn
}
