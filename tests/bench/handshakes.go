package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"
)

// handshakeClients is the number of connections at a time.
const handshakeClients = 16

// handshakes makes a connection for each request, with a full TLS handshake: wrk resumes sessions,
// for which a server signs nothing. The key exchange is X25519, which all servers have.
func handshakes(a *ask, p *process, d time.Duration) (responses, error) {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DisableCompression: true, TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, // its certificate is our own
			CurvePreferences:   []tls.CurveID{tls.X25519},
		}}}
	var mu sync.Mutex
	var r responses
	var times []time.Duration
	var failed error
	begin := time.Now()
	var wg sync.WaitGroup
	for range handshakeClients {
		wg.Go(func() {
			for time.Since(begin) < d {
				at := time.Now()
				n, status, err := fetch(client, p.url(a.paths[0]))
				took := time.Since(at)
				mu.Lock()
				r.requests++
				r.bytes += n
				if status >= http.StatusBadRequest {
					r.others++
				}
				if err != nil {
					r.broken++
					failed = err
				}
				times = append(times, took)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	r.time = time.Since(begin)
	slices.Sort(times)
	at := func(share float64) time.Duration { return times[int(share*float64(len(times)-1))] }
	r.p50, r.p99, r.p999 = at(.5), at(.99), at(.999)
	return r, failed
}

// errResumed is the error of a handshake that was not a full one.
var errResumed = errors.New("the server resumed a session that the client does not know")

// fetch requests a URL on a connection of its own and reads the body.
func fetch(client *http.Client, url string) (n int64, status int, err error) {
	resp, err := client.Get(url)
	if err != nil {
		return 0, 0, fmt.Errorf("cannot connect: %w", err)
	}
	defer resp.Body.Close()
	if resp.TLS.DidResume {
		return 0, resp.StatusCode, errResumed
	}
	n, err = io.Copy(io.Discard, resp.Body)
	return n, resp.StatusCode, err
}
