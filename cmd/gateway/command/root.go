// Package command is the command line of the program: one file for each subcommand.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/sandbox"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes: scripts rely on them.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitPartial = 3 // of migrate
)

// exampleID is the file id of the examples.
const exampleID = "group1/M00/00/01/fwAAAWsCs5WAAB7vAACw72Tj3gY919.jpg"

// usageError is an invalid command line.
type usageError struct{ error }

// errPrinted is a failure that has been printed already.
var errPrinted = errors.New("failed")

// errIncomplete is the error of a translation with missing parts, which have been printed.
var errIncomplete = errors.New("incomplete")

// New returns the command line of a version of the program.
func New(version string) *cobra.Command {
	root := &cobra.Command{
		Use:   "gateway COMMAND [flags] [arguments]",
		Short: "download gateway for FastDFS",
		Long:  "The gateway serves the files of a FastDFS store over HTTP.",
		Args: func(root *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil // prints the help
			}
			return unknownCommand(root, args[0])
		},
		RunE:          func(root *cobra.Command, _ []string) error { return root.Help() },
		SilenceErrors: true, SilenceUsage: true,
	}
	root.AddCommand(serveCommand(version), checkCommand(), doctorCommand(), inspectCommand(), tokenCommand(),
		explainCommand(), purgeCommand(), prefetchCommand(), compareCommand(), migrateCommand(), readyCommand(),
		demoCommand(version),
		versionCommand(version))
	root.SetHelpCommand(helpCommand())
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	describeCompletion(root)
	root.SetHelpTemplate(helpTemplate)
	translateHelp(root)
	root.SetFlagErrorFunc(flagError)
	root.DisableFlagsInUseLine = true
	for _, cmd := range root.Commands() {
		cmd.DisableFlagsInUseLine = true
		if cmd.Args == nil {
			cmd.Args = arguments(0, 0)
		}
	}
	return root
}

// Run runs a command line and returns the exit code.
func Run(version string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == sandbox.ProbeCommand { // not listed: the gateway runs it itself
		return exitCode(nil, sandbox.RunProbe(args[1:], stdout), stderr)
	}
	root, out := New(version), &output{Writer: stdout}
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	root.SetArgs(normalize(root, args))
	cmd, err := root.ExecuteContextC(context.WithValue(context.Background(), languageKey{}, languageIn(args)))
	if out.err != nil && (err == nil || errors.Is(err, errIncomplete) || errors.Is(err, errPrinted)) {
		err = out.err
	}
	return exitCode(cmd, err, stderr)
}

// exitCode prints an error of a command that has not been printed, and returns the exit code.
func exitCode(cmd *cobra.Command, err error, stderr io.Writer) int {
	lang := languageOf(cmd)
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &usage):
		help := "gateway help"
		if cmd.HasParent() && cmd.Name() != "help" {
			help += " " + cmd.Name()
		}
		fmt.Fprintln(stderr, i18n.Sprintf("gateway: %s; see %s", i18n.ErrorText(usage.error), help).In(lang))
		return exitUsage
	case errors.Is(err, errIncomplete):
		return exitPartial
	case !errors.Is(err, errPrinted):
		fmt.Fprintf(stderr, "gateway: %s\n", i18n.ErrorText(err).In(lang))
	}
	return exitFailure
}

// normalize completes a command line for cobra: the default command is serve, and flags with one
// hyphen get the second one. A shell that requests completions puts a command in front of the line.
func normalize(root *cobra.Command, args []string) []string {
	var line []string
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		line, args = append(line, args[0]), args[1:]
	}
	args = normalizeCommand(args)
	if len(args) == 0 && line == nil || len(args) > 0 && strings.HasPrefix(args[0], "-") && !isHelp(args[0]) {
		args = append([]string{"serve"}, args...)
	}
	if cmd, _, err := root.Find(args[:min(1, len(args))]); err == nil {
		cmd.InitDefaultHelpFlag()
		written := args
		args = normalizeFlags(cmd.Flags(), args)
		if last := len(args) - 1; line != nil && last >= 0 && strings.HasPrefix(written[last], "--") {
			args[last] = written[last] // the beginning of a name: --p is not -p
		}
	}
	return append(line, args...)
}

// normalizeCommand replaces flags that other programs have in place of commands: -v, -V and
// --version, and nginx's -t for check.
func normalizeCommand(args []string) []string {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return args
	}
	if slices.Contains([]string{"v", "V", "version"}, strings.TrimLeft(args[0], "-")) {
		return append([]string{"version"}, args[1:]...)
	}
	if i := slices.Index(args, "-t"); i >= 0 {
		return append([]string{"check"}, slices.Delete(slices.Clone(args), i, i+1)...)
	}
	return args
}

func isHelp(arg string) bool {
	return strings.TrimLeft(arg, "-") == "help" || strings.TrimLeft(arg, "-") == "h"
}

// normalizeFlags returns arguments with flags in the form of pflag, up to an argument --: -json as
// --json, --c as -c, -c=FILE as --config=FILE. A name of several letters is one flag, known or not.
func normalizeFlags(flags *pflag.FlagSet, args []string) []string {
	args = slices.Clone(args)
	for i := 0; i < len(args) && args[i] != "--"; i++ {
		name, value, hasValue := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if name == "" || !strings.HasPrefix(args[i], "-") {
			continue
		}
		f := flags.Lookup(name)
		if len(name) == 1 {
			f = flags.ShorthandLookup(name)
		}
		switch {
		case len(name) > 1 || f != nil && hasValue:
			if f != nil {
				name = f.Name
			}
			if args[i] = "--" + name; hasValue {
				args[i] += "=" + value
			}
		default:
			args[i] = "-" + name
		}
		if f != nil && f.NoOptDefVal == "" && !hasValue {
			i++ // its value, which may begin with a hyphen
		}
	}
	return args
}

// unknownCommand returns the error for an unknown command.
func unknownCommand(root *cobra.Command, name string) error {
	var names []string
	for _, cmd := range root.Commands() {
		names = append(names, cmd.Name())
	}
	if isReadable(name) {
		return usageError{i18n.Errorf("there is no command %q; gateway -c FILE serves it", name)}
	}
	if slices.Contains([]string{"reload", "stop", "quit", "reopen", "restart"}, name) {
		return usageError{i18n.Errorf("there is no command %q%s", name, signalsHint)}
	}
	return usageError{i18n.Errorf("there is no command %q%s", name, didYouMean(name, names, ""))}
}

// signalsHint is the hint for a command or flag of nginx that sends a signal.
var signalsHint = i18n.Plain(" (signals: kill -HUP reloads, kill -QUIT stops)")

// didYouMean returns a suggestion for a misspelt name: the nearest candidate.
func didYouMean(name string, candidates []string, prefix string) (hint i18n.Text) {
	if near, ok := config.Nearest(name, candidates); ok {
		hint = i18n.Sprintf(" (did you mean %s%s?)", prefix, near)
	}
	return hint
}

// flagError returns the text for an error of the flags of a command.
func flagError(cmd *cobra.Command, err error) error {
	if name := cmd.Flags().Arg(0); !cmd.HasParent() && name != "" {
		return unknownCommand(cmd, name) // the flag follows it
	}
	text := i18n.Plain(err.Error())
	var unknown *pflag.NotExistError
	var missing *pflag.ValueRequiredError
	var invalid *pflag.InvalidValueError
	var syntax *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &unknown):
		name := cmp.Or(unknown.GetSpecifiedShortnames(), unknown.GetSpecifiedName())
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, shortName(f)) })
		var hint i18n.Text
		switch {
		case len(name) > 1:
			hint = didYouMean(name, names, "-")
		case name == "s": // nginx's
			hint = signalsHint
		}
		text = i18n.Sprintf("there is no flag -%s%s", name, hint)
	case errors.As(err, &missing):
		text = i18n.Sprintf("flag needs an argument: -%s", missing.GetSpecifiedName())
	case errors.As(err, &syntax):
		text = i18n.Sprintf("bad flag syntax: %s", syntax.GetSpecifiedFlag())
	case errors.As(err, &invalid):
		text = i18n.Sprintf("invalid value %q for flag -%s", invalid.GetValue(), shortName(invalid.GetFlag()))
		if cause := errors.Unwrap(err); cause != nil && !errors.As(err, new(*strconv.NumError)) {
			text = i18n.Sprintf("%s: %s", text, i18n.ErrorText(cause))
		}
	}
	return usageError{i18n.Errorf("%s: %s", cmd.Name(), text)}
}

// arguments returns a check of the number of arguments; atMost < 0 = no upper bound.
func arguments(atLeast, atMost int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < atLeast:
			return usageError{i18n.Errorf("%s: an argument is missing", cmd.Name())}
		case atMost >= 0 && len(args) > atMost:
			return usageError{i18n.Errorf("%s: %q is one argument too many", cmd.Name(), args[atMost])}
		}
		return nil
	}
}

// configFlag adds -c.
func configFlag(cmd *cobra.Command) *string {
	return cmd.Flags().StringP("config", "c", "", "the configuration `FILE`, an ordinary mod_fastdfs.conf")
}

// defaultConfigs are the configurations of a command without -c: the first one that exists.
var defaultConfigs = [2]string{"/etc/fastdfs-gateway/gateway.conf", modulePath}

// requiredConfigFlag adds -c for a command that does not work without a configuration, and whose
// other arguments are so many.
func requiredConfigFlag(cmd *cobra.Command, others int) *string {
	path := configFlag(cmd)
	acceptFile(cmd, path, others)
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return findConfig(cmd, path) }
	return path
}

// acceptFile lets a command take the FILE of -c as its first argument, in front of its other ones,
// which are the last of args.
func acceptFile(cmd *cobra.Command, path *string, others int) {
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if *path == "" && len(args) == others && others > 0 && isReadable(args[0]) {
			return usageError{i18n.Errorf("%s: an argument is missing behind FILE", cmd.Name())}
		}
		if *path != "" || len(args) <= others {
			return arguments(others, others)(cmd, args)
		}
		*path = args[0]
		return arguments(others, others+1)(cmd, args)
	}
}

// findConfig replaces an empty path of -c by the first of defaultConfigs that exists.
func findConfig(cmd *cobra.Command, path *string) error {
	for _, name := range defaultConfigs {
		if *path != "" {
			return nil
		}
		if _, err := os.Stat(name); err == nil {
			*path = name
		}
	}
	if *path == "" {
		return usageError{i18n.Errorf("%s: -c is missing, and neither %s nor %s exists", cmd.Name(),
			defaultConfigs[0], defaultConfigs[1])}
	}
	return nil
}
