package main

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"

	"fastdfs-gateway/internal/cache/tier"
)

// Sizes of files in bytes: the logarithm of the size is spread evenly between the two.
const (
	leastSize = 4 << 10
	mostSize  = 4 << 20
)

// meanSize is the mean size of the files.
var meanSize = (mostSize - leastSize) / math.Log(mostSize/leastSize)

// traffic is the files, the most popular one first, and how often each is asked for.
type traffic struct {
	sizes    []int64
	segments []*tier.Segment
	upTo     []float64 // share of the requests for this file and the more popular ones
}

// newTraffic makes the traffic on so many files, of which the i-th is asked for in proportion to
// 1/i^exponent. One file of the result stands for scale neighbours in popularity: it is asked for
// as often as one of them is on average.
func newTraffic(files, scale int, exponent float64) *traffic {
	n := files / scale
	t := &traffic{sizes: make([]int64, n), segments: make([]*tier.Segment, n), upTo: make([]float64, n)}
	sum := 0.0
	for i := range n {
		for rank := i*scale + 1; rank <= (i+1)*scale; rank++ {
			sum += math.Pow(float64(rank), -exponent)
		}
		t.upTo[i] = sum
		t.sizes[i] = sizeOf(i)
		t.segments[i] = segment(fileName(i), t.sizes[i])
	}
	for i := range t.upTo {
		t.upTo[i] /= sum
	}
	return t
}

// sizeOf spreads the sizes over the popularities without chance: steps of the golden ratio. The
// most popular file has the mean size.
func sizeOf(i int) int64 {
	span := math.Log(mostSize / leastSize)
	_, at := math.Modf(math.Log(meanSize/leastSize)/span + float64(i)*(math.Phi-1))
	return int64(leastSize * math.Exp(at*span))
}

// draw gives the next file that is asked for.
func (t *traffic) draw(r *rand.Rand) int32 {
	i, _ := slices.BinarySearch(t.upTo, r.Float64())
	return int32(min(i, len(t.upTo)-1))
}

// nameLength is the length of a file id in bytes.
const nameLength = 59

// fileName is the id of a file; its digits are as good for a hash as those of FastDFS.
func fileName(i int) string {
	b := []byte("group1/M00/00/00/wKgABF5xyzmAAAAAAAAAAAAAAAAAAAAAAAAAAA.jpg")
	digits := strconv.Itoa(i)
	copy(b[len(b)-4-len(digits):], digits)
	return string(b)
}
