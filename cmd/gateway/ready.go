package main

import (
	"context"
	"fmt"
	"net/http"
	"time"
)

// readyTime bounds the question to the admin listener.
const readyTime = 5 * time.Second

// runReady tells whether a running gateway can serve, for health checks of containers and scripts.
func runReady(c *call) error {
	admin, asJSON := c.adminFlags(c.configFlag()), c.jsonFlag()
	if err := c.parse(0, 0); err != nil {
		return err
	}
	client, err := admin.client(readyTime, c.stderr)
	if err != nil {
		return err
	}
	answer, err := client.text(context.Background(), http.MethodGet, "/readyz", nil)
	if err != nil {
		return err
	}
	if *asJSON {
		return c.printJSON(map[string]bool{"ready": true})
	}
	fmt.Fprintln(c.stdout, answer)
	return nil
}
