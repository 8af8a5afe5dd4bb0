package app

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"fastdfs-gateway/internal/admin/status"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/process/logfile"
)

// logs are the main log and the access log of a gateway.
type logs struct {
	level slog.LevelVar
	main  *logfile.Writer
	log   *slog.Logger
	// recent has the last warnings and errors for the status page.
	recent *status.Log

	access atomic.Pointer[logfile.Writer] // nil = it has always been off
}

// accessDelay is the time for which lines of the access log are buffered.
const accessDelay = time.Second

// openLogs opens the main log on standard error, for the time before the first use.
func openLogs() (*logs, error) {
	main, err := logfile.Open("", 0)
	if err != nil {
		return nil, err
	}
	l := &logs{main: main, recent: status.NewLog()}
	l.log = slog.New(l.recent.Handler(slog.NewTextHandler(main, &slog.HandlerOptions{Level: &l.level})))
	return l, nil
}

// use opens the files of both logs anew, as configured, and returns the access log; nil = off. It
// opens all files before it uses any: after an error no log has changed.
func (l *logs) use(cfg *config.Config) (*gateway.AccessLog, error) {
	main, err := logfile.OpenFile(cfg.LogFile)
	if err != nil {
		return nil, err
	}
	access, err := l.useAccess(cfg)
	if err != nil {
		return nil, errors.Join(err, logfile.CloseFile(main))
	}
	l.main.UseFile(main)
	l.level.Set(cfg.LogLevel)
	return access, nil
}

// useAccess does the part of use for the access log.
func (l *logs) useAccess(cfg *config.Config) (*gateway.AccessLog, error) {
	g := &cfg.Gateway
	if g.AccessLog == "" {
		return nil, nil // lines of running requests still go to the file
	}
	to := l.access.Load()
	var err error
	if to == nil {
		to, err = logfile.Open(g.AccessLog, accessDelay)
	} else {
		err = to.Use(g.AccessLog)
	}
	if err != nil {
		return nil, err
	}
	l.access.Store(to)
	return gateway.NewAccessLog(to, gateway.AccessLogOptions{Format: g.AccessLogFormat, Tokens: g.LogTokens,
		SecretHeader: cfg.AntiSteal.BypassHeader, Except: g.AccessLogExcept})
}

// reopen opens the files of a configuration in use anew: logrotate may have moved them.
func (l *logs) reopen(cfg *config.Config) {
	err := l.main.Reopen()
	if cfg.Gateway.AccessLog != "" {
		err = errors.Join(err, l.access.Load().Reopen())
	}
	if err != nil {
		l.log.Error("cannot open a log anew, it goes on in the old file", "err", err)
	}
}

// lost counts the lines that could not be written, by the name of their log.
func (l *logs) lost() map[string]uint64 {
	lines := map[string]uint64{"main": l.main.Lost()}
	if access := l.access.Load(); access != nil {
		lines["access"] = access.Lost()
	}
	return lines
}

func (l *logs) close() error {
	var err error
	if access := l.access.Load(); access != nil {
		err = access.Close()
	}
	return errors.Join(err, l.main.Close())
}

// logProblems logs the problems of a configuration, each at its own level.
func logProblems(log *slog.Logger, problems []config.Problem) {
	for _, p := range problems {
		level := slog.LevelWarn
		if p.Severity == config.Error {
			level = slog.LevelError
		}
		log.Log(context.Background(), level, p.String())
	}
}
