package soak

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Sizes of the plot in pixels.
const (
	plotWidth   = 900
	panelHeight = 130
	plotLeft    = 70
	plotRight   = 20
	panelGap    = 34
)

// lineColors are those of the gateways; they differ in brightness too.
var lineColors = []string{"#1b6ca8", "#c8553d", "#3a7d44"}

// svg draws a panel for each quantity, with a line for each gateway.
func (s *sampler) svg() []byte {
	var b bytes.Buffer
	height := len(quantities)*(panelHeight+panelGap) + 50
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `, plotWidth, height)
	b.WriteString(`font-family="sans-serif" font-size="12">` + "\n")
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, height)
	for i, g := range s.gateways {
		fmt.Fprintf(&b, `<text x="%d" y="18" fill="%s">&#9644; %s</text>`+"\n",
			plotLeft+i*160, lineColors[i%len(lineColors)], g.name)
	}
	for q := range quantities {
		s.panel(&b, q, 34+q*(panelHeight+panelGap))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// panel draws one quantity with its top edge at y.
func (s *sampler) panel(b io.Writer, q, y int) {
	top := 0.0
	for i := range s.gateways {
		top = max(top, slices.Max(append(slices.Clone(s.values[i][q]), 0)))
	}
	if top *= 1.1; top == 0 {
		top = 1
	}
	width := float64(plotWidth - plotLeft - plotRight)
	lasts := time.Second
	if len(s.at) > 0 {
		lasts = max(lasts, s.at[len(s.at)-1])
	}
	what := quantities[q]
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s %s</text>`+"\n", plotLeft, y+12, what.name, what.unit)
	for step := range 5 {
		value := top * float64(step) / 4
		at := y + 18 + panelHeight - panelHeight*step/4
		fmt.Fprintf(b, `<path d="M%d %dH%d" stroke="#dddddd"/><text x="%d" y="%d" text-anchor="end">%.4g</text>`+"\n",
			plotLeft, at, plotWidth-plotRight, plotLeft-6, at+4, value)
		x := plotLeft + int(width)*step/4
		fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle" fill="#555555">%s</text>`+"\n", x, y+18+panelHeight+14,
			(lasts * time.Duration(step) / 4).Round(time.Second))
	}
	for i := range s.gateways {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, lineColors[i%len(lineColors)])
		for n, v := range s.values[i][q] {
			fmt.Fprintf(b, "%.1f,%.1f ", plotLeft+width*s.at[n].Seconds()/lasts.Seconds(),
				float64(y+18+panelHeight)-panelHeight*v/top)
		}
		fmt.Fprintln(b, `"/>`)
	}
}

// TestPlot: the drawing is XML with a line for each gateway and quantity.
func TestPlot(t *testing.T) {
	s := newSampler([]*node{{name: "a"}, {name: "b"}})
	s.at = []time.Duration{time.Second, 2 * time.Second}
	for i := range s.gateways {
		for q := range quantities {
			s.values[i][q] = []float64{1, 2}
		}
	}
	lines := 0
	for d := xml.NewDecoder(bytes.NewReader(s.svg())); ; {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok && e.Name.Local == "polyline" {
			lines++
		}
	}
	require.Equal(t, 2*len(quantities), lines)
}
