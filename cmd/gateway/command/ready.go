package command

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"
)

// readyTimeout bounds the request to the admin listener.
const readyTimeout = 5 * time.Second

// readyCommand reports whether a running gateway can serve, for health checks.
func readyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:         "ready [-admin ADDR|[-c] FILE] [-admin-token-file FILE] [-json]",
		Short:       "test whether a running gateway can serve, for health checks",
		Example:     "gateway ready -c /etc/fdfs/mod_fastdfs.conf",
		Annotations: exit1("it cannot, or it is not reachable"),
	}
	admin, asJSON := addAdminFlags(cmd), jsonFlag(cmd)
	acceptFile(cmd, admin.config, 0)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		client, err := admin.client(cmd, readyTimeout)
		if err != nil {
			return err
		}
		body, err := client.text(context.Background(), http.MethodGet, "/readyz", nil)
		if err != nil {
			return err
		}
		if *asJSON {
			return printJSON(cmd, map[string]bool{"ready": true})
		}
		fmt.Fprintln(cmd.OutOrStdout(), body)
		return nil
	}
	return cmd
}
