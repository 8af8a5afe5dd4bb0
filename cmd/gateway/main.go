// Command gateway serves the files of a FastDFS store over HTTP.
//
//	gateway -c /etc/fdfs/mod_fastdfs.conf
//
// See "gateway help" and docs/cli.md for its other commands, which commands.go lists.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/process/upgrade"
)

// Exit codes: scripts rely on them.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// call is one use of a command: its flags and arguments, and its streams.
type call struct {
	flags  *flag.FlagSet
	args   []string
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// usageError is a command line that cannot be understood.
type usageError string

func (e usageError) Error() string { return string(e) }

// errShown is a failure that has been printed already.
var errShown = errors.New("failed")

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run carries out a command line and returns the exit code.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	name := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	} else if len(args) > 0 && isHelp(args[0]) {
		name, args = "help", args[1:]
	}
	if name == upgrade.StarterCommand { // in no list: the gateway runs it itself
		return exitCode(upgrade.RunStarter(args), stderr)
	}
	cmd, err := find(name)
	if err != nil {
		return exitCode(err, stderr)
	}
	c := newCall(cmd, args, stdout, stderr)
	c.stdin = stdin
	return exitCode(cmd.run(c), stderr)
}

func isHelp(arg string) bool { return slices.Contains([]string{"-h", "-help", "--h", "--help"}, arg) }

// newCall returns a call whose help goes to stdout.
func newCall(cmd *command, args []string, stdout, stderr io.Writer) *call {
	c := &call{flags: flag.NewFlagSet(cmd.name, flag.ContinueOnError), args: args, stdout: stdout, stderr: stderr}
	c.flags.SetOutput(io.Discard) // exitCode prints its errors
	c.flags.Usage = func() {}
	return c
}

// find returns the command of a name.
func find(name string) (*command, error) {
	var names []string
	for _, cmd := range commands() {
		if cmd.name == name {
			return &cmd, nil
		}
		names = append(names, cmd.name)
	}
	return nil, usageError(fmt.Sprintf("there is no command %q%s", name, didYouMean(name, names, "")))
}

// didYouMean names the candidate that a misspelt name is nearest to.
func didYouMean(name string, candidates []string, prefix string) string {
	if near, ok := config.Nearest(name, candidates); ok {
		return fmt.Sprintf(" (did you mean %s%s?)", prefix, near)
	}
	return ""
}

// exitCode prints an error that has not been printed, and returns the exit code for it.
func exitCode(err error, stderr io.Writer) int {
	var usage usageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return exitOK
	case errors.As(err, &usage):
		fmt.Fprintf(stderr, "gateway: %v; see gateway help\n", err)
		return exitUsage
	case !errors.Is(err, errShown):
		fmt.Fprintf(stderr, "gateway: %v\n", err)
	}
	return exitFailure
}

// parse reads the flags, and prints the help where -h is among them. minArgs and maxArgs bound the
// arguments behind them; maxArgs < 0 is no bound.
func (c *call) parse(minArgs, maxArgs int) error {
	name := c.flags.Name()
	if err := c.flags.Parse(c.args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			c.printHelp()
			return err
		}
		return usageError(name + ": " + c.flagError(err))
	}
	switch n := c.flags.NArg(); {
	case n < minArgs:
		return usageError(name + ": an argument is missing")
	case maxArgs >= 0 && n > maxArgs:
		return usageError(fmt.Sprintf("%s: %q is one argument too many", name, c.flags.Arg(maxArgs)))
	}
	return nil
}

// flagError is the text for an error of the flag package.
func (c *call) flagError(err error) string {
	name, unknown := strings.CutPrefix(err.Error(), "flag provided but not defined: -")
	if !unknown {
		return err.Error()
	}
	var names []string
	c.flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return fmt.Sprintf("there is no flag -%s%s", name, didYouMean(name, names, "-"))
}

// configFlag adds -c.
func (c *call) configFlag() *string {
	return c.flags.String("c", "", "the configuration `FILE`, an ordinary mod_fastdfs.conf")
}
