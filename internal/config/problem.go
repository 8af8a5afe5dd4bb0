package config

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity is Error for a problem that makes a configuration unusable, else Warning.
type Severity int

// The severities.
const (
	Warning Severity = iota
	Error
)

// String is "warning" or "error".
func (s Severity) String() string {
	if s == Error {
		return "error"
	}
	return "warning"
}

// MarshalText makes it "warning" or "error" in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Problem is a fault of a configuration, found by Load or Check.
type Problem struct {
	File     string   `json:"file"`           // as given to Load, or as included
	Line     int      `json:"line,omitempty"` // from 1; 0 = the file as a whole, or a key left at its default
	Severity Severity `json:"severity"`
	Key      string   `json:"key,omitempty"` // section.key, or the key alone in the global section; may be empty
	Text     string   `json:"text"`          // the fault
	Fix      string   `json:"fix,omitempty"` // the remedy
}

// Place is "file:line", or the file alone.
func (p Problem) Place() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// String is "file:line: severity: text; fix".
func (p Problem) String() string {
	text := fmt.Sprintf("%s: %s: %s", p.Place(), p.Severity, p.Text)
	if p.Fix != "" {
		text += "; " + p.Fix
	}
	return text
}

// position is a line of a file.
type position struct {
	file string
	line int // 0 = the file as a whole
}

// maxProblems bounds the list for a file that is no configuration at all.
const maxProblems = 200

// report collects problems.
type report struct {
	problems []Problem
	failed   bool // an error was added
}

func (r *report) add(severity Severity, at position, key, text, fix string) {
	r.failed = r.failed || severity == Error
	if len(r.problems) > maxProblems {
		return
	}
	p := Problem{File: at.file, Line: at.line, Severity: severity, Key: key, Text: text, Fix: fix}
	if len(r.problems) == maxProblems {
		p = Problem{File: at.file, Severity: severity,
			Text: fmt.Sprintf("more than %d problems, the rest is left out", maxProblems),
			Fix:  "make sure that this is the right file, and correct the problems above first"}
	}
	r.problems = append(r.problems, p)
}

func (r *report) errorf(at position, key, fix, format string, args ...any) {
	r.add(Error, at, key, fmt.Sprintf(format, args...), fix)
}

func (r *report) warnf(at position, key, fix, format string, args ...any) {
	r.add(Warning, at, key, fmt.Sprintf(format, args...), fix)
}

// sorted returns the problems in the order of files and lines.
func (r *report) sorted(files []string) []Problem {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(slices.Index(files, a.File)-slices.Index(files, b.File), a.Line-b.Line)
	})
	return r.problems
}
