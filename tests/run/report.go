package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64 // in seconds
}

// report prints the results of the packages and collects those of all steps.
type report struct {
	out                     io.Writer
	passed, broken, skipped int                 // tests
	reasons                 map[string]int      // why tests were skipped
	output                  map[string][]string // of packages and tests that have not passed, by package and test
	builds                  []string            // output of the compiler
	failing                 map[string][]string // tests that failed, by package
	repeat                  []string            // commands that repeat what failed
}

// newReport returns an empty report that prints to out.
func newReport(out io.Writer) *report {
	return &report{out: out, reasons: map[string]int{}, output: map[string][]string{}, failing: map[string][]string{}}
}

// add reads one event.
func (r *report) add(s step, line []byte) {
	var e event
	if json.Unmarshal(line, &e) != nil { // of a program that writes to the output of its test
		return
	}
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output":
		r.output[key] = append(r.output[key], e.Output)
		return
	case "build-output":
		r.builds = append(r.builds, e.Output)
		return
	case "pass", "fail", "skip":
	default:
		return
	}
	if e.Test == "" {
		r.endPackage(s, e)
	} else {
		r.endTest(s, e)
	}
	if e.Action != "fail" {
		delete(r.output, key)
	}
}

// endTest counts a test that ended. Subtests that passed or failed count with their test.
func (r *report) endTest(s step, e event) {
	sub := strings.Contains(e.Test, "/")
	switch e.Action {
	case "fail":
		r.failing[e.Package] = append(r.failing[e.Package], e.Test)
		if !sub {
			r.broken++
		}
	case "pass":
		if !sub {
			r.passed++
		}
	case "skip":
		r.skipped++
		r.reasons[reason(r.output[e.Package+" "+e.Test])+" ("+s.relative(e.Package)+")"]++
	}
}

// place begins a line of a log of package testing.
var place = regexp.MustCompile(`^\s+\S+\.go:\d+: `)

// reason returns why a test was skipped: its last line of output that is no status.
func reason(output []string) string {
	why := ""
	for _, line := range output {
		if place.MatchString(line) {
			why = strings.TrimSpace(place.ReplaceAllString(line, ""))
		}
	}
	return cmp.Or(why, "no reason given")
}

// endPackage prints the line of a package, and what failed in it.
func (r *report) endPackage(s step, e event) {
	if e.Action == "skip" { // no tests
		return
	}
	word := "ok  "
	if e.Action == "fail" {
		word = "FAIL"
	}
	fmt.Fprintf(r.out, "%s %7.1fs  %s\n", word, e.Elapsed, strings.TrimPrefix(e.Package, module+"/"))
	if e.Action != "fail" {
		return
	}
	fmt.Fprint(r.out, strings.Join(r.left(e.Package), ""))
	failing := append(r.failing[e.Package], r.unfinished(e.Package)...)
	if len(failing) == 0 { // it does not build, ended by itself, leaks or took too long
		r.broken++
		r.repeat = append(r.repeat, s.command("", e.Package))
		return
	}
	for _, test := range failing {
		leaf := !slices.ContainsFunc(failing, func(t string) bool { return strings.HasPrefix(t, test+"/") })
		if leaf {
			r.repeat = append(r.repeat, s.command(pattern(test), e.Package))
		}
	}
}

// unfinished returns the tests of a package that ended with it: one panicked, or all took too long.
func (r *report) unfinished(path string) (tests []string) {
	for _, key := range slices.Sorted(maps.Keys(r.output)) {
		test, ofPackage := strings.CutPrefix(key, path+" ")
		if !ofPackage || test == "" || slices.Contains(r.failing[path], test) {
			continue
		}
		tests = append(tests, test)
		if !strings.Contains(test, "/") {
			r.broken++
		}
	}
	return tests
}

// left returns the output of the compiler, and that of a package and its tests that have not
// passed.
func (r *report) left(path string) (lines []string) {
	lines, r.builds = r.builds, nil
	for _, key := range slices.Sorted(maps.Keys(r.output)) {
		if strings.HasPrefix(key, path+" ") {
			lines = append(lines, r.output[key]...)
		}
	}
	return lines
}

// pattern returns the value of -run for one test or subtest.
func pattern(test string) string {
	parts := strings.Split(test, "/")
	for i, p := range parts {
		parts[i] = "^" + strings.ReplaceAll(regexp.QuoteMeta(p), "'", ".") + "$" // the shell quotes it
	}
	return strings.Join(parts, "/")
}

// summarize prints the reasons of skipped tests, the commands that repeat what failed, and the
// numbers.
func (r *report) summarize(took time.Duration) {
	fmt.Fprintln(r.out)
	for _, why := range slices.Sorted(maps.Keys(r.reasons)) {
		fmt.Fprintf(r.out, "skipped %d: %s\n", r.reasons[why], why)
	}
	for _, command := range r.repeat {
		fmt.Fprintf(r.out, "repeat: %s\n", command)
	}
	fmt.Fprintf(r.out, "%.0f seconds\n", took.Seconds())
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.broken, r.skipped)
}
