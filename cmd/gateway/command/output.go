package command

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"fastdfs-gateway/internal/i18n"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/spf13/cobra"
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

// withSpinner runs a function that may take long, with a spinner on a terminal. A signal makes it
// return errInterrupted at once, while f still runs.
func withSpinner(cmd *cobra.Command, what string, f func(ctx context.Context)) error {
	ctx, stop := interruptible()
	defer stop()
	bar := newProgress(cmd, -1, what)
	defer bar.removeBar()
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

// progress is a progress bar on standard error, below the output of a command. Without two
// terminals it shows nothing.
type progress struct {
	out  io.Writer
	stop chan struct{}  // closed by removeBar
	tick sync.WaitGroup // the goroutine that draws

	mu  sync.Mutex               // guards bar, and the terminal
	bar *progressbar.ProgressBar // nil = no terminal
}

// progressEvery is the time between two drawings, and before the first one.
const progressEvery = 200 * time.Millisecond

// newProgress shows a bar for total steps; -1 = unknown. The caller calls removeBar.
func newProgress(cmd *cobra.Command, total int64, what string) *progress {
	p := &progress{out: cmd.OutOrStdout(), stop: make(chan struct{})}
	if !showsProgress(cmd) {
		return p
	}
	p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(cmd.ErrOrStderr()),
		progressbar.OptionSetDescription(what), progressbar.OptionSetElapsedTime(true),
		progressbar.OptionSetSpinnerChangeInterval(0), progressbar.OptionShowCount(),
		progressbar.OptionThrottle(progressEvery), progressbar.OptionSetWidth(24))
	p.tick.Go(func() {
		for tick := time.NewTicker(progressEvery); ; {
			select {
			case <-p.stop:
				tick.Stop()
				return
			case <-tick.C:
				p.mu.Lock()
				_ = p.bar.RenderBlank() // a bar that cannot be drawn is no failure of the command
				p.mu.Unlock()
			}
		}
	})
	return p
}

// showsProgress reports whether progress is shown.
func showsProgress(cmd *cobra.Command) bool {
	return isTerminal(cmd.OutOrStdout()) && isTerminal(cmd.ErrOrStderr())
}

// countLines counts the lines that are not empty in the rest of a regular file, for a progress bar.
// It returns -1 for other files, and if no bar is shown: a log can have gigabytes.
func countLines(cmd *cobra.Command, list io.Reader) int64 {
	file, ok := list.(*os.File)
	if !ok || !showsProgress(cmd) {
		return -1
	}
	start, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return -1 // a pipe or a terminal
	}
	var total int64
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if strings.TrimSpace(lines.Text()) != "" {
			total++
		}
	}
	if _, err := file.Seek(start, io.SeekStart); err != nil || total == 0 {
		return -1
	}
	return total
}

// println prints a line above the bar.
func (p *progress) println(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
	fmt.Fprintln(p.out, line)
}

// step counts one more step.
func (p *progress) step() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bar != nil {
		_ = p.bar.Add(1)
	}
}

// removeBar removes the bar.
func (p *progress) removeBar() {
	close(p.stop)
	p.tick.Wait()
	if p.bar != nil {
		_ = p.bar.Clear()
	}
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
