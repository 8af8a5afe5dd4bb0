package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"fastdfs-gateway/internal/admin"
)

// purgeTime is longer than a gateway waits for the others to apply a purge.
const purgeTime = 30 * time.Second

// runPurge makes a running gateway, and with it all of its fleet, forget files. It fails when a
// gateway has not applied the purge.
func runPurge(c *call) error {
	listener, asJSON := c.adminFlags(c.configFlag()), c.jsonFlag()
	id := c.flags.String("id", "", "forget the file with this `ID`")
	prefix := c.flags.String("prefix", "", "forget all files in a `FOLDER`: group1/M00/0A/, group1/M00, group1")
	all := c.flags.Bool("all", false, "forget all files")
	if err := c.parse(0, 0); err != nil {
		return err
	}
	query := url.Values{}
	if *id != "" {
		query.Set("id", *id)
	}
	if *prefix != "" {
		query.Set("prefix", *prefix)
	}
	if *all {
		query.Set("all", "1")
	}
	if len(query) != 1 {
		return usageError("purge: give one of -id, -prefix and -all")
	}
	client, err := listener.client(purgeTime, c.stderr)
	if err != nil {
		return err
	}
	var done admin.Purged
	waiting := c.while("waiting for all gateways", func(ctx context.Context) {
		done, err = client.purge(ctx, query)
	})
	switch {
	case waiting != nil:
		return fmt.Errorf("%w: gateways that the purge has reached apply it all the same", waiting)
	case err != nil:
		return err
	}
	return printPurged(c, done, *asJSON)
}

// purge sends a purge. The answer names the gateways that have not applied it.
func (a *adminClient) purge(ctx context.Context, query url.Values) (done admin.Purged, err error) {
	answer, err := a.text(ctx, http.MethodPost, "/purge", query, http.StatusGatewayTimeout)
	if err != nil {
		return done, err
	}
	if err := json.Unmarshal([]byte(answer), &done); err != nil {
		return done, fmt.Errorf("cannot read the gateway's answer: %w", err)
	}
	return done, nil
}

func printPurged(c *call, done admin.Purged, asJSON bool) (err error) {
	if asJSON {
		err = c.printJSON(done)
	} else {
		fmt.Fprintf(c.stdout, "applied by %d of %d gateways\n", done.Gateways, done.Gateways+len(done.Missing))
		for _, name := range done.Missing {
			fmt.Fprintf(c.stdout, "%s %s; it is applied when that can be reached\n", c.paint("missing:", red), name)
		}
	}
	if err == nil && len(done.Missing) > 0 {
		err = errShown
	}
	return err
}
