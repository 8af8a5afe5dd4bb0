package picture

import (
	"context"
	"math"
)

// plane is a part of the samples of a picture: one channel, or four that are interleaved.
type plane struct {
	width, height, channels int
	// row returns the samples of a row; scratch has room for them.
	row func(y int, scratch []uint8) []uint8
}

// A plane is scaled in one pass over its rows, so that no copy of the whole plane is needed: boxes
// of n x n samples are averaged while the rest of the reduction is at least by 2, which costs an
// addition for each sample, and their averages are resampled by a cubic filter.

// taps are the weights of the samples around one result.
type taps struct {
	first   int
	weights []float32
}

// support is the radius of the filter, in samples of the result.
const support = 2

// catmullRom is a cubic filter that keeps edges sharp.
func catmullRom(x float64) float64 {
	x = math.Abs(x)
	switch {
	case x < 1:
		return (1.5*x-2.5)*x*x + 1
	case x < 2:
		return ((-0.5*x+2.5)*x-4)*x + 2
	}
	return 0
}

// newTaps returns the weights for n results from the samples [from, to) of count samples.
func newTaps(n, count int, from, to float64) []taps {
	ratio := (to - from) / float64(n)
	wide := max(ratio, 1)
	list := make([]taps, n)
	for i := range list {
		center := from + (float64(i)+0.5)*ratio
		first := min(max(0, int(math.Ceil(center-0.5-support*wide))), count-1)
		last := max(min(count-1, int(math.Floor(center-0.5+support*wide))), first)
		t := taps{first: first, weights: make([]float32, last-first+1)}
		sum := 0.0
		for k := range t.weights {
			sum += catmullRom((float64(first+k) + 0.5 - center) / wide)
		}
		if sum == 0 {
			sum, t.weights = 1, []float32{1}
		} else {
			for k := range t.weights {
				t.weights[k] = float32(catmullRom((float64(first+k)+0.5-center)/wide) / sum)
			}
		}
		list[i] = t
	}
	return list
}

// boxOf returns the side of the boxes for a reduction.
func boxOf(from, to float64, n int) int {
	return min(max(1, int((to-from)/float64(n)/support)), 256) // sums of 256 samples have 16 bits
}

// scaler scales one plane.
type scaler struct {
	*plane
	boxX, boxY   int
	left, boxes  int      // first sample of the first box, number of boxes in a row
	sums         []uint16 // of the columns, over the rows of the boxes
	averages     []float32
	line         []float32 // row of boxes, scaled in the direction of x
	across, down []taps
}

// resample scales a part of the plane. It stores sample c of pixel i at out[i*step+c].
func (p *plane) resample(ctx context.Context, part area, out []uint8, width, height, step int) error {
	s := &scaler{plane: p, boxX: boxOf(part.x0, part.x1, width), boxY: boxOf(part.y0, part.y1, height)}
	s.left = min(max(0, int(part.x0)), p.width-1)
	top := min(max(0, int(part.y0)), p.height-1)
	right := min(max(s.left+1, int(math.Ceil(part.x1))), p.width)
	bottom := min(max(top+1, int(math.Ceil(part.y1))), p.height)
	s.boxes = (right - s.left + s.boxX - 1) / s.boxX
	rows := (bottom - top + s.boxY - 1) / s.boxY
	inBoxes := func(at float64, first, box int) float64 { return (at - float64(first)) / float64(box) }
	s.across = newTaps(width, s.boxes, inBoxes(part.x0, s.left, s.boxX), inBoxes(part.x1, s.left, s.boxX))
	s.down = newTaps(height, rows, inBoxes(part.y0, top, s.boxY), inBoxes(part.y1, top, s.boxY))
	s.sums = make([]uint16, (right-s.left)*p.channels)
	s.averages = make([]float32, s.boxes*p.channels)
	s.line = make([]float32, width*p.channels)
	scratch := make([]uint8, p.width*p.channels)
	open, begun, done := map[int][]float32{}, 0, 0
	var free [][]float32
	for y := range rows {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		s.readBoxes(top+y*s.boxY, bottom, scratch)
		s.scaleLine()
		for ; begun < height && s.down[begun].first <= y; begun++ {
			if len(free) == 0 {
				free = append(free, make([]float32, len(s.line)))
			}
			open[begun], free = free[len(free)-1], free[:len(free)-1]
			clear(open[begun])
		}
		for i := done; i < begun; i++ {
			t := &s.down[i]
			if k := y - t.first; k < len(t.weights) {
				addScaled(open[i], s.line, t.weights[k])
			}
		}
		for ; done < begun && s.down[done].first+len(s.down[done].weights) <= y+1; done++ {
			store(out[done*width*step:], open[done], p.channels, step)
			free = append(free, open[done])
			delete(open, done)
		}
	}
	return nil
}

// readBoxes averages the samples of a row of boxes.
func (s *scaler) readBoxes(y, bottom int, scratch []uint8) {
	n := min(s.boxY, bottom-y)
	clear(s.sums)
	first := s.left * s.channels
	for i := range n {
		row := s.row(y+i, scratch)[first : first+len(s.sums)]
		sums := s.sums[:len(row)]
		for x, v := range row {
			sums[x] += uint16(v)
		}
	}
	if s.boxX == 1 {
		scale := 1 / float32(n)
		for i, v := range s.sums {
			s.averages[i] = float32(v) * scale
		}
		return
	}
	for box := range s.boxes {
		from := box * s.boxX * s.channels
		group := s.sums[from:min(from+s.boxX*s.channels, len(s.sums))]
		scale := float32(s.channels) / float32(n*len(group))
		if s.channels == 1 {
			sum := uint32(0)
			for _, v := range group {
				sum += uint32(v)
			}
			s.averages[box] = float32(sum) * scale
			continue
		}
		var c0, c1, c2, c3 uint32
		for ; len(group) >= 4; group = group[4:] {
			c0, c1, c2, c3 = c0+uint32(group[0]), c1+uint32(group[1]), c2+uint32(group[2]), c3+uint32(group[3])
		}
		a := s.averages[4*box : 4*box+4 : 4*box+4]
		a[0], a[1], a[2], a[3] = float32(c0)*scale, float32(c1)*scale, float32(c2)*scale, float32(c3)*scale
	}
}

// scaleLine scales the averages in the direction of x.
func (s *scaler) scaleLine() {
	for i := range s.across {
		t := &s.across[i]
		if s.channels == 1 {
			from, sum := s.averages[t.first:][:len(t.weights)], float32(0)
			for k, w := range t.weights {
				sum += w * from[k]
			}
			s.line[i] = sum
			continue
		}
		from := s.averages[4*t.first:]
		var c0, c1, c2, c3 float32
		for _, w := range t.weights {
			c0, c1, c2, c3 = c0+w*from[0], c1+w*from[1], c2+w*from[2], c3+w*from[3]
			from = from[4:]
		}
		line := s.line[4*i : 4*i+4 : 4*i+4]
		line[0], line[1], line[2], line[3] = c0, c1, c2, c3
	}
}

func addScaled(to, from []float32, weight float32) {
	to = to[:len(from)]
	for i, v := range from {
		to[i] += weight * v
	}
}

// store rounds the samples of a row.
func store(out []uint8, row []float32, channels, step int) {
	for i := 0; i < len(row); i += channels {
		for c := range channels {
			out[i/channels*step+c] = uint8(min(max(row[i+c]+0.5, 0), 255))
		}
	}
}
