package main

import (
	"bytes"
	"fmt"
	"math"
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
	a, b := sides[0].name, sides[1].name
	return fmt.Sprintf(
		"| served | processor time: %s | %s | **ratio** (spread) | requests/s: %[1]s | %[2]s | ratio (spread) | p50, "+
			"ms | p99, ms | p99.9, ms | resident, MB |\n"+
			"| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |", a, b)
}

// row returns the row of the table. Figures are medians of the runs; pairs are the two sides.
func (r *result) row() string {
	pair := func(figure func(s sample) float64, unit float64) string {
		return fmt.Sprintf("%s / %s", short(r.a.of(figure)/unit), short(r.b.of(figure)/unit))
	}
	const ms = float64(time.Millisecond)
	return fmt.Sprintf("| %s | %s | %s | **%.2f** (%s) | %.0f | %.0f | %.2f (%s) | %s | %s | %s | %s |", r.c.name,
		microseconds(r.a.of(cpuOf)), microseconds(r.b.of(cpuOf)), r.ratioOf(cpuOf).middle, r.ratioOf(cpuOf).spread(),
		r.a.of(rateOf), r.b.of(rateOf), r.ratioOf(rateOf).middle, r.ratioOf(rateOf).spread(),
		pair(p50Of, ms), pair(p99Of, ms), pair(p999Of, ms), pair(rssOf, 1e6))
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

func microseconds(ns float64) string { return short(ns/1000) + " us" }

// table returns the rows, and below them lists of the cases in which the sides get different
// requests and of those in which the second side is ahead.
func table(sides [2]side, results []*result) string {
	var b, behind, notes strings.Builder
	b.WriteString(tableHead(sides) + "\n")
	for _, r := range results {
		b.WriteString(r.row() + "\n")
		if q := r.ratioOf(cpuOf); q.middle > 1 {
			fmt.Fprintf(&behind, "- %s: %.2f of its processor time (%s)\n", r.c.name, q.middle, q.spread())
		}
		if q := r.ratioOf(rateOf); q.middle < 1 {
			fmt.Fprintf(&behind, "- %s: %.2f of its requests per second (%s)\n", r.c.name, q.middle, q.spread())
		}
		if q := r.ratioOf(p999Of); q.middle > 1 && !math.IsInf(q.middle, 0) {
			fmt.Fprintf(&behind, "- %s: %.2f of its p99.9 (%s)\n", r.c.name, q.middle, q.spread())
		}
		if r.c.note != "" {
			notes.WriteString(wrapped("- "+r.c.name+": "+r.c.note+".") + "\n")
		}
	}
	if notes.Len() > 0 {
		b.WriteString("\nWhere the sides are not asked for the same:\n\n" + notes.String())
	}
	if behind.Len() == 0 {
		return b.String() + "\nThe other side is ahead nowhere.\n"
	}
	return b.String() + "\nWhere " + sides[1].name + " is ahead (" + sides[0].name + " takes, or gives):\n\n" +
		behind.String()
}

// summaryRows are the cases of the summary.
var summaryRows = []string{"4 KiB file", "4 KiB trunk slot", "64 KiB file", "1 MiB file", "64 KiB range of 100 MiB",
	"304 (Not Modified)", "404 (Not Found)", "4 KiB file, a connection each", "64 KiB file by TLS",
	"64 KiB of another host, cold"}

// summary returns the ratios of ten cases, and sentences that name the cases in which the first
// side, the second side or neither is ahead in all pairs of runs.
func summary(sides [2]side, results []*result) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| served | processor time, %s / %s | requests per second |\n| --- | ---: | ---: |\n",
		sides[0].name, sides[1].name)
	var ahead, equal, behind []string
	for _, r := range results {
		if !slices.Contains(summaryRows, r.c.name) {
			continue
		}
		cpu, rate := r.ratioOf(cpuOf), r.ratioOf(rateOf)
		fmt.Fprintf(&b, "| %s | **%.2f** (%s) | %.2f (%s) |\n", r.c.name, cpu.middle, cpu.spread(), rate.middle,
			rate.spread())
		switch {
		case cpu.most < 1:
			ahead = append(ahead, r.c.name)
		case cpu.least > 1:
			behind = append(behind, r.c.name)
		default:
			equal = append(equal, r.c.name)
		}
	}
	for _, group := range []struct {
		text  string
		cases []string
	}{
		{"The " + sides[0].name + " takes less processor time in every pair of runs", ahead},
		{"It takes more in every pair", behind},
		{"Neither is ahead in all pairs", equal},
	} {
		if len(group.cases) > 0 {
			b.WriteString("\n" + wrapped(group.text+": "+strings.Join(group.cases, "; ")+".") + "\n")
		}
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
	network := "loopback"
	if s.link {
		network = "wrk in a network namespace behind a veth pair"
	}
	return wrapped(fmt.Sprintf("%s, %d CPUs (%s), Linux %s, %s. %s, %s, %s. `wrk -t1 -c%d`, %d runs of %v "+
		"for each side in turn.", time.Now().Format(time.DateOnly), runtime.NumCPU(), cpuModel(),
		bytes.TrimSpace(kernel), network, runtime.Version(), firstLine("nginx", "-v"), firstLine("wrk", "-v"),
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
