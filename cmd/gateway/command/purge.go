package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
)

// purgeTimeout is longer than the wait of a gateway for the others.
const purgeTimeout = 30 * time.Second

// purgeCommand removes files from the caches of a fleet. A gateway that has not applied the purge
// is a failure.
func purgeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "purge [-admin ADDR|[-c] FILE] [-admin-token-file FILE] [-json] -id ID|-prefix FOLDER|-all",
		Short:       "remove files from the caches of a running gateway and its fleet",
		Example:     "gateway purge -prefix group1/M00/0A/",
		Annotations: exit1("a gateway has not applied the purge"),
	}
	listener, asJSON := addAdminFlags(cmd), jsonFlag(cmd)
	id := cmd.Flags().String("id", "", "purge the file with this `ID`")
	prefix := cmd.Flags().String("prefix", "", "purge all files in a `FOLDER`: group1/M00/0A/, group1/M00, group1")
	all := cmd.Flags().Bool("all", false, "purge all files")
	acceptFile(cmd, listener.config, 0)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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
			return usageError{i18n.Errorf("purge: give one of -id, -prefix and -all")}
		}
		client, err := listener.client(cmd, purgeTimeout)
		if err != nil {
			return err
		}
		var done admin.Purged
		waiting := withProgress(cmd, "waiting for all gateways", func(ctx context.Context) {
			done, err = client.purge(ctx, query)
		})
		switch {
		case waiting != nil:
			return i18n.Errorf("%w: gateways that the purge has reached apply it all the same", waiting)
		case err != nil:
			return err
		}
		return printPurged(cmd, done, *asJSON)
	}
	return cmd
}

// purge sends a purge. The response names the gateways that have not applied it.
func (a *adminClient) purge(ctx context.Context, query url.Values) (done admin.Purged, err error) {
	body, err := a.text(ctx, http.MethodPost, "/purge", query, http.StatusGatewayTimeout)
	if err != nil {
		return done, err
	}
	if err := json.Unmarshal([]byte(body), &done); err != nil {
		return done, i18n.Errorf("cannot read the gateway's response: %w", err)
	}
	return done, nil
}

func printPurged(cmd *cobra.Command, done admin.Purged, asJSON bool) (err error) {
	if asJSON {
		err = printJSON(cmd, done)
	} else {
		out := cmd.OutOrStdout()
		if done.Unconfirmed && len(done.Missing) == 0 {
			fmt.Fprintln(out, "applied by this gateway; others are not known")
		} else {
			fmt.Fprintf(out, "applied by %d of %d gateways\n", done.Gateways, done.Gateways+len(done.Missing))
		}
		for _, name := range done.Missing {
			fmt.Fprintf(out, "%s %s\n", paint(cmd, "missing:", red), name)
		}
		if done.Unconfirmed {
			fmt.Fprintln(out, "redis does not answer, so no other gateway could be asked: repeat the purge")
		}
	}
	if err == nil && !done.Complete() {
		err = errPrinted
	}
	return err
}
