package soak

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// quantity is a sampled quantity.
type quantity struct {
	name, unit string
	slack      float64 // allowed growth in the second half, in addition to a tenth; 0 = any
}

// quantities are in the order of a sample. The hit ratio is that of the time since the last sample.
var quantities = []quantity{
	{"memory", "MB (RSS)", 24}, {"heap", "MB in use", 24},
	{"descriptors", "", 30}, {"goroutines", "", 60}, {"hit ratio", "", 0},
}

const (
	samplesOfRun = 240 // upper limit
	sampleEvery  = 2 * time.Second
)

// sampler samples the quantities of each gateway.
type sampler struct {
	gateways []*node
	began    time.Time
	at       []time.Duration // of each sample
	values   [][][]float64   // by gateway, quantity and sample
	hits     []float64       // by gateway, at the last sample
	requests []float64
	err      error
}

func newSampler(gateways []*node) *sampler {
	s := &sampler{gateways: gateways, began: time.Now(),
		hits: make([]float64, len(gateways)), requests: make([]float64, len(gateways))}
	for range gateways {
		s.values = append(s.values, make([][]float64, len(quantities)))
	}
	return s
}

// run samples until ctx ends.
func (s *sampler) run(ctx context.Context, lasts time.Duration) {
	tick := time.NewTicker(max(sampleEvery, lasts/samplesOfRun))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.at = append(s.at, time.Since(s.began))
			for i, g := range s.gateways {
				if err := s.sample(i, g); err != nil && s.err == nil {
					s.err = fmt.Errorf("%s cannot be asked: %w", g.name, err)
				}
			}
		}
	}
}

func (s *sampler) sample(i int, g *node) error {
	of, err := g.Metrics()
	if err != nil {
		return err
	}
	hits, requests := 0.0, 0.0
	for name, n := range of {
		if !strings.HasPrefix(name, "fdfs_gateway_requests_total") {
			continue
		}
		for _, source := range []string{"local", "memory", "disk", "peer", "origin"} {
			if strings.Contains(name, `source="`+source+`"`) {
				requests += n
				if source != "origin" && source != "peer" {
					hits += n
				}
			}
		}
	}
	ratio := 0.0
	if d := requests - s.requests[i]; d > 0 {
		ratio = (hits - s.hits[i]) / d
	}
	s.hits[i], s.requests[i] = hits, requests
	rss, heap := of["process_resident_memory_bytes"], of["go_memstats_heap_inuse_bytes"]
	for q, v := range []float64{rss / 1e6, heap / 1e6, of["process_open_fds"], of["go_goroutines"], ratio} {
		s.values[i][q] = append(s.values[i][q], v)
	}
	return nil
}

// csv returns the samples, one line for each sample of each gateway.
func (s *sampler) csv() []byte {
	var b bytes.Buffer
	b.WriteString("seconds,gateway,rss_mb,heap_mb,descriptors,goroutines,hit_ratio\n")
	for n, at := range s.at {
		for i, g := range s.gateways {
			fmt.Fprintf(&b, "%.0f,%q", at.Seconds(), g.name)
			for q := range quantities {
				fmt.Fprintf(&b, ",%.3f", s.values[i][q][n])
			}
			b.WriteString("\n")
		}
	}
	return b.Bytes()
}

// quarters returns the medians of the third and of the last quarter, and the highest value.
func quarters(values []float64) (third, last, highest float64) {
	if len(values) < 4 {
		return 0, 0, 0
	}
	n := len(values)
	return median(values[n/2 : n*3/4]), median(values[n*3/4:]), slices.Max(values)
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// growth returns a line for each quantity that has grown over the second half.
func (s *sampler) growth() (grown []string) {
	for i, g := range s.gateways {
		for q, what := range quantities {
			if third, last, _ := quarters(s.values[i][q]); what.slack > 0 && last > third*1.1+what.slack {
				grown = append(grown, fmt.Sprintf("%s: %s grows: %.1f in the third quarter, %.1f in the last one",
					g.name, what.name, third, last))
			}
		}
	}
	return grown
}

// summary returns a Markdown table of the quantities.
func (s *sampler) summary() string {
	var b strings.Builder
	b.WriteString("| gateway | | third quarter | last quarter | highest |\n| --- | --- | --- | --- | --- |\n")
	for i, g := range s.gateways {
		for q, what := range quantities {
			third, last, highest := quarters(s.values[i][q])
			format := "%.0f"
			if what.name == "hit ratio" {
				format = "%.2f"
			}
			row := strings.ReplaceAll("| %s | %s | F | F | F |\n", "F", format)
			fmt.Fprintf(&b, row, g.name, strings.TrimSpace(what.name+" "+what.unit), third, last, highest)
		}
	}
	return b.String()
}

// TestGrowth: growth reports a leak, and no noise.
func TestGrowth(t *testing.T) {
	s := newSampler([]*node{{name: "a"}})
	for n := range 100 {
		s.at = append(s.at, time.Duration(n)*time.Second)
		for q := range quantities {
			s.values[0][q] = append(s.values[0][q], 100+float64(n%7))
		}
	}
	require.Empty(t, s.growth())
	for n := range 100 {
		s.values[0][3][n] += 4 * float64(n) // goroutines
	}
	require.Len(t, s.growth(), 1)
	require.Contains(t, s.growth()[0], "a: goroutines grows")
}
