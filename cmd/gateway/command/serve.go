package command

import (
	"errors"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/doctor"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/process/listen"
	"fastdfs-gateway/internal/process/upgrade"

	"github.com/spf13/cobra"
)

// serveCommand runs the server until a signal stops it.
func serveCommand(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "serve [-c] FILE",
		Short:   "run the server; the command may be left out",
		Example: "gateway -c /etc/fdfs/mod_fastdfs.conf",
	}
	path := requiredConfigFlag(cmd, 0)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		signals := watchSignals()
		o := app.Options{Config: *path, Version: version}
		var err error
		if o.Inherited, err = listen.Inherited(); err == nil {
			o.Replaces, err = upgrade.FromEnvironment()
		}
		if err != nil {
			return startError(err)
		}
		o.Starter, o.NoStarter = upgrade.NewStarter() // before privileges are dropped
		defer o.Starter.Close()
		a := app.New(o)
		if err := signals.start(a); err != nil {
			return startError(err)
		}
		return runUntilStopped(signals, a)
	}
	return cmd
}

// startError returns the error of a gateway that cannot start, with what to do about an address at
// which it cannot listen.
func startError(err error) error {
	var hint i18n.Text
	var op *net.OpError
	switch {
	case !errors.As(err, &op) || op.Op != "listen" || op.Addr == nil:
	case errors.Is(err, syscall.EADDRINUSE):
		hint = i18n.Sprintf("; %s", doctor.TakenBy(op.Addr.String()))
	case errors.Is(err, syscall.EACCES):
		hint = i18n.Sprintf("; start it by the unit of systemd, or as root with user in [gateway], or after "+
			"`setcap cap_net_bind_service=+ep %s`", os.Args[0])
	}
	return i18n.Errorf("cannot start: %w%s", err, hint)
}

// signals are the signals that the program catches: stop gets stopSignals, which wait for no other
// signal, and change gets SIGHUP and SIGUSR2.
type signals struct{ stop, change chan os.Signal }

// stopSignals stop the gateway. SIGQUIT is the graceful stop of nginx.
var stopSignals = []os.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT}

// watchSignals catches the signals of the program. SIGPIPE is ignored: the reader of the output may
// exit.
func watchSignals() signals {
	signal.Ignore(syscall.SIGPIPE)
	s := signals{make(chan os.Signal, 1), make(chan os.Signal, 4)}
	signal.Notify(s.stop, stopSignals...)
	signal.Notify(s.change, syscall.SIGHUP, syscall.SIGUSR2)
	return s
}

// startGrace bounds the wait for a start that a signal ends.
const startGrace = 5 * time.Second

// start starts a gateway. If one of stopSignals comes meanwhile, and the start does not end soon,
// since a disk hangs, the error is errNotStarted.
func (s signals) start(a *app.App) error {
	done := make(chan error, 1)
	go func() { done <- a.Start() }() // ends with the disk
	select {
	case err := <-done:
		return err
	case first := <-s.stop:
		signal.Reset(stopSignals...) // from here on they end the process at once
		s.stop <- first              // for runUntilStopped
	}
	select {
	case err := <-done:
		return err
	case <-time.After(startGrace):
		return errNotStarted
	}
}

// errNotStarted is the error of a start that was ended by a signal.
var errNotStarted = i18n.Errorf("a signal has ended the start, which a file or disk holds up")

// runUntilStopped handles signals until one of stopSignals or the end of a gateway, and then stops
// the gateways. SIGHUP reloads, SIGUSR2 upgrades, a second SIGTERM ends the process at once.
func runUntilStopped(s signals, gateways ...*app.App) (broken error) {
	ended := make(chan error)
	for _, a := range gateways {
		go func() { ended <- <-a.Ended() }() // ends with the process
	}
	go func() { // ends with the process
		for change := range s.change {
			handle(change, gateways)
		}
	}()
	select {
	case broken = <-ended:
	case <-s.stop:
	}
	signal.Reset(stopSignals...) // from here on they end the process at once
	for _, a := range gateways {
		if err := a.Stop(); err != nil && broken == nil {
			broken = err
		}
	}
	return broken
}

// handle handles SIGHUP or SIGUSR2.
func handle(s os.Signal, gateways []*app.App) {
	for _, a := range gateways {
		if s == syscall.SIGUSR2 {
			a.Upgrade()
		} else if err := a.Reload(); err != nil {
			a.Log().Error("configuration rejected, the old one stays", "err", err)
		}
	}
}
