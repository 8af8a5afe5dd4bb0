package status

import (
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"fastdfs-gateway/internal/i18n"
)

// Size of a plot in the units of its SVG. It is stretched to the width of the page.
const (
	plotWidth  = 900 // one for each second of Span
	plotHeight = 100
)

// series is a line of a plot.
type series struct {
	class string // of CSS, to distinguish lines
	name  string
	value func(Point) float64
}

// Plot is a small plot of the history with its name and its current values.
type Plot struct {
	ID, Title string
	Now       []Reading
	Top       string // value of the upper edge
	SVG       template.HTML
	Note      string // the quantity in the plot
}

// Reading is the value of one series.
type Reading struct{ Class, Name, Text string }

// plotOf describes one plot.
type plotOf struct {
	id          string
	title, note i18n.Text
	format      func(float64) string
	series      []series
	top         func(most float64) float64 // value of the upper edge
}

var plots = []plotOf{
	{"requests", i18n.Plain("Requests"), i18n.Plain("a second"), number,
		[]series{{"a", "", func(p Point) float64 { return p.Requests }}}, niceTop(1)},
	{"bytes", i18n.Plain("Traffic"), i18n.Plain("to clients, a second"), size,
		[]series{{"a", "", func(p Point) float64 { return p.Bytes }}}, niceBytes},
	{"hits", i18n.Plain("Hit ratio"), i18n.Plain("downloads not from a storage"), percent,
		[]series{{"a", "", func(p Point) float64 { return p.HitRatio }}}, func(float64) float64 { return 1 }},
	{"errors", i18n.Plain("Errors"), i18n.Plain("responses a second"), number, []series{
		{"bad", "5xx", func(p Point) float64 { return p.Failed }},
		{"b", "4xx", func(p Point) float64 { return p.Rejected }}}, niceTop(1)},
	{"firstbyte", i18n.Plain("First byte"), i18n.Plain("time until a response begins"), seconds, []series{
		{"a", "p50", func(p Point) float64 { return p.P50 }},
		{"b", "p99", func(p Point) float64 { return p.P99 }}}, niceTop(.001)},
	{"connections", i18n.Plain("Connections"), i18n.Plain("open"), number, []series{{"a", "",
		func(p Point) float64 { return p.Connections }}}, niceTop(10)},
}

// Plots draws the plots of a history that ends at a time, with their texts in a language.
func (t Traffic) Plots(end time.Time, lang i18n.Language) []Plot {
	list := make([]Plot, 0, len(plots))
	for _, o := range plots {
		list = append(list, t.plot(o, end, lang))
	}
	return list
}

func (t Traffic) plot(o plotOf, end time.Time, lang i18n.Language) Plot {
	p := Plot{ID: o.id, Title: o.title.In(lang), Note: o.note.In(lang)}
	most := 0.0
	for _, s := range o.series {
		now := math.NaN()
		if !t.Now.Begin.IsZero() {
			now = s.value(t.Now)
		}
		p.Now = append(p.Now, Reading{s.class, s.name, o.format(now)})
		for _, point := range t.Points {
			if v := s.value(point); v > most { // not NaN
				most = v
			}
		}
	}
	top := o.top(most)
	p.Top = o.format(top)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" preserveAspectRatio="none" role="img" aria-label="%s">`,
		plotWidth, plotHeight, template.HTMLEscapeString(t.label(o, most).In(lang)))
	for x := plotWidth / 3; x < plotWidth; x += plotWidth / 3 {
		fmt.Fprintf(&b, `<line class="grid" x1="%d" x2="%d" y1="0" y2="%d"/>`, x, x, plotHeight)
	}
	fmt.Fprintf(&b, `<line class="grid" x1="0" x2="%d" y1="%d" y2="%d"/>`, plotWidth, plotHeight/2, plotHeight/2)
	for i := len(o.series) - 1; i >= 0; i-- { // the first one above the others
		drawSeries(&b, t.Points, o.series[i], end, top, len(o.series) == 1)
	}
	b.WriteString("</svg>")
	p.SVG = template.HTML(b.String()) // numbers, constants, and a label that is escaped
	return p
}

// label returns a description of a plot in words, for clients that do not show it.
func (t Traffic) label(o plotOf, most float64) i18n.Text {
	if len(t.Points) == 0 {
		return i18n.Sprintf("%s, %s, of the last 15 minutes: nothing yet", o.title, o.note)
	}
	var now []string
	for _, s := range o.series {
		now = append(now, strings.TrimSpace(s.name+" "+o.format(s.value(t.Now))))
	}
	return i18n.Sprintf("%s, %s, of the last 15 minutes: %s now, %s at most", o.title, o.note,
		strings.Join(now, ", "), o.format(most))
}

// drawSeries draws a line, broken at unknown values, and the area below it.
func drawSeries(b *strings.Builder, points []Point, s series, end time.Time, top float64, area bool) {
	x := func(at time.Time) float64 {
		return max(plotWidth-end.Sub(at).Seconds()*plotWidth/Span.Seconds(), 0)
	}
	var run []string // coordinates of consecutive known points
	first, last := 0.0, 0.0
	flush := func() {
		if len(run) == 0 {
			return
		}
		line := strings.Join(run, " ")
		if area {
			fmt.Fprintf(b, `<polygon class="area %s" points="%.1f,%d %s %.1f,%d"/>`, s.class, first, plotHeight, line,
				last, plotHeight)
		}
		fmt.Fprintf(b, `<polyline class="line %s" points="%s"/>`, s.class, line)
		run = run[:0]
	}
	for _, p := range points {
		v := s.value(p)
		if math.IsNaN(v) {
			flush()
			continue
		}
		y := plotHeight * (1 - min(v/top, 1))
		if len(run) == 0 {
			first = x(p.Begin)
			run = append(run, fmt.Sprintf("%.1f,%.1f", first, y))
		}
		last = x(p.End)
		run = append(run, fmt.Sprintf("%.1f,%.1f", last, y))
	}
	flush()
}

// niceTop returns a function for the upper edge of a plot: a round number that is at least the
// largest value, and at least low.
func niceTop(low float64) func(float64) float64 {
	return func(most float64) float64 {
		if most <= low {
			return low
		}
		power := math.Pow(10, math.Floor(math.Log10(most)))
		for _, step := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
			if most <= step*power {
				return step * power
			}
		}
		return 10 * power
	}
}

// niceBytes returns the upper edge of a plot of bytes, in units of 1024 bytes.
func niceBytes(most float64) float64 {
	unit := 1024.0
	for unit*1024 <= most {
		unit *= 1024
	}
	top := niceTop(1)(most / unit)
	if top > 500 {
		top = 1024
	}
	return unit * top
}
