package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

func (s scenario) copiesText() string {
	if s.copies == 0 {
		return "all"
	}
	return fmt.Sprint(s.copies)
}

func percent(part, of int) string { return fmt.Sprintf("%.1f %%", 100*share(part, of)) }

func share(part, of int) float64 { return float64(part) / float64(max(1, of)) }

// perSecond is how often a second something happens in the whole fleet that happens in so many of
// the requests.
func (s scenario) perSecond(part, of int) float64 {
	return share(part, of) * rate * float64(s.gateways)
}

// count prints three digits of a large number.
func count(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f >= 999_500:
		return fmt.Sprintf("%.2f M", f/1e6)
	case f >= 9_995:
		return fmt.Sprintf("%.1f k", f/1e3)
	case f >= 10:
		return fmt.Sprintf("%.0f", f)
	}
	return fmt.Sprintf("%.1f", f)
}

// sorted gives the results of one exponent, small fleets first.
func sorted(results []result, exponent float64) []result {
	scales := map[int]int{}
	for _, f := range fleets {
		scales[f.gateways] = f.scale
	}
	var chosen []result
	for _, r := range results {
		if r.exponent == exponent && r.scale == scales[r.gateways] {
			chosen = append(chosen, r)
		}
	}
	copies := func(r result) int { return (r.copies + 2) % 3 } // 1, 2, all
	slices.SortStableFunc(chosen, func(a, b result) int {
		return cmp.Or(cmp.Compare(a.gateways, b.gateways), cmp.Compare(copies(a), copies(b)),
			cmp.Compare(b.balancer, a.balancer))
	})
	return chosen
}

const hitsHead = "| gateways | copies | load balancer | own hits | fleet hits | bytes between gateways " +
	"| storage downloads/s | Redis commands/s |\n" +
	"| ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n"

// hitsTable has one table for each exponent.
func hitsTable(results []result) string {
	var b strings.Builder
	for _, exponent := range exponents {
		fmt.Fprintf(&b, "Zipf exponent %.1f:\n\n%s", exponent, hitsHead)
		for _, r := range sorted(results, exponent) {
			b.WriteString(r.hitsRow())
		}
		b.WriteString("\n")
	}
	return strings.TrimSpace(b.String())
}

func (r result) hitsRow() string {
	c := r.counts
	commands := 2*r.perSecond(c.leases, c.requests) + float64(r.gateways)
	return fmt.Sprintf("| %d | %s | %s | %s | %s | %.2f | %s | %s |\n", r.gateways, r.copiesText(), r.balancer,
		percent(c.own, c.requests), percent(c.requests-c.downloads, c.requests), float64(c.between)/float64(c.served),
		count(r.perSecond(c.downloads, c.requests)), count(commands))
}

const changesHead = "| gateways | die | owner changes | copies | load balancer | held by none " +
	"| before | after the deaths | of these still held | after they are back | after one more joins |\n" +
	"| ---: | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"

// changesTable tells of gateways that die, come back and join.
func changesTable(results []result) string {
	var b strings.Builder
	b.WriteString(changesHead)
	rows := sorted(results, exponents[0])
	for _, f := range fleets {
		for i := range 2 {
			for _, r := range rows {
				if r.gateways == f.gateways && i < len(r.changes) {
					b.WriteString(r.changesRow(r.changes[i]))
				}
			}
		}
	}
	return strings.TrimSpace(b.String())
}

func (r result) changesRow(c change) string {
	downloads := func(c counts) string { return count(r.perSecond(c.downloads, c.requests)) }
	joined := ""
	if c.joined.requests > 0 {
		joined = downloads(c.joined)
	}
	held := count(r.perSecond(c.after.held, c.after.requests))
	return fmt.Sprintf("| %d | %d | %.1f %% | %s | %s | %.1f %% | %s | %s | %s | %s | %s |\n", r.gateways, c.dead,
		100*c.moved, r.copiesText(), r.balancer, 100*c.lost, downloads(c.before), downloads(c.after), held,
		downloads(c.back), joined)
}

// scalesTable compares runs that differ in the scale alone.
func scalesTable(results []result) string {
	var b strings.Builder
	b.WriteString("| Zipf exponent | one stands for | own hits | fleet hits | bytes between gateways |\n" +
		"| ---: | ---: | ---: | ---: | ---: |\n")
	for _, exponent := range exponents {
		for _, r := range results {
			if r.gateways == 10 && r.copies == 1 && r.balancer == random && r.exponent == exponent {
				c := r.counts
				fmt.Fprintf(&b, "| %.1f | %d | %s | %s | %.3f |\n", exponent, r.scale, percent(c.own, c.requests),
					percent(c.requests-c.downloads, c.requests), float64(c.between)/float64(c.served))
			}
		}
	}
	return strings.TrimSpace(b.String())
}
