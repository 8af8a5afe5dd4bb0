package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// doublings is the number of doublings of a quantity.
const doublings = 4

// growth is a figure that grows with a quantity.
type growth struct {
	name     string // of the SVG file too, with hyphens
	quantity string
	figure   string // with its unit
	first    int    // of the quantity
	doubled  int    // number of doublings; default doublings
	alone    bool   // only the gateway is measured
	// measure prepares a quantity, and returns the function that measures a side.
	measure func(n int, s *settings) (func(side side) (float64, error), error)
}

// growths returns the figures of the document.
func (w *world) growths() []growth {
	most := affordable(10_000)
	return append([]growth{
		{name: "Idle connections", quantity: "connections", figure: "additional memory, MB", first: most >> doublings,
			measure: w.idleMemory},
		{name: "Active connections", quantity: "connections", figure: "processor time for a 4 KiB file, us", first: 125,
			measure: w.activeCost},
		{name: "Different files", quantity: "files of 4 KiB, in turn", figure: "processor time for each, us",
			first: 625, measure: w.filesCost},
		{name: "Ranges of a request", quantity: "ranges of 4 KiB", figure: "processor time, us", first: 1,
			measure: w.rangesCost},
	}, w.cacheGrowths()...)
}

// idleMemory measures the memory of connections that wait for their next request.
func (w *world) idleMemory(n int, _ *settings) (func(side) (float64, error), error) {
	o, err := w.store.plain(4 * kib)
	c := testCase{}
	c.same(o)
	c.nginx = c.gateway
	return func(side side) (float64, error) {
		e, err := measureClients(&clientGroup{clients: n, idle: true}, side, &c, time.Second)
		return float64(e.rss()) / 1e6, err
	}, err
}

// activeCost measures the processor time of a request while n connections send requests.
func (w *world) activeCost(n int, s *settings) (func(side) (float64, error), error) {
	o, err := w.store.plain(4 * kib)
	c := testCase{status: 200, flavour: local}
	c.same(o)
	c.gateway.connections = n
	return w.cost(&c, s), err
}

// filesCost measures requests for n files in turn. Both sides keep up to 10,000 files open, which
// is the greatest n.
func (w *world) filesCost(n int, s *settings) (func(side) (float64, error), error) {
	c := testCase{status: 200, flavour: local}
	for range n {
		o, err := w.store.plain(4 * kib)
		if err != nil {
			return nil, err
		}
		if c.want.path == "" {
			c.want = o
		}
		c.gateway.paths = append(c.gateway.paths, o.path)
	}
	return w.cost(&c, s), nil
}

// rangesCost measures a request for several ranges.
func (w *world) rangesCost(n int, s *settings) (func(side) (float64, error), error) {
	o, err := w.store.plain(mib)
	var ranges []string
	for i := range n {
		begin := 2 * i * 4 * kib
		ranges = append(ranges, fmt.Sprintf("%d-%d", begin, begin+4*kib-1))
	}
	c := testCase{status: 206, flavour: local}
	c.same(o)
	c.byBytes = 0
	c.gateway.header = map[string]string{"Range": "bytes=" + strings.Join(ranges, ",")}
	return w.cost(&c, s), err
}

// cost measures the processor time of a request in microseconds.
func (w *world) cost(c *testCase, s *settings) func(side) (float64, error) {
	c.nginx = c.gateway
	return func(one side) (float64, error) {
		servers, asks, stop, err := w.begin(c, []side{one}, s)
		defer stop()
		if err != nil {
			return 0, err
		}
		got, err := w.sample(c, &asks[0], servers[0], s.time, 1)
		return float64(got.cpu) / float64(time.Microsecond), err
	}
}

// grown is a measured growth: the medians of the rounds of each side.
type grown struct {
	growth
	sides      []side
	quantities []int
	figures    [][]float64 // of each side
}

// measureGrowth measures a growth; the sides take turns.
func measureGrowth(g growth, sides []side, s *settings) (*grown, error) {
	if g.alone {
		sides = sides[:1]
	}
	r := &grown{growth: g, sides: sides, figures: make([][]float64, len(sides))}
	for i := range cmp.Or(g.doubled, doublings) + 1 {
		n := g.first << i
		measure, err := g.measure(n, s)
		if err != nil {
			return nil, err
		}
		lists := make([][]float64, len(sides))
		for range s.rounds {
			for i, side := range sides {
				f, err := measure(side)
				if err != nil {
					return nil, fmt.Errorf("%d %s: %s: %w", n, g.quantity, side.name, err)
				}
				lists[i] = append(lists[i], f)
			}
		}
		r.quantities = append(r.quantities, n)
		for i := range sides {
			r.figures[i] = append(r.figures[i], median(lists[i]))
		}
	}
	return r, nil
}

// growthTables measures all growths, writes their plots to a folder, and returns the section.
func (w *world) growthTables(sides []side, s *settings, plots string) (string, error) {
	var b strings.Builder
	for _, g := range w.growths() {
		if !s.pattern.MatchString(g.name) {
			continue
		}
		r, err := measureGrowth(g, sides, s)
		if err != nil {
			return "", fmt.Errorf("%s: %w", g.name, err)
		}
		fmt.Println(r.table())
		name := strings.ReplaceAll(strings.ToLower(g.name), " ", "-") + ".svg"
		if err := os.WriteFile(filepath.Join(plots, name), []byte(r.plot()), 0o644); err != nil {
			return "", err
		}
		fmt.Fprintf(&b, "### %s\n\n![%s](growth/%s)\n\n%s\n", g.name, g.figure, name, r.table())
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// writeGrowth measures the figures and writes the plots and the section of the document.
func (w *world) writeGrowth(sides [2]side, s *settings) error {
	fmt.Print(machine(s), "\n")
	plots := w.dir
	if s.writes() {
		plots = filepath.Join(filepath.Dir(s.out), "growth")
	}
	if err := os.MkdirAll(plots, 0o755); err != nil {
		return err
	}
	text, err := w.growthTables(sides[:], s, plots)
	if err != nil {
		return err
	}
	return s.writeSection("growth", machine(s)+"\n"+text)
}

// table returns a table with a row for each side.
func (r *grown) table() string {
	var b strings.Builder
	b.WriteString("| " + r.figure)
	for _, n := range r.quantities {
		b.WriteString(" | " + strconv.Itoa(n))
	}
	b.WriteString(" |\n| ---" + strings.Repeat(" | ---:", len(r.quantities)) + " |\n")
	for i, side := range r.sides {
		b.WriteString("| " + side.name)
		for _, f := range r.figures[i] {
			b.WriteString(" | " + short(f))
		}
		b.WriteString(" |\n")
	}
	return b.String()
}
