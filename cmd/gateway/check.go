package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/config"
)

// runCheck reads a configuration, looks at the host, and prints each problem. It fails when one of
// them is an error.
func runCheck(c *call) error {
	path := c.configFlag()
	if err := c.parse(0, 0); err != nil {
		return err
	}
	if *path == "" {
		return usageError("check: -c is missing")
	}
	cfg, problems := config.Load(*path)
	if cfg != nil {
		problems = slices.Concat(problems, cfg.Check(time.Now()), cfg.CheckTrackers(context.Background()),
			app.HostProblems(cfg))
	}
	errors := printProblems(c.stdout, problems)
	if cfg != nil {
		for _, form := range cfg.URLForms() {
			fmt.Fprintf(c.stdout, "%s: files are served under URLs like %s\n", *path, form)
		}
	}
	switch warnings := len(problems) - errors; {
	case errors > 0:
		fmt.Fprintf(c.stdout, "%s: %d errors, %d warnings\n", *path, errors, warnings)
		return errShown
	case warnings > 0:
		fmt.Fprintf(c.stdout, "%s: usable, %d warnings\n", *path, warnings)
	default:
		fmt.Fprintf(c.stdout, "%s: no problems\n", *path)
	}
	return nil
}

// printProblems prints one problem a line and returns how many of them are errors.
func printProblems(w io.Writer, problems []config.Problem) (errors int) {
	for _, p := range problems {
		fmt.Fprintln(w, p)
		if p.Severity == config.Error {
			errors++
		}
	}
	return errors
}

// loadConfig reads a configuration that has to be usable. Its errors are printed; warnings are for
// "check" and the log.
func loadConfig(path string, stderr io.Writer) (*config.Config, error) {
	if path == "" {
		return nil, usageError("-c is missing")
	}
	cfg, problems := config.Load(path)
	if cfg == nil {
		printProblems(stderr, problems)
		return nil, fmt.Errorf("cannot use %s", path)
	}
	return cfg, nil
}
