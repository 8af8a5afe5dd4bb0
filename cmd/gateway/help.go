package main

import (
	"cmp"
	"flag"
	"fmt"
	"io"

	"fastdfs-gateway/internal/help"
)

// runHelp prints the table of commands, or one of them.
func runHelp(c *call) error {
	asJSON := c.jsonFlag()
	if err := c.parse(0, 1); err != nil {
		return err
	}
	switch {
	case c.flags.NArg() == 1:
		cmd, err := find(c.flags.Arg(0))
		if err != nil {
			return err
		}
		if *asJSON {
			return c.printJSON(helpOf(*cmd))
		}
		return cmd.run(newCall(cmd, []string{"-h"}, c.stdout, c.stderr))
	case *asJSON:
		all := []help.Command{}
		for _, cmd := range commands() {
			all = append(all, helpOf(cmd))
		}
		return c.printJSON(all)
	}
	fmt.Fprintln(c.stdout, "gateway serves the files of a FastDFS store over HTTP.")
	for _, cmd := range commands() {
		fmt.Fprintf(c.stdout, "\n  gateway %s %s\n        %s\n", cmd.name, cmd.usage, cmd.about)
	}
	fmt.Fprint(c.stdout, "\n\"gateway help COMMAND\" lists the flags of a command. ", exitCodes(""))
	return nil
}

// printHelp prints the help of the command of the call, whose flags have been added.
func (c *call) printHelp() {
	cmd, err := find(c.flags.Name())
	if err != nil {
		panic("BUG: " + err.Error())
	}
	fmt.Fprintf(c.stdout, "usage: gateway %s %s\n\n%s.\n\n", cmd.name, cmd.usage, cmd.about)
	c.flags.SetOutput(c.stdout)
	c.flags.PrintDefaults()
	fmt.Fprintf(c.stdout, "\nexample: %s\n\n%s", cmd.example, exitCodes(cmd.fails))
}

// exitCodes is the sentence about them.
func exitCodes(fails string) string {
	return fmt.Sprintf("Exit codes: %d success, %d %s, %d usage.\n",
		exitOK, exitFailure, cmp.Or(fails, "failure"), exitUsage)
}

// flagsOf returns the flags of a command: each command answers -h before it does anything.
func flagsOf(cmd command) *flag.FlagSet {
	c := newCall(&cmd, []string{"-h"}, io.Discard, io.Discard)
	_ = cmd.run(c) // flag.ErrHelp
	return c.flags
}

func helpOf(cmd command) help.Command {
	h := help.Command{Name: cmd.name, Usage: "gateway " + cmd.name + " " + cmd.usage, About: cmd.about,
		Example: cmd.example, Fails: cmp.Or(cmd.fails, "failure"), Flags: []help.Flag{}}
	flagsOf(cmd).VisitAll(func(f *flag.Flag) {
		value, about := flag.UnquoteUsage(f)
		h.Flags = append(h.Flags, help.Flag{Name: f.Name, Value: value, About: about, Default: f.DefValue})
	})
	return h
}
