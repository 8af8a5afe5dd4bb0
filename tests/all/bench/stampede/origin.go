package main

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// pieceTime is the pause between two pieces of a body.
const pieceTime = 10 * time.Millisecond

// origin is a slow web server with one file, for the proxies.
type origin struct {
	content       []byte
	delay, spread time.Duration
	maxAge        int // seconds
	server        *http.Server
	addr          string
	done          chan struct{}

	downloads, questions, bytes atomic.Int64
}

func startOrigin(content []byte, delay, spread time.Duration, maxAge int) (*origin, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o := &origin{content: content, delay: delay, spread: spread, maxAge: maxAge, addr: l.Addr().String(),
		done: make(chan struct{})}
	o.server = &http.Server{Handler: o, ReadHeaderTimeout: time.Minute}
	go func() {
		defer close(o.done)
		_ = o.server.Serve(l) // until stop
	}()
	return o, nil
}

func (o *origin) stop() {
	_ = o.server.Close() // aborts running responses
	<-o.done
}

func (o *origin) resetCounts() {
	o.downloads.Store(0)
	o.questions.Store(0)
	o.bytes.Store(0)
}

// ServeHTTP sends the file, or 304 in response to a conditional request.
func (o *origin) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "max-age="+strconv.Itoa(o.maxAge))
	h.Set("ETag", `"v1"`)
	h.Set("Content-Type", "application/octet-stream")
	if req.Method != http.MethodGet || req.Header.Get("If-None-Match") != "" {
		o.questions.Add(1)
		time.Sleep(o.delay)
		if req.Method == http.MethodGet {
			w.WriteHeader(http.StatusNotModified)
		}
		return
	}
	o.downloads.Add(1)
	time.Sleep(o.delay)
	h.Set("Content-Length", strconv.Itoa(len(o.content)))
	if err := o.send(w); err != nil && !errors.Is(err, net.ErrClosed) {
		panic(http.ErrAbortHandler) // the proxy has disconnected
	}
}

// send sends the content as a slow storage of package fdfstest does: a hundred pieces a second,
// each followed by a pause, so that both are late by the same amount on a busy machine.
func (o *origin) send(w http.ResponseWriter) error {
	flush := http.NewResponseController(w)
	pieces := max(1, int(o.spread/pieceTime))
	piece := max(1, len(o.content)/pieces)
	for at := 0; at < len(o.content); at += piece {
		n, err := w.Write(o.content[at:min(at+piece, len(o.content))])
		o.bytes.Add(int64(n))
		if err != nil {
			return err
		}
		if err := flush.Flush(); err != nil {
			return err
		}
		if o.spread > 0 {
			time.Sleep(pieceTime)
		}
	}
	return nil
}
