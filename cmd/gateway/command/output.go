package command

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// jsonFlag adds -json.
func jsonFlag(cmd *cobra.Command) *bool {
	return cmd.Flags().Bool("json", false, "print JSON: an object a line")
}

// languageKey is the key of the context of a command line for its language.
type languageKey struct{}

// languageIn returns the language of a command line, also of a wrong one: that of -lang, else that
// of the environment.
func languageIn(args []string) i18n.Language {
	for i, arg := range args {
		name, value, given := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if name != "lang" || arg == name {
			continue
		}
		if !given && i+1 < len(args) {
			value = args[i+1]
		}
		if l, ok := i18n.ParseLanguage(value); ok {
			return l
		}
	}
	return i18n.FromEnvironment(os.Getenv)
}

// languageOf returns the language of the command line of a command; nil = one that has none.
func languageOf(cmd *cobra.Command) i18n.Language {
	if cmd != nil && cmd.Root().Context() != nil {
		if l, ok := cmd.Root().Context().Value(languageKey{}).(i18n.Language); ok {
			return l
		}
	}
	return i18n.FromEnvironment(os.Getenv)
}

// languageFlag adds -lang. Without it the environment decides.
func languageFlag(cmd *cobra.Command) *i18n.Language {
	l := i18n.FromEnvironment(os.Getenv)
	cmd.Flags().Func("lang", "print in the language `en|zh`; default: that of LC_ALL, LC_MESSAGES or LANG",
		func(text string) error {
			named, ok := i18n.ParseLanguage(text)
			if !ok {
				return i18n.Errorf("the languages are en and zh")
			}
			l = named
			return nil
		})
	return &l
}

// printJSON prints a value on one line.
func printJSON(cmd *cobra.Command, v any) error {
	enc := json.NewEncoder(cmd.OutOrStdout())
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// isTerminal reports whether w is a terminal with escape sequences.
func isTerminal(w io.Writer) bool {
	if o, ok := w.(*output); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// color is an escape sequence of SGR (ECMA-48).
type color string

const (
	red    color = "\x1b[31m"
	green  color = "\x1b[32m"
	yellow color = "\x1b[33m"
)

// paint colors a text for a terminal, unless NO_COLOR is set (https://no-color.org).
func paint(cmd *cobra.Command, text string, with color) string {
	if os.Getenv("NO_COLOR") != "" || !isTerminal(cmd.OutOrStdout()) {
		return text
	}
	return string(with) + text + "\x1b[0m"
}

// interruptible returns a context that SIGINT and SIGTERM end. A second signal ends the process.
// The caller calls the function at the end of the command.
func interruptible() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the signals have their usual effect again
	return ctx, stop
}

// errInterrupted is the error of a command that a signal ended.
var errInterrupted = i18n.Errorf("interrupted")

// withProgress runs a function that may take long. A signal makes it return errInterrupted at once,
// while f still runs.
func withProgress(cmd *cobra.Command, what string, f func(ctx context.Context)) error {
	ctx, stop := interruptible()
	defer stop()
	shown := newProgress(cmd, 0, what)
	defer shown.remove()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(ctx)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return errInterrupted
	}
}

// progress is a line on standard error, below the output of a command: its work and the number of
// steps done. Without two terminals it is not shown.
type progress struct {
	out   io.Writer
	what  string
	total int // steps; 0 = unknown

	mu    sync.Mutex // guards the fields below, and the terminal
	to    io.Writer  // nil = no terminal
	done  int        // steps
	width int        // of the line
}

// newProgress shows the line. The caller calls remove.
func newProgress(cmd *cobra.Command, total int, what string) *progress {
	p := &progress{out: cmd.OutOrStdout(), what: what, total: total}
	if isTerminal(cmd.OutOrStdout()) && isTerminal(cmd.ErrOrStderr()) {
		p.to = cmd.ErrOrStderr()
	}
	p.show(p.text())
	return p
}

func (p *progress) text() string {
	switch {
	case p.total > 0:
		return fmt.Sprintf("%s (%d/%d)", p.what, p.done, p.total)
	case p.done > 0:
		return fmt.Sprintf("%s (%d)", p.what, p.done)
	}
	return p.what
}

// show replaces the line. p.mu is held.
func (p *progress) show(text string) {
	if p.to != nil {
		fmt.Fprintf(p.to, "\r%*s\r%s", p.width, "", text)
		p.width = len(text)
	}
}

// println prints output above the line.
func (p *progress) println(output string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.show("")
	fmt.Fprintln(p.out, output)
	p.show(p.text())
}

// step counts one more step.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done++
	p.show(p.text())
}

// remove removes the line.
func (p *progress) remove() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.show("")
}

// output remembers the first failed write of a command, which has not done its work then.
type output struct {
	io.Writer
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}
