// Package early runs commands that need little of the program, before the other packages are
// initialized: that takes most of the processor time and memory of a short command, and of the
// starter of upgrades, which runs as long as its gateway.
//
// Go initializes the packages of a program in the order of their import paths, each as soon as
// those that it imports are initialized (https://go.dev/ref/spec#Program_initialization). So this
// package imports nothing but os, os/signal, and packages that these import too: not even strings.
package early

import (
	"os"
	"runtime"
)

// Version is set by the linker: see the Makefile. Without it there is no early command version.
var Version string

// VersionText returns the line that the command version prints.
func VersionText(version string) string {
	return "fastdfs-gateway " + version + " (" + runtime.Version() + ", " + runtime.GOOS + "/" + runtime.GOARCH + ")\n"
}

func init() {
	switch {
	case len(os.Args) < 2:
	case os.Args[1] == StarterCommand && len(os.Args) > 3: // else a user has typed it
		os.Exit(runStarter(os.Args[2:]))
	case len(os.Args) == 2 && os.Args[1] == "version" && Version != "":
		if _, err := os.Stdout.WriteString(VersionText(Version)); err != nil {
			os.Exit(fail(err.Error()))
		}
		os.Exit(0)
	}
}
