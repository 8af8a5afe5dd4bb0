package soak

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"
)

// quantity is a sampled quantity.
type quantity struct {
	name  string
	slack float64 // allowed growth in the second half, in addition to a tenth
}

// quantities are in the order of a sample.
var quantities = []quantity{
	{"memory", 24}, {"heap", 24}, {"descriptors", 30}, {"goroutines", 60}, // the first two in MB
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
	err      error
}

func newSampler(gateways []*node) *sampler {
	s := &sampler{gateways: gateways, began: time.Now()}
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
	rss, heap := of["process_resident_memory_bytes"], of["go_memstats_heap_inuse_bytes"]
	for q, v := range []float64{rss / 1e6, heap / 1e6, of["process_open_fds"], of["go_goroutines"]} {
		s.values[i][q] = append(s.values[i][q], v)
	}
	return nil
}

// csv returns the samples, one line for each sample of each gateway.
func (s *sampler) csv() []byte {
	var b bytes.Buffer
	b.WriteString("seconds,gateway,rss_mb,heap_mb,descriptors,goroutines\n")
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

// quarters returns the medians of the third and of the last quarter.
func quarters(values []float64) (third, last float64) {
	if len(values) < 4 {
		return 0, 0
	}
	n := len(values)
	return median(values[n/2 : n*3/4]), median(values[n*3/4:])
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// growth returns a line for each quantity that has grown over the second half.
func (s *sampler) growth() (grown []string) {
	for i, g := range s.gateways {
		for q, what := range quantities {
			if third, last := quarters(s.values[i][q]); last > third*1.1+what.slack {
				grown = append(grown, fmt.Sprintf("%s: %s grows: %.1f in the third quarter, %.1f in the last one",
					g.name, what.name, third, last))
			}
		}
	}
	return grown
}
