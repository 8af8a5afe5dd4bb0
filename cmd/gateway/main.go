// Command gateway serves the files of a FastDFS store over HTTP.
//
//	gateway -c /etc/fdfs/mod_fastdfs.conf
//
// See "gateway help" and the README for its other commands.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// Exit codes: scripts rely on them.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// command is one subcommand.
type command struct {
	usage string // behind "gateway "
	about string
	run   func(c *call) error
}

// call is one use of a subcommand: its flags and arguments, and where it prints.
type call struct {
	flags  *flag.FlagSet
	args   []string
	stdout io.Writer
	stderr io.Writer
}

// usageError is a command line that cannot be understood.
type usageError string

func (e usageError) Error() string { return string(e) }

// errShown is a failure that has been printed already.
var errShown = errors.New("failed")

var commandOrder = []string{"serve", "check", "inspect", "token", "explain", "purge", "prefetch", "demo", "version"}

var commands = map[string]command{
	"serve": {"[serve] -c FILE",
		"run the server", runServe},
	"check": {"check -c FILE",
		"read a configuration and print each problem with file:line", runCheck},
	"inspect": {"inspect [-json] [-c FILE] [-file PATH] FILE_ID...",
		"decode file ids; -file compares a file's content with the CRC32 of one id", runInspect},
	"token": {"token -c FILE [-ts N|-ttl D] FILE_ID",
		"print the anti-steal query of a file, and its URL", runToken},
	"explain": {"explain -c FILE|-admin ADDR [-fresh] [-json] URL_OR_ID",
		"tell what would happen to a request, and why: by the running gateway, else by a fresh look", runExplain},
	"purge": {"purge [-admin ADDR|-c FILE] -id ID|-prefix FOLDER|-all",
		"make a running gateway and all of its fleet forget files", runPurge},
	"prefetch": {"prefetch [-admin ADDR|-c FILE] FILE_ID...|-",
		"make a running gateway fetch files; - reads the ids from standard input, one a line", runPrefetch},
	"demo": {"demo [-dir DIR] [-listen ADDR] [-token-listen ADDR] [-admin-listen ADDR]",
		"make a small store and serve it, without and with tokens", runDemo},
	"version": {"version",
		"print the version", runVersion},
}

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run carries out a command line and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	name := "serve"
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		name, args = args[0], args[1:]
	}
	wantsHelp := len(args) > 0 && slices.Contains([]string{"-h", "-help", "--help"}, args[0])
	if name == "help" || name == "serve" && wantsHelp {
		printUsage(stdout)
		return exitOK
	}
	cmd, ok := commands[name]
	if !ok {
		fmt.Fprintf(stderr, "gateway: there is no command %q\n", name)
		printUsage(stderr)
		return exitUsage
	}
	c := &call{flags: flag.NewFlagSet(name, flag.ContinueOnError), args: args, stdout: stdout, stderr: stderr}
	c.flags.SetOutput(stderr)
	c.flags.Usage = func() {
		fmt.Fprintf(stderr, "usage: gateway %s\n%s\n", cmd.usage, cmd.about)
		c.flags.PrintDefaults()
	}
	return exitCode(cmd.run(c), stderr)
}

// exitCode prints what went wrong, once, and says how the process ends.
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

// parse reads flags. minArgs and maxArgs bound the arguments behind them; maxArgs < 0 is no bound.
func (c *call) parse(minArgs, maxArgs int) error {
	if err := c.flags.Parse(c.args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return usageError(err.Error())
	}
	switch n := c.flags.NArg(); {
	case n < minArgs:
		return usageError(fmt.Sprintf("%s: an argument is missing", c.flags.Name()))
	case maxArgs >= 0 && n > maxArgs:
		return usageError(fmt.Sprintf("%s: %q is one argument too many", c.flags.Name(), c.flags.Arg(maxArgs)))
	}
	return nil
}

// configFlag adds -c.
func (c *call) configFlag() *string {
	return c.flags.String("c", "", "the configuration, an ordinary mod_fastdfs.conf")
}

func printUsage(w io.Writer) {
	fmt.Fprintln(w, "gateway serves the files of a FastDFS store over HTTP.")
	for _, name := range commandOrder {
		fmt.Fprintf(w, "\n  gateway %s\n        %s\n", commands[name].usage, commands[name].about)
	}
}
