package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/tests/lab"
)

// tableHead returns the head of the table, with the names of the sides.
func tableHead(sides [2]side) string {
	return fmt.Sprintf("| served | processor time, us: %s / %s | ratio (spread) | requests/s, ratio (spread) | "+
		"p99, ms |\n| --- | ---: | ---: | ---: | ---: |", sides[0].name, sides[1].name)
}

// row returns the row of the table. Figures are medians of the runs; pairs are the two sides.
func (r *result) row() string {
	pair := func(figure func(s sample) float64, unit time.Duration) string {
		return fmt.Sprintf("%s / %s", short(r.a.of(figure)/float64(unit)), short(r.b.of(figure)/float64(unit)))
	}
	cpu, rate := r.ratioOf(cpuOf), r.ratioOf(rateOf)
	return fmt.Sprintf("| %s | %s | **%.2f** (%s) | %.2f (%s) | %s |", r.c.name, pair(cpuOf, time.Microsecond),
		cpu.middle, cpu.spread(), rate.middle, rate.spread(), pair(p99Of, time.Millisecond))
}

func (q ratio) spread() string { return fmt.Sprintf("%.2f-%.2f", q.least, q.most) }

// short formats a figure with three digits and without an exponent, and an unknown figure as "-".
func short(f float64) string {
	switch {
	case f == 0:
		return "-"
	case f >= 100:
		return fmt.Sprintf("%.0f", f)
	case f >= 10:
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.2f", f)
}

// table returns the rows, those first in which the first side takes most of the processor time of
// the second one. The list below them has the cases in which the sides get different requests.
func table(sides [2]side, results []*result) string {
	var b strings.Builder
	b.WriteString(tableHead(sides) + "\n")
	rows := slices.Clone(results)
	slices.SortStableFunc(rows, func(r, s *result) int {
		return cmp.Compare(s.ratioOf(cpuOf).middle, r.ratioOf(cpuOf).middle)
	})
	var notes []string
	cases := map[string][]string{} // by note
	for _, r := range rows {
		b.WriteString(r.row() + "\n")
		if note := r.c.note; note != "" {
			if cases[note] == nil {
				notes = append(notes, note)
			}
			cases[note] = append(cases[note], r.c.name)
		}
	}
	if len(notes) > 0 {
		b.WriteString("\nWhere the sides are not asked for the same:\n\n")
	}
	for _, note := range notes {
		b.WriteString(wrapped("- "+strings.Join(cases[note], ", ")+": "+note+".") + "\n")
	}
	return b.String()
}

// textWidth is the width of lines in documents.
const textWidth = 100

// wrapped breaks a paragraph, or an item of a list, into lines.
func wrapped(text string) string {
	indent := ""
	if strings.HasPrefix(text, "- ") {
		indent = "  "
	}
	var b strings.Builder
	column := 0
	for i, word := range strings.Fields(text) {
		switch {
		case i == 0:
		case column+1+len(word) > textWidth:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += len(word)
	}
	return b.String()
}

// lines returns the results in the format of Go benchmarks, one line a run, for benchstat.
func lines(results []*result, of func(r *result) samples) string {
	var b strings.Builder
	for _, r := range results {
		name := strings.NewReplacer(" ", "_", ",", "").Replace(r.c.name)
		for _, s := range of(r) {
			fmt.Fprintf(&b,
				"BenchmarkServe/%s 1 %d cpu-ns/op %.0f req/s %d p50-ns %d p99-ns %d p99.9-ns %d rss-bytes\n",
				name, s.cpu.Nanoseconds(), s.rate, s.p50.Nanoseconds(), s.p99.Nanoseconds(), s.p999.Nanoseconds(),
				s.rss)
		}
	}
	return b.String()
}

// machine describes the machine, the programs and the settings of the measurement.
func machine(s *settings) string {
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return wrapped(fmt.Sprintf("%s, %d CPUs (%s), Linux %s, loopback. %s, %s, %s. `wrk -t1 -c%d`, %d runs of %v "+
		"for each side in turn.", time.Now().Format(time.DateOnly), runtime.NumCPU(), cpuModel(),
		bytes.TrimSpace(kernel), runtime.Version(), firstLine("nginx", "-v"), firstLine("wrk", "-v"),
		s.connections, s.rounds, s.time)) + "\n"
}

func cpuModel() string {
	text, _ := os.ReadFile("/proc/cpuinfo") // a part of it is enough
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}

// firstLine returns the first line of the version text of a program.
func firstLine(name, flag string) string {
	path, err := lab.LookUp(name)
	if err != nil {
		return err.Error()
	}
	out, _ := exec.Command(path, flag).CombinedOutput() // wrk prints its version and ends with an error
	line, _, _ := strings.Cut(string(out), "\n")
	line, _, _ = strings.Cut(line, " Copyright")
	return strings.TrimPrefix(strings.TrimSpace(line), "nginx version: ")
}
