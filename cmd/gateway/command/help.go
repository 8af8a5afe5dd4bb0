package command

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpTemplate is the help of the program and of each command.
const helpTemplate = `usage: {{.UseLine}}

{{or .Long .Short}}{{if not .Long}}.{{end}}
{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{.UseLine}}
        {{.Short}}
{{end}}{{end}}{{with .LocalFlags.FlagUsages}}
{{.}}{{end}}
{{with .Example}}example: {{.}}

{{end}}{{if .HasSubCommands}}"gateway help COMMAND" lists the flags of a command. {{end -}}
Flags begin with one hyphen or two. Exit codes: 0 success, 1 {{or .Annotations.exit1 "failure"}}, 2 usage
{{- with .Annotations.exit3}}, 3 {{.}}{{end}}.
`

// helpPhrases are the words of the template and of cobra. Each is replaced by its translation.
var helpPhrases = []i18n.Text{i18n.Plain("usage: "), i18n.Plain("example: "), i18n.Plain("help for "),
	i18n.Plain("\"gateway help COMMAND\" lists the flags of a command. "),
	i18n.Plain("Flags begin with one hyphen or two. "), i18n.Plain("Exit codes: 0 success, 1 "),
	i18n.Plain(", 2 usage"), i18n.Plain(", 3 "), i18n.Plain("failure")}

// defaultValue matches the default of a flag in the words of pflag, and fullStop the end of a
// Chinese sentence in the template.
var (
	defaultValue = regexp.MustCompile(`(?m) \(default (.*)\)$`)
	fullStop     = regexp.MustCompile(`(?m)([\p{Han}”])\.$`)
)

// translateHelp lets the help of a command line be in the language of the environment.
func translateHelp(root *cobra.Command) {
	english := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		lang := languageOf(cmd)
		if lang == i18n.English {
			english(cmd, args)
			return
		}
		for _, c := range append(root.Commands(), root) {
			c.Short, c.Long = lang.Translate(c.Short), lang.Translate(c.Long)
			for key, text := range c.Annotations {
				c.Annotations[key] = lang.Translate(text)
			}
			c.LocalFlags().VisitAll(func(f *pflag.Flag) { f.Usage = lang.Translate(f.Usage) })
		}
		var out bytes.Buffer
		to := cmd.OutOrStdout()
		cmd.SetOut(&out)
		english(cmd, args)
		text := defaultValue.ReplaceAllString(out.String(), "（默认 $1）")
		for _, phrase := range helpPhrases {
			text = strings.ReplaceAll(text, phrase.String(), phrase.In(lang))
		}
		fmt.Fprint(to, fullStop.ReplaceAllString(strings.ReplaceAll(text, "。.", "。"), "$1。"))
	})
}

// exit1 returns the annotation of a command with a specific meaning of exit code 1.
func exit1(meaning string) map[string]string { return map[string]string{"exit1": meaning} }

// exits returns the annotations with the meanings of exit codes 1 and 3.
func exits(one, three string) map[string]string {
	return map[string]string{"exit1": one, "exit3": three}
}

// Exit1 returns the meaning of exit code 1 of a command.
func Exit1(cmd *cobra.Command) string { return cmp.Or(cmd.Annotations["exit1"], "failure") }

// Exit3 returns the meaning of exit code 3 of a command; empty = it has none.
func Exit3(cmd *cobra.Command) string { return cmd.Annotations["exit3"] }

// commandHelp is the help of a command, in the form of -json.
type commandHelp struct {
	Name    string     `json:"name"`
	Usage   string     `json:"usage"` // the whole line
	About   string     `json:"about"`
	Example string     `json:"example"`
	Exit1   string     `json:"exit_1"` // the meaning of exit code 1
	Exit3   string     `json:"exit_3,omitempty"`
	Flags   []flagHelp `json:"flags"`
}

type flagHelp struct {
	Name    string `json:"name"`  // without the hyphen
	Value   string `json:"value"` // kind of its value: FILE, string, duration; empty: the flag has none
	About   string `json:"about"`
	Default string `json:"default,omitempty"`
}

// helpCommand prints the list of commands, or the help of one.
func helpCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "help [-json] [-lang en|zh] [COMMAND]",
		Short:   "print this list, or the flags of a command; -json prints all of it for programs",
		Example: "gateway help check",
		Args:    arguments(0, 1),
	}
	asJSON := jsonFlag(cmd)
	languageFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root := cmd.Root()
		of, _, err := root.Find(args)
		switch {
		case err != nil || len(args) > 0 && of == root:
			return unknownCommand(root, args[0])
		case !*asJSON:
			of.InitDefaultHelpFlag()
			return of.Help()
		case of != root:
			return printJSON(cmd, helpOf(of))
		}
		all := []commandHelp{}
		for _, c := range root.Commands() {
			all = append(all, helpOf(c))
		}
		return printJSON(cmd, all)
	}
	return cmd
}

// describeCompletion describes cobra's command for completions like the other commands.
func describeCompletion(root *cobra.Command) {
	if cmd, _, err := root.Find([]string{"completion"}); err == nil {
		cmd.Use, cmd.Example = "completion bash|zsh|fish|powershell", "gateway completion bash"
		cmd.Short, cmd.Long = i18n.Plain("print the completion script of a shell").String(), ""
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(*cobra.Command, []string) error {
			return usageError{i18n.Errorf("completion: give one of bash, zsh, fish and powershell")}
		}
	}
}

func helpOf(cmd *cobra.Command) commandHelp {
	h := commandHelp{Name: cmd.Name(), Usage: cmd.UseLine(), About: cmd.Short, Example: cmd.Example,
		Exit1: Exit1(cmd), Exit3: Exit3(cmd), Flags: []flagHelp{}}
	cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		value, about := pflag.UnquoteUsage(f)
		h.Flags = append(h.Flags, flagHelp{Name: shortName(f), Value: value, About: about, Default: f.DefValue})
	})
	return h
}

// shortName returns the shortest name of a flag.
func shortName(f *pflag.Flag) string { return cmp.Or(f.Shorthand, f.Name) }
