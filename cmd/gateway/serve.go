package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"fastdfs-gateway/internal/app"
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
	i, err := app.Start(*path, app.Options{Version: version})
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	return runUntilStopped(signals, i)
}

// watchSignals begins to catch the signals that the gateway obeys. A reader of its output that leaves is no reason to end.
func watchSignals() chan os.Signal {
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	return signals
}

// runUntilStopped waits for SIGTERM or SIGINT, obeys SIGHUP, and then stops the instances. A second signal does not wait.
func runUntilStopped(signals chan os.Signal, instances ...*app.App) error {
	failed := make(chan error)
	for _, i := range instances {
		go func() { failed <- <-i.Failed() }() // ends with the process
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
			for _, i := range instances {
				if err := i.Reload(); err != nil {
					i.Log().Error("configuration refused, the old one stays", "err", err)
				}
			}
		}
	}
	signal.Reset(syscall.SIGTERM, syscall.SIGINT) // from here on they end the process at once
	for _, i := range instances {
		if err := i.Stop(); err != nil && broken == nil {
			broken = err
		}
	}
	return broken
}
