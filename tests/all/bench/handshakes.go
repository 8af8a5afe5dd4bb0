package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"time"

	vegeta "github.com/tsenart/vegeta/v12/lib"
)

// handshakeClients is the number of connections at a time.
const handshakeClients = 16

// handshakes makes a connection for each request, with a full TLS handshake: wrk resumes sessions,
// for which a server signs nothing. The key exchange is X25519, which all servers have.
func handshakes(a *ask, p *process, d time.Duration) (responses, error) {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true,
		DisableCompression: true, TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, // the certificate is self-signed
			CurvePreferences:   []tls.CurveID{tls.X25519},
		}}}
	m := attack(vegeta.Target{Method: http.MethodGet, URL: p.url(a.paths[0])}, vegeta.Rate{}, d,
		vegeta.Client(client), vegeta.Workers(handshakeClients), vegeta.MaxWorkers(handshakeClients))
	r := responses{requests: int64(m.Requests), bytes: int64(m.BytesIn.Total), time: m.Duration + m.Wait,
		p50: m.Latencies.P50, p99: m.Latencies.P99, p999: m.Latencies.Quantile(.999)}
	for code, n := range m.StatusCodes {
		switch {
		case code == "0":
			return r, fmt.Errorf("%d connections broke: %v", n, m.Errors)
		case code >= "400":
			r.others += int64(n)
		}
	}
	return r, nil
}
