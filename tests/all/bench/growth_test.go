package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	vegeta "github.com/tsenart/vegeta/v12/lib"
)

var twoSides = [2]side{{name: "gateway"}, {name: "nginx"}}

// TestGrowth: a quantity is doubled four times, the sides take turns, and a figure is the median of
// its rounds.
func TestGrowth(t *testing.T) {
	var order []string
	g := growth{name: "Cost", quantity: "files", figure: "us", first: 3,
		measure: func(n int, _ *settings) (func(side) (float64, error), error) {
			round := 0
			return func(s side) (float64, error) {
				order = append(order, s.name)
				round++
				if s.name == "nginx" {
					return 1000, nil
				}
				return float64(n * []int{1, 7, 2}[round/2]), nil
			}, nil
		}}
	r, err := measureGrowth(g, twoSides[:], &settings{rounds: 3})
	require.NoError(t, err)
	require.Equal(t, []int{3, 6, 12, 24, 48}, r.quantities)
	require.Equal(t, []float64{6, 12, 24, 48, 96}, r.figures[0])
	require.Equal(t, []string{"gateway", "nginx", "gateway", "nginx", "gateway", "nginx"}, order[:6])
	require.Equal(t, "| us | 3 | 6 | 12 | 24 | 48 |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"+
		"| gateway | 6.00 | 12.0 | 24.0 | 48.0 | 96.0 |\n| nginx | 1000 | 1000 | 1000 | 1000 | 1000 |\n",
		r.table())

	failed := errors.New("it did not start")
	g.measure = func(int, *settings) (func(side) (float64, error), error) {
		return func(side) (float64, error) { return 0, failed }, nil
	}
	_, err = measureGrowth(g, twoSides[:], &settings{rounds: 1})
	require.ErrorIs(t, err, failed)
}

// TestPlot: a plot is XML with a point for each figure inside of the picture, also where all
// figures are 0.
func TestPlot(t *testing.T) {
	for _, figures := range [][][]float64{{{1, 2, 4, 8, 16}, {3, 3, 3, 3, 2.5}}, {{0, 0, 0, 0, -1}, {0, 0, 0, 0, 0}}} {
		r := grown{growth: growth{quantity: "files"}, sides: twoSides[:], quantities: []int{1, 2, 4, 8, 16},
			figures: figures}
		text := r.plot()
		lines := 0
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err, text)
			start, ok := token.(xml.StartElement)
			if !ok || start.Name.Local != "polyline" {
				continue
			}
			lines++
			points := strings.Fields(attr(start, "points"))
			require.Len(t, points, 5)
			require.True(t, strings.HasPrefix(points[4], "428.0,"), points[4])
			require.NotContains(t, text, "NaN")
		}
		require.Equal(t, 2, lines)
	}
	for most, top := range map[float64]float64{0: 1, .3: .5, 1: 1, 1.01: 2, 96: 100, 4500: 5000} {
		require.InDelta(t, top, niceTop(most), 1e-9)
	}
}

func attr(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// TestAttack: requests come at a rate, and an unexpected status is an error.
func TestAttack(t *testing.T) {
	c, p := smallFile(t)
	got, err := c.attack(&c.gateway, p, vegeta.Rate{Freq: 50, Per: time.Second}, time.Second)
	require.NoError(t, err)
	require.Positive(t, got.rate)
	require.Positive(t, got.p99)
	c.status = http.StatusNotModified
	_, err = c.attack(&c.gateway, p, vegeta.Rate{Freq: 50, Per: time.Second}, time.Second)
	require.ErrorIs(t, err, errWrong)
}

// TestRangesCost: both sides send all ranges of a request for several.
func TestRangesCost(t *testing.T) {
	needPrograms(t)
	w, s := newTestWorld(t)
	s.time = time.Second
	sides, err := w.sides(s)
	require.NoError(t, err)
	cost, err := w.rangesCost(3, s)
	require.NoError(t, err)
	for _, side := range sides {
		_, err := cost(side)
		require.NoError(t, err, side.name)
	}
}

// TestCacheGrowths: the figures of the cache are positive, and more files take more memory.
func TestCacheGrowths(t *testing.T) {
	w, s := newTestWorld(t)
	var one side
	measure := func(of func(int, *settings) (func(side) (float64, error), error), n int) float64 {
		f, err := of(n, s)
		require.NoError(t, err)
		figure, err := f(one)
		require.NoError(t, err)
		require.Positive(t, figure)
		return figure
	}
	require.Greater(t, measure(w.entryMemory, 4000), measure(w.entryMemory, 1000))
	measure(w.evictionTime, 1000)
	measure(w.restartTime, 20)
	measure(w.fleetCost, 2)
}

// TestHandshakes: each connection has a full handshake with the key of the case, and a wrong status
// is counted.
func TestHandshakes(t *testing.T) {
	w, s := newTestWorld(t)
	for f, algorithm := range map[flavour]x509.PublicKeyAlgorithm{secured: x509.ECDSA, securedRSA: x509.RSA} {
		c := &testCase{status: http.StatusOK}
		require.NoError(t, w.handshakes(f)(c))
		p, err := w.startGateway(s.gateway, f)
		require.NoError(t, err)
		t.Cleanup(p.Stop)
		conn, err := tls.Dial("tcp", p.Addr, &tls.Config{InsecureSkipVerify: true}) // only the key matters
		require.NoError(t, err)
		require.NoError(t, conn.Close())
		require.Equal(t, algorithm, conn.ConnectionState().PeerCertificates[0].PublicKeyAlgorithm)
		got, err := w.load(&c.gateway, p, time.Second, 0)
		require.NoError(t, err)
		require.NoError(t, c.judge(&got))
		require.Equal(t, got.requests*4*kib, got.bytes)
		require.Positive(t, got.p999)
		c.gateway.paths = []string{"/group1/M00/none"}
		got, err = w.load(&c.gateway, p, time.Second, 0)
		require.NoError(t, err)
		require.ErrorIs(t, c.judge(&got), errWrong)
	}
}
