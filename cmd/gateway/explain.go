package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/config"
)

// explainTime bounds what a command line waits for other hosts.
const explainTime = time.Minute

// runExplain tells what would happen to a request: by the running gateway, the one of -admin or of
// the configuration's admin_listen. Where none runs, and with -fresh, by a fresh look, which needs
// the configuration alone.
func runExplain(c *call) error {
	path := c.configFlag()
	admin := c.adminFlags(path)
	asJSON := c.jsonFlag()
	fresh := c.flags.Bool("fresh", false, "do not ask the running gateway")
	if err := c.parse(1, 1); err != nil {
		return err
	}
	if *admin.address != "" {
		return explainByGateway(c, admin, *asJSON)
	}
	cfg, err := loadConfig(*path, c.stderr)
	if err != nil {
		return err
	}
	if !*fresh && cfg.Gateway.AdminListen != "" {
		err := explainByGateway(c, admin, *asJSON)
		if err == nil {
			return nil
		}
		var op *net.OpError
		if !errors.As(err, &op) || op.Op != "dial" || errors.Is(err, os.ErrPermission) { // a gateway runs
			fmt.Fprintf(c.stderr, "gateway: cannot ask the running gateway: %v\n", err)
		}
	}
	return explainFresh(c, cfg, *asJSON)
}

// explainFresh looks by a configuration.
func explainFresh(c *call, cfg *config.Config, asJSON bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), explainTime)
	defer cancel()
	e, err := app.Explain(ctx, cfg, c.flags.Arg(0),
		slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	if asJSON {
		return c.printJSON(e)
	}
	fmt.Fprint(c.stdout, e)
	return nil
}

// explainByGateway asks a running gateway.
func explainByGateway(c *call, admin adminFlags, asJSON bool) error {
	client, err := admin.client(explainTime, c.stderr)
	if err != nil {
		return err
	}
	query := url.Values{"url": {c.flags.Arg(0)}}
	if asJSON {
		query.Set("json", "1")
	}
	answer, err := client.text(context.Background(), http.MethodGet, "/explain", query)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.stdout, answer)
	return nil
}
