package main

import (
	"errors"
	"fmt"
	"net"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/demo"
)

// runDemo makes a small store and serves it twice: as it is, and with tokens. It stays in the foreground.
func runDemo(c *call) error {
	dir := c.flags.String("dir", "demo-store", "folder for the store; made when it is missing, used again when it is one of ours")
	var opts demo.Options
	c.flags.StringVar(&opts.Listen, "listen", ":8888", "address of the server without tokens")
	c.flags.StringVar(&opts.TokenListen, "token-listen", ":8890", "address of the server with tokens")
	c.flags.StringVar(&opts.AdminListen, "admin-listen", "127.0.0.1:8889", "address for health and metrics")
	if err := c.parse(0, 0); err != nil {
		return err
	}
	store, err := demo.Write(*dir, time.Now(), opts)
	if err != nil {
		return err
	}
	signals := watchSignals()
	open, err := app.Start(store.Config, version)
	if err != nil {
		return fmt.Errorf("cannot start: %w", err)
	}
	guarded, err := app.Start(store.TokenConfig, version)
	if err != nil {
		return fmt.Errorf("cannot start the server with tokens: %w", errors.Join(err, open.Stop()))
	}
	if err := printDemo(c, store, opts.AdminListen); err != nil {
		return errors.Join(err, open.Stop(), guarded.Stop())
	}
	return runUntilStopped(signals, open, guarded)
}

// printDemo prints URLs that are ready to be used.
func printDemo(c *call, store demo.Store, admin string) error {
	plain, err := loadConfig(store.Config, c.stderr)
	if err != nil {
		return err
	}
	guarded, err := loadConfig(store.TokenConfig, c.stderr)
	if err != nil {
		return err
	}
	w := c.stdout
	fmt.Fprintf(w, "A demonstration store is in %s\nIts configurations: %s\n                    %s (tokens)\n\nOpen in a browser, or use curl:\n\n", store.Dir, store.Config, store.TokenConfig)
	for _, f := range store.Files {
		fmt.Fprintf(w, "  %s (%d bytes, %s)\n    %s\n    %s\n", f.Title, f.Size, f.ContentType, f.Note, urlOf(plain, f.ID))
	}
	first := store.Files[0].ID
	address := urlOf(guarded, first)
	fmt.Fprintf(w, "\nThe same store where every download needs a token:\n\n  refused:             %s\n  good for %s:     %s?%s\n  never expires:       %s?%s\n",
		address, guarded.AntiSteal.TTL, address, antisteal.Query(store.Secret, first.Logic, time.Now().Unix()),
		address, antisteal.Query(store.Secret, first.Logic, 0))
	fmt.Fprintf(w, "  for any other file:  gateway token -c %s FILE_ID\n", store.TokenConfig)
	if _, port, err := net.SplitHostPort(admin); err == nil {
		fmt.Fprintf(w, "\nHealth and metrics: http://localhost:%s/readyz and /metrics\n", port)
	}
	fmt.Fprintln(w, "Stop with Ctrl-C.")
	return nil
}
