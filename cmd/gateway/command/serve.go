package command

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/process/listen"
	"fastdfs-gateway/internal/process/upgrade"

	"github.com/spf13/cobra"
)

// serveCommand serves until it is told to stop.
func serveCommand(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serve -c FILE",
		Short:   "run the server; the command may be left out",
		Example: "gateway -c /etc/fdfs/mod_fastdfs.conf",
	}
	path := requiredConfigFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		signals := watchSignals()
		o := app.Options{Config: *path, Version: version}
		var err error
		if o.Inherited, err = listen.Inherited(); err == nil {
			o.Replaces, err = upgrade.FromEnvironment()
		}
		if err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
		o.Starter, o.NoStarter = upgrade.NewStarter() // before any right is given up
		defer o.Starter.Close()                       // its errors change nothing at the end of the process
		a := app.New(o)
		if err := a.Start(); err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
		return runUntilStopped(signals, a)
	}
	return cmd
}

// watchSignals catches the signals of the program. SIGPIPE is ignored: the reader of its output may
// leave.
func watchSignals() chan os.Signal {
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR2)
	return signals
}

// runUntilStopped handles signals until SIGTERM, SIGINT or the end of a gateway, and then stops the
// gateways. SIGHUP reloads, SIGUSR2 upgrades, a second SIGTERM ends the process at once.
func runUntilStopped(signals chan os.Signal, gateways ...*app.App) error {
	ended := make(chan error)
	for _, a := range gateways {
		go func() { ended <- <-a.Ended() }() // ends with the process
	}
	var broken error
	for stopping := false; !stopping; {
		select {
		case broken = <-ended:
			stopping = true
		case s := <-signals:
			stopping = handle(s, gateways)
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

// handle handles one signal; stop is true for those that end the program.
func handle(s os.Signal, gateways []*app.App) (stop bool) {
	for _, a := range gateways {
		switch s {
		case syscall.SIGHUP:
			if err := a.Reload(); err != nil {
				a.Log().Error("configuration rejected, the old one stays", "err", err)
			}
		case syscall.SIGUSR2:
			a.Upgrade()
		default:
			return true
		}
	}
	return false
}
