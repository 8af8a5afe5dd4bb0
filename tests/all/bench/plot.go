package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Size of a plot, and of its margins.
const (
	plotWidth, plotHeight = 440, 220
	plotLeft, plotRight   = 52, 12
	plotTop, plotBottom   = 30, 40
)

// plotColours are the colours of the two sides.
var plotColours = [2]string{"#1b6ca8", "#c8553d"}

// plot draws the figures of the sides over the quantity. Both axes are linear, so a cost that
// grows linearly is a straight line.
func (r *grown) plot() string {
	top := niceTop(slices.Max(slices.Concat(r.figures...)))
	last := r.quantities[len(r.quantities)-1]
	x := func(n int) float64 {
		return plotLeft + float64(n)/float64(last)*(plotWidth-plotLeft-plotRight)
	}
	y := func(f float64) float64 {
		return plotHeight - plotBottom - max(0, f)/top*(plotHeight-plotTop-plotBottom)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="11">`+"\n"+`<rect width="%[1]d" height="%[2]d" fill="#ffffff"/>`+"\n",
		plotWidth, plotHeight)
	for i, side := range r.sides {
		fmt.Fprintf(&b, `<text x="%d" y="16" fill="%s">&#9644; %s</text>`+"\n", plotLeft+i*110, plotColours[i],
			side.name)
	}
	for i := range 5 {
		f := top * float64(i) / 4
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#dddddd"/>`, plotLeft, y(f), plotWidth-plotRight)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotLeft-6, y(f)+4,
			strconv.FormatFloat(f, 'g', 3, 64))
	}
	for _, n := range r.quantities[2:] { // the first ones are too close to each other
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(n), plotHeight-plotBottom+15,
			n)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotWidth-plotRight, plotHeight-6,
		r.quantity)
	for i := range r.sides {
		fmt.Fprintf(&b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, plotColours[i])
		for j, n := range r.quantities {
			fmt.Fprintf(&b, "%.1f,%.1f ", x(n), y(r.figures[i][j]))
		}
		b.WriteString(`"/>` + "\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// niceTop returns the upper edge of a plot: 1, 2 or 5 times a power of ten.
func niceTop(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{1, 2, 5} {
		if most <= f*power {
			return f * power
		}
	}
	return 10 * power
}
