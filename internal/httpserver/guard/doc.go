// Package guard is the strict parser of HTTP/1 requests between a socket and a lenient HTTP server.
//
// A Conn wraps a net.Conn. Its reader gets one well-formed, canonical request head at a time, never
// a byte of a body, and never input that two parsers could read in two ways (RFC 9112). The guard
// rejects all other input with the status of the RFC and a line of plain text, and the reader gets
// io.EOF:
//
//	g := guard.New(guard.Options{})
//	// for each accepted connection:
//	req, err := http.ReadRequest(bufio.NewReader(g.Wrap(conn)))
//
// ExampleGuard_Wrap is a whole program.
//
// # What the reader can rely on
//
//   - One head for each request, ended by an empty line, all lines ended by
//     CR LF, at most ReadBufferSize bytes. The next head is parsed when
//     Read is called after the last one was read completely, so the response
//     to the first request is sent before a second one is parsed.
//   - The target is in origin-form without a fragment and with a single
//     leading slash, or "*" for OPTIONS, or an authority for CONNECT. The
//     version is HTTP/1.0 or HTTP/1.1.
//   - There is one Host field with a valid, non-empty value; only an HTTP/1.0
//     request may have none. The authority of an absolute-form target takes
//     the place of Host (RFC 9112 section 3.2.2).
//   - Content-Length, Transfer-Encoding and Expect are absent: the guard has
//     applied them. So are Trailer, TE, Upgrade and HTTP2-Settings, which a
//     download server does not need. There is at most one Connection field,
//     and its value is "close" or "keep-alive".
//   - Method names are tokens, passed on unchanged, known or not.
//
// # Bodies
//
// A download server needs no request bodies. The guard reads a whole body, checks its framing and
// discards it before it passes the head on, so that a malformed chunk gets 400 in place of 200. A
// body over 64 KiB is rejected with 413. A client that waits for 100 (Continue) gets the final
// response, since no body changes that, and the connection ends.
//
// # Line ends
//
// A lone LF ends a line of the head, as RFC 9112 section 2.2 allows and other servers do. Such a
// request must have no body and is the last one on its connection, since a proxy in front may have
// read the bytes behind it in another way. Chunked framing needs CR LF.
//
// # Time
//
// The guard owns the read deadlines of the connection; the server above it must set none.
// Options.IdleTimeout runs before the first byte of a request, and closes without a response.
// Options.ReadTimeout runs from the first byte of a request to the end of its body, and ends in
// 408; further bytes do not extend it. The first request of a connection must begin within
// ReadTimeout. Conn.ClaimIdle lets a server close an idle connection for a new one.
//
// # Memory
//
// Buffers come from a pool. A connection on a Socket holds one only while it has bytes of a
// request, so an idle one holds none. With Conn.Park its reader does not wait either. Any other
// connection holds a buffer while its reader waits.
package guard
