package tier_test

import (
	"math"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/stretchr/testify/require"

	"fastdfs-gateway/internal/cache/tier"
)

// zipf draws from n files. The probability of the i-th one is proportional to 1/i^s.
type zipf []float64

func newZipf(n int, s float64) zipf {
	z, sum := make(zipf, n), 0.0
	for i := range z {
		sum += 1 / math.Pow(float64(i+1), s)
		z[i] = sum
	}
	return z
}

func (z zipf) draw(r *rand.Rand) int {
	return sort.SearchFloat64s(z, r.Float64()*z[len(z)-1])
}

// TestHitRatio: with memory for a tenth of the files, more than half of the requests are hits. A
// scan, in which every second request is for a file that is never requested again, costs less than
// 15% of them.
func TestHitRatio(t *testing.T) {
	const files, size, budget, requests = 5000, 1000, 5000 * 1000 / 10, 50000
	z := newZipf(files, 0.9)
	run := func(scan bool) float64 {
		m, r, hits, asked, cold := tier.NewMemory(budget), rand.New(rand.NewPCG(1, 2)), 0, 0, files
		for i := range requests {
			hit := ask(m, small(z.draw(r), size))
			if i >= requests/2 {
				asked++
				if hit {
					hits++
				}
			}
			if scan {
				cold++
				ask(m, small(cold, size))
			}
			if m.Stats().Bytes > budget {
				t.Fatalf("%d bytes", m.Stats().Bytes)
			}
		}
		return float64(hits) / float64(asked)
	}
	clean, polluted := run(false), run(true)
	t.Logf("hits of the popular files: %.3f, beside a scan %.3f", clean, polluted)
	require.Greater(t, clean, 0.5)
	require.Greater(t, polluted, clean*0.85)
}
