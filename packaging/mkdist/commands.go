package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"fastdfs-gateway/internal/help"
)

// readCommands asks the program for its commands.
func readCommands(ctx context.Context, program string) ([]help.Command, error) {
	out, err := exec.CommandContext(ctx, program, "help", "-json").Output()
	if err != nil {
		return nil, fmt.Errorf("%s help -json: %w", program, err)
	}
	var table []help.Command
	if err := json.Unmarshal(out, &table); err != nil {
		return nil, fmt.Errorf("%s help -json: %w", program, err)
	}
	return table, nil
}

// completions returns the completions of shells by the names of their files.
func completions(table []help.Command) map[string][]byte {
	return map[string][]byte{"gateway.bash": bash(table), "gateway.fish": fish(table), "_gateway": zsh(table)}
}

// flagNames are the flags of a command with their hyphens.
func flagNames(c help.Command) string {
	names := []string{}
	for _, f := range c.Flags {
		names = append(names, "-"+f.Name)
	}
	return strings.Join(names, " ")
}

// bash completes commands, flags, and else files.
func bash(table []help.Command) []byte {
	var b bytes.Buffer
	names := []string{}
	for _, c := range table {
		names = append(names, c.Name)
	}
	fmt.Fprintf(&b, `# Completion of gateway(8) for bash.

_gateway() {
	local cur=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=
	if ((COMP_CWORD == 1)) && [[ $cur != -* ]]; then
		words='%s'
	elif [[ $cur == -* ]]; then
		case $command in
`, strings.Join(names, " "))
	for _, c := range table {
		pattern := c.Name
		if c.Name == "serve" {
			pattern = "serve | -*" // the name may be left out
		}
		fmt.Fprintf(&b, "\t\t%s) words='%s' ;;\n", pattern, flagNames(c))
	}
	b.WriteString(`		esac
	fi
	COMPREPLY=()
	[[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

# What is none of these is completed as a file.
complete -o default -F _gateway gateway
`)
	return b.Bytes()
}

// fish completes commands and flags with their descriptions, and files.
func fish(table []help.Command) []byte {
	var b bytes.Buffer
	b.WriteString("# Completion of gateway(8) for fish.\n\n")
	for _, c := range table {
		fmt.Fprintf(&b, "complete -c gateway -n __fish_use_subcommand -f -a %s -d %s\n", c.Name, fishQuote(c.About))
		condition := "__fish_seen_subcommand_from " + c.Name
		if c.Name == "serve" {
			condition = "__fish_use_subcommand; or " + condition
		}
		for _, f := range c.Flags {
			value := ""
			if f.Value != "" {
				value = " -r"
			}
			fmt.Fprintf(&b, "complete -c gateway -n %s -o %s%s -d %s\n", fishQuote(condition), f.Name, value,
				fishQuote(f.About))
		}
	}
	return b.Bytes()
}

func fishQuote(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}

// zsh completes commands and flags with their descriptions, and files.
func zsh(table []help.Command) []byte {
	var b bytes.Buffer
	b.WriteString("#compdef gateway\n# Completion of gateway(8) for zsh.\n\n")
	b.WriteString("_gateway() {\n\tlocal -a commands\n\tcommands=(\n")
	for _, c := range table {
		fmt.Fprintf(&b, "\t\t%s\n", zshQuote(c.Name+":"+strings.ReplaceAll(c.About, ":", `\:`)))
	}
	b.WriteString(`	)
	if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then
		_describe command commands
		return
	fi
	local command=serve
	if [[ $words[2] != -* ]]; then
		command=$words[2]
		shift words
		((CURRENT--))
	fi
	case $command in
`)
	for _, c := range table {
		fmt.Fprintf(&b, "\t%s)\n\t\t_arguments", c.Name)
		for _, f := range c.Flags {
			about := strings.NewReplacer(`[`, `\[`, `]`, `\]`, `:`, `\:`).Replace(f.About)
			spec := "-" + f.Name + "[" + about + "]"
			if f.Value != "" {
				spec += ":" + f.Value + ":_files"
			}
			fmt.Fprintf(&b, " \\\n\t\t\t%s", zshQuote(spec))
		}
		b.WriteString(" \\\n\t\t\t'*:argument:_files'\n\t\t;;\n")
	}
	b.WriteString("\tesac\n}\n\n_gateway \"$@\"\n")
	return b.Bytes()
}

func zshQuote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }
