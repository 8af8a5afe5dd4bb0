// Command simulate computes what a fleet of gateways does with traffic that is too large for a
// test: hits, bytes between gateways, downloads from storages, commands to Redis, and the effect of
// gateways that die, come back and join.
//
//	simulate -out docs/scale.md
//	simulate -redis=false
//
// It has the program's own ranking of owners (internal/fleet) and its own admission and eviction
// (tier.Memory); docs/scale.md states what the model leaves out. The same flags give the same
// figures. Then it measures how many commands one Redis on this host executes in a second.
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"fastdfs-gateway/tests/docs"
)

// settings are the flags.
type settings struct {
	files int
	redis bool
	time  time.Duration
	out   string
}

func main() {
	s := settings{}
	flag.IntVar(&s.files, "files", 10_000_000, "number of files")
	flag.BoolVar(&s.redis, "redis", true, "measure a redis-server as well")
	flag.DurationVar(&s.time, "time", 5*time.Second, "how long each measurement of Redis takes")
	flag.StringVar(&s.out, "out", "", "document whose sections are written; default: print them")
	flag.Parse()
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// run computes the sections and writes them.
func run(s settings) error {
	results := simulate(plan(), s.files)
	sections := [][2]string{
		{"hits", hitsTable(results)}, {"changes", changesTable(results)}, {"scales", scalesTable(results)},
	}
	if s.redis {
		figures, err := measureRedis(s.time)
		if err != nil {
			return err
		}
		sections = append(sections, [2]string{"redis", redisTable(figures, s.time)})
	}
	for _, section := range sections {
		if s.out == "" {
			fmt.Println(section[1])
		} else if err := docs.WriteSection(s.out, "make simulate", section[0], section[1]); err != nil {
			return err
		}
	}
	return nil
}

// Budgets of every gateway in bytes.
const (
	memory = 16 << 30
	disk   = 256 << 30
)

// fleets are the sizes that are simulated, each with the scale that keeps the number of entries
// within reason.
var fleets = []struct{ gateways, scale int }{{3, 100}, {10, 100}, {100, 200}, {1000, 500}}

// otherScales are compared with that of fleets.
var otherScales = []int{20, 500}

// exponents of the traffic. Gateways die under the first.
var exponents = []float64{0.8, 1.0}

// plan lists what is simulated, the slowest first.
func plan() []scenario {
	var all []scenario
	for i := range fleets {
		f := fleets[len(fleets)-1-i]
		for _, copies := range []int{0, 2, 1} {
			for _, balancer := range []string{random, byURL} {
				for _, exponent := range exponents {
					all = append(all, scenario{f.gateways, copies, balancer, exponent, f.scale, memory, disk})
				}
			}
		}
	}
	for _, exponent := range exponents {
		for _, scale := range otherScales {
			all = append(all, scenario{10, 1, random, exponent, scale, memory, disk})
		}
	}
	return all
}

// result is what came of a scenario.
type result struct {
	scenario
	counts  counts
	changes []change
}

// simulate runs scenarios on all processors.
func simulate(scenarios []scenario, files int) []result {
	places := &placements{known: map[string]func() placement{}}
	type key struct {
		scale    int
		exponent float64
	}
	traffics := map[key]func() *traffic{}
	for _, s := range scenarios {
		traffics[key{s.scale, s.exponent}] = sync.OnceValue(func() *traffic {
			return newTraffic(files, s.scale, s.exponent)
		})
	}
	results, next := make([]result, len(scenarios)), make(chan int)
	var running sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		running.Go(func() {
			for i := range next {
				s := scenarios[i]
				results[i] = s.run(traffics[key{s.scale, s.exponent}](), places)
			}
		})
	}
	for i := range scenarios {
		next <- i
	}
	close(next)
	running.Wait()
	return results
}

// measured is how many requests are counted for a figure.
const measured = 300_000

// run simulates one scenario.
func (s scenario) run(t *traffic, p *placements) result {
	start := time.Now()
	sim := newSimulation(s, t, p)
	sim.warm()
	r := result{scenario: s, counts: sim.run(measured)}
	if s.exponent == exponents[0] {
		r.changes = sim.change()
	}
	fmt.Fprintf(os.Stderr, "%4d gateways, copies %s, %s, %.1f: %.1f s\n", s.gateways, s.copiesText(), s.balancer,
		s.exponent, time.Since(start).Seconds())
	return r
}
