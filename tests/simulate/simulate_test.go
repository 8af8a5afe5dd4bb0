package main

import (
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/tests/docs"
)

// small is a fleet in front of a thousand files that fit on each disk, with so much memory.
func small(s scenario, memory int64) *simulation {
	const files = 1000
	s.scale, s.exponent, s.memory, s.disk = 1, 0.8, memory, 2*files*mostSize
	return newSimulation(s, newTraffic(files, 1, s.exponent), &placements{known: map[string]func() placement{}})
}

// askAll asks for each file once.
func (s *simulation) askAll() counts {
	s.counts = counts{}
	for file := range s.traffic.sizes {
		s.request(int32(file))
	}
	return s.counts
}

// TestOneDownload: with disks that are large enough each file is downloaded once, under one lock,
// however often it is asked for.
func TestOneDownload(t *testing.T) {
	for _, s := range []scenario{
		{gateways: 1, copies: 1, balancer: random}, {gateways: 7, copies: 1, balancer: random},
		{gateways: 7, copies: 1, balancer: byURL}, {gateways: 7, copies: 2, balancer: random},
		{gateways: 7, copies: 0, balancer: byURL},
	} {
		sim := small(s, 1<<30)
		require.Equal(t, 0, sim.askAll().own)
		require.Equal(t, 1000, sim.counts.downloads)
		require.Equal(t, 1000, sim.counts.leases)
		c := sim.run(20000)
		require.Equal(t, 20000, c.requests)
		require.Zero(t, c.downloads+c.leases+c.next, s)
		require.Equal(t, c.requests, c.own+c.owner, s)
		if s.gateways == 1 || s.balancer == byURL {
			require.Zero(t, c.owner, "the gateway of the load balancer's choice has it by now")
			require.Zero(t, c.between)
		}
	}
}

// TestWithoutMemory: one gateway in n has the file on disk, so 1/n of the bytes stay there, and
// with two copies 2/n.
func TestWithoutMemory(t *testing.T) {
	for copies := 1; copies <= 2; copies++ {
		sim := small(scenario{gateways: 8, copies: copies, balancer: random}, 0)
		for range 50 {
			sim.askAll() // the second in rank has been asked for each by now
		}
		c := sim.run(50000)
		want := 1 - float64(copies)/8
		require.InDelta(t, want, share(c.owner, c.requests), 0.01)
		require.InDelta(t, want, float64(c.between)/float64(c.served), 0.02)
		require.Zero(t, c.downloads)
	}
	sim := small(scenario{gateways: 8, copies: 0, balancer: random}, 0)
	for range 100 {
		sim.askAll()
	}
	require.Equal(t, 1000, sim.askAll().own, "all have all")
}

// TestNoDisk: what fits nowhere is downloaded each time.
func TestNoDisk(t *testing.T) {
	sim := small(scenario{gateways: 3, copies: 1, balancer: random}, 0)
	sim.disk = 0
	for range 3 {
		sim.join()
	}
	sim.living = sim.living[3:]
	sim.settle()
	c := sim.run(1000)
	require.Equal(t, []int{1000, 1000, 0}, []int{c.downloads, c.leases, c.own + c.owner + c.next})
}

// TestDeath: with one copy and no memory the files of the dead are downloaded again, once each, and
// none when they are back. A gateway that joins gets copies from the former owners.
func TestDeath(t *testing.T) {
	const gateways = 8
	sim := small(scenario{gateways: gateways, copies: 1, balancer: random}, 0)
	sim.askAll()
	before := sim.place
	sim.living = sim.living[1:]
	require.False(t, sim.isHeld(fileOf(before, 0)))
	require.True(t, sim.isHeld(fileOf(before, 1)))
	sim.settle()
	moved := before.differs(sim.place)
	require.InDelta(t, 1.0/gateways, moved, 0.03)
	sim.search = true
	c := sim.askAll()
	require.Equal(t, int(math.Round(moved*1000)), c.downloads)
	require.Zero(t, c.held, "nobody had them")

	sim.gateways[0].Restart()
	sim.living = []int{0, 1, 2, 3, 4, 5, 6, 7}
	sim.settle()
	require.Zero(t, sim.askAll().downloads)

	before = sim.place
	sim.join()
	sim.settle()
	taken := before.differs(sim.place)
	require.InDelta(t, 1.0/(gateways+1), taken, 0.03)
	copied := 0
	for range 30 { // until no request for one of them has met its former owner alone
		require.Zero(t, sim.askAll().downloads)
		copied += sim.counts.next
	}
	require.Equal(t, int(math.Round(taken*1000)), copied)
}

// fileOf is a file that a gateway owns.
func fileOf(p placement, gateway int) int32 {
	for file, ranks := range p.ranks {
		if int(ranks[0]) == gateway {
			return int32(file)
		}
	}
	return -1
}

// TestChange: one change tells what moved, and asks for a minute each time.
func TestChange(t *testing.T) {
	sim := small(scenario{gateways: 4, copies: 1, balancer: random}, 0)
	sim.askAll()
	all := sim.change()
	require.Len(t, all, 1, "one in 100 and one in 10 are the same gateway")
	c := all[0]
	require.Equal(t, 1, c.dead)
	require.InDelta(t, 0.25, c.moved, 0.05)
	require.Equal(t, c.moved, c.lost, "there was one copy of each")
	for _, minute := range []counts{c.before, c.after, c.back, c.joined} {
		require.Equal(t, 4*rate*60, minute.requests)
	}
	require.Equal(t, []int{0, 0, 0}, []int{c.before.downloads, c.back.downloads, c.joined.downloads})
	require.Equal(t, int(math.Round(1000*c.lost)), c.after.downloads)
}

// TestSameFigures: a run is the same each time.
func TestSameFigures(t *testing.T) {
	once := func() counts {
		sim := small(scenario{gateways: 5, copies: 2, balancer: random}, 64<<20)
		sim.warm()
		return sim.run(10000)
	}
	require.Equal(t, once(), once())
}

func TestTraffic(t *testing.T) {
	all, few := newTraffic(1000, 1, 1), newTraffic(1000, 10, 1)
	require.Len(t, few.sizes, 100)
	require.InDelta(t, 1/7.485, all.upTo[0], 0.001, "the sum of 1/i up to 1000 is 7.485")
	require.InDelta(t, all.upTo[9], few.upTo[0], 1e-9, "it stands for the first ten")
	sum := 0.0
	for i := range 10000 {
		size := sizeOf(i)
		require.True(t, size >= leastSize && size <= mostSize)
		sum += float64(size)
	}
	require.InEpsilon(t, meanSize, sum/10000, 0.01)
	require.InEpsilon(t, meanSize, sizeOf(0), 0.01)
	require.Len(t, fileName(123), nameLength)
	require.NotEqual(t, fileName(123), fileName(124))
}

// TestRedis: the scripts run on a real server.
func TestRedis(t *testing.T) {
	figures, err := measureRedis(50 * time.Millisecond)
	require.NoError(t, err)
	require.Len(t, figures, 5)
	for _, f := range figures {
		require.Positive(t, f.perSecond)
		require.Positive(t, f.cpu)
	}
	require.Contains(t, redisTable(figures, time.Second), figures[0].name)
}

// TestTables: each result has its row.
func TestTables(t *testing.T) {
	s := scenario{gateways: 10, copies: 0, balancer: byURL, exponent: exponents[0], scale: 100}
	r := result{scenario: s}
	r.counts = counts{requests: 1000, own: 500, downloads: 100, leases: 120, served: 4000, between: 1000}
	r.changes = []change{{dead: 1, moved: 0.1, lost: 0.05, after: counts{requests: 100, downloads: 7, held: 2}}}
	require.Contains(t, hitsTable([]result{r}), "| 10 | all | URL hash | 50.0 % | 90.0 % | 0.25 | 1000 | 2410 |\n")
	require.Contains(t, changesTable([]result{r}), "| 10 | 1 | 10.0 % | all | URL hash | 5.0 % | 0 | 700 | 200 | 0 |")
	for figure, text := range map[float64]string{0: "0", 0.5: "0.5", 10: "10", 9999: "10.0 k", 1e6: "1.00 M"} {
		require.Equal(t, text, count(figure))
	}
	require.Len(t, plan(), 4*3*2*2+4)
}

// TestDocument: docs/scale.md has the sections that make simulate writes, and its settings name
// keys that exist.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../docs/scale.md")
	require.NoError(t, err)
	for _, section := range []string{"hits", "changes", "scales", "redis"} {
		_, err := docs.ReplaceSection(text, "make simulate", section, "")
		require.NoError(t, err)
	}
	named := regexp.MustCompile("`\\[(\\w+)\\] (\\w+)").FindAllSubmatch(text, -1)
	require.Greater(t, len(named), 5)
	known := sampleKeys(t)
	for _, key := range named {
		require.True(t, known[string(key[1])+"."+string(key[2])], "docs/scale.md names [%s] %s", key[1], key[2])
	}
}

// sampleKeys are the keys in the sample of a configuration, which has all: section.key.
func sampleKeys(t *testing.T) map[string]bool {
	sample, err := os.ReadFile("../../mod_fastdfs.conf")
	require.NoError(t, err)
	known, section := map[string]bool{}, ""
	line := regexp.MustCompile(`^(?:\[(\w+)\]|#?(\w+) = )`)
	for text := range strings.Lines(string(sample)) {
		switch m := line.FindStringSubmatch(text); {
		case m == nil:
		case m[1] != "":
			section = m[1]
		default:
			known[section+"."+m[2]] = true
		}
	}
	return known
}
