package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/tools/compare"

	"github.com/spf13/cobra"
)

// difference is a difference between the responses for one path, in the form of -json.
type difference struct {
	Path string `json:"path"`
	compare.Difference
}

// comparison is the summary, in the form of -json.
type comparison struct {
	Complete   bool          `json:"complete"` // the whole list was compared
	Paths      int           `json:"paths"`
	Equal      int           `json:"equal"` // paths without a difference, or with known ones only
	Different  int           `json:"different"`
	Known      int           `json:"known"` // of the equal paths, those with known differences
	Repeated   int           `json:"repeated"`
	Unreadable int           `json:"unreadable"` // lines
	Sums       []compare.Sum `json:"sums,omitempty"`

	why  error // of the first unreadable line
	sums compare.Sums
}

// compareCommand sends the same requests to two servers and prints the differences.
func compareCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "compare [-sample N] [-rate N] [-ranges] [-timeout D] [-json] OLD_URL NEW_URL [FILE]",
		Short:       "send the same requests to two servers, from file ids or an access log, and print the differences",
		Example:     "gateway compare -ranges http://localhost:8888 http://localhost:8080 access.log",
		Args:        arguments(2, 3),
		Annotations: exit1("responses differ, or a server does not respond"),
	}
	asJSON := jsonFlag(cmd)
	sample := cmd.Flags().Int("sample", 0, "compare `N` paths of the list, chosen at random")
	perSecond := cmd.Flags().Float64("rate", 0, "send each server at most `N` requests a second; 0 is no limit")
	ranges := cmd.Flags().Bool("ranges", false, "ask also by HEAD, for a range, and with If-Modified-Since")
	timeout := durationFlag(cmd, "timeout", 30*time.Second, "wait for a server for the time `D`, such as 5s")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *sample < 0 || *sample > compare.MaxSample:
			return usageError{i18n.Errorf("compare: -sample is not between 0 and %d", compare.MaxSample)}
		case !(*perSecond >= 0): // also NaN
			return usageError{i18n.Errorf("compare: -rate is negative")}
		case *timeout <= 0:
			return usageError{i18n.Errorf("compare: -timeout is not positive")}
		}
		comparer, err := compare.New(compare.Options{Old: args[0], New: args[1], Ranges: *ranges,
			Rate: *perSecond, Timeout: *timeout})
		if err != nil {
			return usageError{i18n.Errorf("compare: %w", err)}
		}
		in := cmd.InOrStdin()
		if name := cmd.Flags().Arg(2); name != "" && name != "-" {
			file, err := os.Open(name)
			if err != nil {
				return i18n.Errorf("cannot read the list: %w", err)
			}
			defer file.Close()
			in = file
		}
		return runComparison(cmd, comparer, in, *sample, *asJSON)
	}
	return cmd
}

// runComparison compares the paths of a list, and prints differences and a summary.
func runComparison(cmd *cobra.Command, comparer *compare.Comparer, in io.Reader, sample int, asJSON bool) error {
	ctx, stop := interruptible()
	defer stop()
	shown := newProgress(cmd, 0, "compare")
	list := compare.NewList(untilNow(in))
	targets, listErr := make(chan string), error(nil)
	go func() { // ends with ctx, but a read of standard input that waits ends with the process
		defer close(targets)
		listErr = list.Send(ctx, targets, sample)
	}()
	var sum comparison
	err := comparer.Run(ctx, targets, func(r compare.Result) error {
		defer shown.step()
		for _, d := range sum.addResult(r) {
			if err := printDifference(cmd, shown, difference{r.Target, d}, asJSON); err != nil {
				return err
			}
		}
		return nil
	})
	shown.remove()
	switch {
	case ctx.Err() != nil:
		err = errInterrupted
	case err == nil: // the channel is closed
		err = sum.endList(list, listErr)
	}
	return sum.print(cmd, asJSON, err)
}

// untilNow bounds a file to its present size: the log of a compared server grows meanwhile.
func untilNow(in io.Reader) io.Reader {
	file, ok := in.(*os.File)
	if !ok {
		return in
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return in
	}
	return io.LimitReader(file, info.Size())
}

// endList adds the numbers of skipped lines. A list without any path is an error.
func (s *comparison) endList(list *compare.List, err error) error {
	s.Repeated, s.Unreadable, s.why = list.Repeated, list.Unreadable, list.Why
	switch {
	case err != nil:
		return i18n.Errorf("cannot read the list: %w", err)
	case s.Paths == 0 && s.why != nil:
		return i18n.Errorf("the list has no path: %w", s.why)
	case s.Paths == 0:
		return i18n.Errorf("the list has no path")
	}
	s.Complete = true
	return nil
}

// addResult counts a path, and returns the differences to print one by one.
func (s *comparison) addResult(r compare.Result) (alone []compare.Difference) {
	s.Paths++
	unknown := false
	for _, d := range r.Differences {
		unknown = unknown || d.Known == ""
	}
	switch {
	case unknown:
		s.Different++
	case len(r.Differences) > 0:
		s.Known++
		fallthrough
	default:
		s.Equal++
	}
	return s.sums.Add(r)
}

func printDifference(cmd *cobra.Command, above *progress, d difference, asJSON bool) error {
	if asJSON {
		return printJSON(cmd, d)
	}
	word, reason := paint(cmd, "different:", red), ""
	if d.Known != "" {
		word, reason = paint(cmd, "known:", yellow), " ("+d.Known+")"
	}
	request := d.Method + " " + shownPath(d.Path)
	if d.Header != "" {
		request += " " + d.Header
	}
	above.println(fmt.Sprintf("%s %s: %s: old %s, new %s%s", word, request, d.Field, shown(d.Old), shown(d.New),
		reason))
	return nil
}

// printSums prints the counted differences.
func printSums(cmd *cobra.Command, sums []compare.Sum) {
	for _, s := range sums {
		word, kind := paint(cmd, "different:", red), s.Known
		if s.Known != "" {
			word = paint(cmd, "known:", yellow)
		}
		if s.Field != "" {
			kind = fmt.Sprintf("%s of %s: old %s, new %s", s.Field, cmp.Or(shownPath(s.Extension), "other names"),
				shown(s.Old), shown(s.New))
			if s.Known != "" {
				kind += " (" + s.Known + ")"
			}
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s %s: paths: %d, such as %s\n", word, kind, s.Paths, shownPath(s.Example))
	}
}

// shownPath returns a path without characters that a terminal interprets.
func shownPath(path string) string {
	quoted := strconv.QuoteToASCII(path)
	return quoted[1 : len(quoted)-1]
}

// shown quotes a value from a server.
func shown(value string) string {
	if value == "" {
		return "none"
	}
	return strconv.QuoteToASCII(value)
}

// print prints the summary, also after an error. Different paths are a failure.
func (s *comparison) print(cmd *cobra.Command, asJSON bool, err error) error {
	s.Sums = s.sums.All()
	if asJSON {
		err = errors.Join(err, printJSON(cmd, s))
	} else if printSums(cmd, s.Sums); s.Complete || s.Paths > 0 || errors.Is(err, errInterrupted) {
		fmt.Fprintln(cmd.OutOrStdout(), s.text())
	}
	if s.Different > 0 {
		err = cmp.Or(err, errPrinted)
	}
	return err
}

func (s *comparison) text() string {
	text := "not complete"
	if s.Complete {
		text = "done"
	}
	known := ""
	if s.Known > 0 {
		known = fmt.Sprintf(" (%d of them with known differences)", s.Known)
	}
	text += fmt.Sprintf(": %d paths, %d equal%s, %d different; left out: %d repeated, %d other lines", s.Paths, s.Equal,
		known, s.Different, s.Repeated, s.Unreadable)
	if s.why != nil {
		text += fmt.Sprintf(" (%v)", s.why)
	}
	return text
}
