// Package guard is the strict reader of HTTP/1 requests between a socket
// and a lenient HTTP server.
//
// A Conn wraps a net.Conn. Its reader gets exactly one well-formed, canonical request head at a
// time, never a byte of a body and never anything that two parsers could understand in two ways
// (RFC 9112). The guard itself answers anything that is not a request, with a plain text line and
// the status of the RFC, and the reader sees io.EOF:
//
//	g := guard.New(guard.Options{OnReject: logRejection})
//	server := &fasthttp.Server{
//		Handler:           handle,
//		ReduceMemoryUsage: true,
//		ReadBufferSize:    guard.ReadBufferSize,
//	}
//	// for each accepted connection:
//	err := server.ServeConn(g.Wrap(conn))
//
// # What the reader can rely on
//
//   - One head for each request, ended by an empty line, all lines ended by
//     CR LF, at most ReadBufferSize bytes. The next head is only handed out
//     when Read is called again after the whole of the last one was read, so
//     an answer to the first request is on its way before a second one is
//     looked at.
//   - The target is in origin-form without a fragment and with a single
//     leading slash, or "*" for OPTIONS, or an authority for CONNECT. The
//     version is HTTP/1.0 or HTTP/1.1.
//   - There is one Host field with a valid, non-empty value; only an HTTP/1.0
//     request may have none. The authority of an absolute-form target takes
//     the place of Host (RFC 9112 section 3.2.2).
//   - Content-Length, Transfer-Encoding, Expect, Trailer, TE and Upgrade are
//     never there: the guard has applied them. There is at most one
//     Connection field, and its value is "close" or "keep-alive".
//   - Method names are tokens, passed on as they came, known or not.
//
// # Bodies
//
// A download server needs no request bodies. The guard reads a body whole,
// checks its framing and throws it away before it hands on the head, so that
// a broken chunk gets its 400 and not a 200 followed by a confused
// connection. A body over 64 KiB is refused with 413. A client that
// asks for 100 (Continue) and waits gets the final answer instead, since no body
// changes it, and the connection ends with it.
//
// # Line ends
//
// A lone LF is taken as the end of a line of the head, as RFC 9112 section 2.2 allows and other
// servers do. Such a request must have no body and is always the last one on its connection: the
// bytes behind it are not read as a request, whatever a proxy in front took them for. Inside
// chunked framing only CR LF is accepted.
//
// # Time
//
// The guard owns the read deadlines of the connection; the server above it
// must set none. Options.IdleTimeout runs while nothing of a request has
// arrived and ends in silence; Options.ReadTimeout runs from the first byte of
// a request to the end of its body, is not renewed by further bytes, and ends
// in 408. A connection that has never sent anything is given ReadTimeout.
// Options.MaxIdle shortens both idle times when the server has little room, and
// Conn.ClaimIdle claims an idle connection for a server that needs its place.
//
// # Memory
//
// Buffers come from a pool and are held only while bytes of a request are
// there. An idle connection on a plain socket holds none.
package guard
