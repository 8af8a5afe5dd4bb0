package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"fastdfs-gateway/internal/i18n"
)

// Severity is Error for a problem that makes a configuration unusable, else Warning.
type Severity string

// The severities.
const (
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Problem is a fault of a configuration, found by Load or Check.
type Problem struct {
	File     string    `json:"file"`           // as given to Load, or as included
	Line     int       `json:"line,omitempty"` // from 1; 0 = the file as a whole, or a key left at its default
	Severity Severity  `json:"severity"`
	Key      string    `json:"key,omitempty"` // section.key, or the key alone in the global section; may be empty
	Text     i18n.Text `json:"text"`          // the fault
	Fix      i18n.Text `json:"fix,omitzero"`  // the remedy
}

// Place returns "file:line", or only the file for a problem without a line.
func (p Problem) Place() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// String returns "file:line: severity: text; fix" in English.
func (p Problem) String() string { return p.Message().String() }

// Message returns the text of String, which can be translated.
func (p Problem) Message() i18n.Text {
	severity := i18n.Plain(string(p.Severity))
	if p.Fix.IsZero() {
		return i18n.Sprintf("%s: %s: %s", p.Place(), severity, p.Text)
	}
	return i18n.Sprintf("%s: %s: %s; %s", p.Place(), severity, p.Text, p.Fix)
}

// JoinErrors returns one error for the problems that are errors; nil = none.
func JoinErrors(problems []Problem) error {
	var errs []error
	for _, p := range problems {
		if p.Severity == Error {
			errs = append(errs, i18n.Errorf("%s", p.Message()))
		}
	}
	return errors.Join(errs...)
}

// position is a line of a file.
type position struct {
	file string
	line int // 0 = the file as a whole
}

// maxProblems bounds the list of problems, for a file that is not a configuration.
const maxProblems = 200

// report collects the problems of a configuration.
type report struct {
	c        *Config // nil until all of its files have been read
	problems []Problem
	failed   bool // an error was added
	unread   bool // a file of the configuration was not read
}

func (r *report) addProblem(severity Severity, at position, key string, text, fix i18n.Text) {
	r.failed = r.failed || severity == Error
	if len(r.problems) > maxProblems {
		return
	}
	p := Problem{File: at.file, Line: at.line, Severity: severity, Key: key, Text: text, Fix: fix}
	if len(r.problems) == maxProblems {
		p = Problem{File: at.file, Severity: severity,
			Text: i18n.Sprintf("more than %d problems, the rest is left out", maxProblems),
			Fix:  i18n.Plain("make sure that this is the right file, and correct the problems above first")}
	}
	r.problems = append(r.problems, p)
}

// errorf adds an error. fix is a constant, or an i18n.Text.
func (r *report) errorf(at position, key string, fix any, format string, args ...any) {
	r.addProblem(Error, at, key, i18n.Sprintf(format, args...), i18n.Of(fix))
}

// warnf adds a warning.
func (r *report) warnf(at position, key string, fix any, format string, args ...any) {
	r.addProblem(Warning, at, key, i18n.Sprintf(format, args...), i18n.Of(fix))
}

// sorted returns the problems in the order of files and lines.
func (r *report) sorted(files []string) []Problem {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(slices.Index(files, a.File)-slices.Index(files, b.File), a.Line-b.Line)
	})
	return r.problems
}

// keyError adds an error of a key, at the line where it was written.
func (r *report) keyError(key string, fix any, format string, args ...any) {
	r.errorf(r.c.at(key), key, fix, format, args...)
}

// keyWarning adds a warning of a key, at the line where it was written.
func (r *report) keyWarning(key string, fix any, format string, args ...any) {
	r.warnf(r.c.at(key), key, fix, format, args...)
}
