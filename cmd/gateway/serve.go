package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/listen"
)

// runServe serves until it is told to stop.
func runServe(c *call) error {
	path := c.configFlag()
	if err := c.parse(0, 0); err != nil {
		return err
	}
	if *path == "" {
		return usageError("serve: -c is missing")
	}
	signals := watchSignals()
	given, err := listen.Given()
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	a := app.New(app.Options{Config: *path, Version: version, Given: given})
	if err := a.Start(); err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	return runUntilStopped(signals, a)
}

// watchSignals begins to catch the signals that the program handles. A reader of its output that
// leaves does not end it.
func watchSignals() chan os.Signal {
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return signals
}

// runUntilStopped waits for SIGTERM, SIGINT or a listener that breaks, reloads on SIGHUP, and then
// stops the gateways. A second signal does not wait.
func runUntilStopped(signals chan os.Signal, gateways ...*app.App) error {
	failed := make(chan error)
	for _, a := range gateways {
		go func() { failed <- <-a.Failed() }() // ends with the process
	}
	var broken error
	for stopping := false; !stopping; {
		select {
		case broken = <-failed:
			stopping = true
		case s := <-signals:
			if stopping = s != syscall.SIGHUP; stopping {
				break
			}
			for _, a := range gateways {
				if err := a.Reload(); err != nil {
					a.Log().Error("configuration refused, the old one stays", "err", err)
				}
			}
		}
	}
	signal.Reset(syscall.SIGTERM, syscall.SIGINT) // from here on they end the process at once
	for _, a := range gateways {
		if err := a.Stop(); err != nil && broken == nil {
			broken = err
		}
	}
	return broken
}
