package command

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
	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
)

// explainTimeout bounds the wait for other hosts.
const explainTimeout = time.Minute

// explainCommand explains a request by the running gateway: the one of -admin, or of admin_listen
// in the configuration. Without a running gateway, and with -fresh, this process examines the
// request.
func explainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "explain [-c] FILE|-admin ADDR [-admin-token-file FILE] [-fresh] [-json] [-lang en|zh] URL_OR_ID",
		Short:   "show how a request is served, and why: by the running gateway, else by its own examination",
		Example: "gateway explain -c /etc/fdfs/mod_fastdfs.conf http://localhost:8888/" + exampleID,
	}
	admin, asJSON, lang := addAdminFlags(cmd), jsonFlag(cmd), languageFlag(cmd)
	fresh := cmd.Flags().Bool("fresh", false, "do not ask the running gateway")
	acceptFile(cmd, admin.config, 1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		target := args[len(args)-1]
		if *admin.address != "" {
			return explainByGateway(cmd, admin, target, *asJSON, *lang)
		}
		if err := findConfig(cmd, admin.config); err != nil {
			if !*fresh && explainByGateway(cmd, admin, target, *asJSON, *lang) == nil {
				return nil
			}
			return err
		}
		cfg, err := loadConfig(cmd, *admin.config)
		if err != nil {
			return err
		}
		if !*fresh && cfg.Gateway.AdminListen != "" {
			err := explainByGateway(cmd, admin, target, *asJSON, *lang)
			if err == nil {
				return nil
			}
			var op *net.OpError
			if !errors.As(err, &op) || op.Op != "dial" || errors.Is(err, os.ErrPermission) { // a gateway runs
				fmt.Fprintf(cmd.ErrOrStderr(), "gateway: cannot ask the running gateway: %v\n", err)
			}
		}
		return explainOffline(cmd, cfg, target, *asJSON, *lang)
	}
	return cmd
}

// explainOffline explains a request by a configuration, without a running gateway.
func explainOffline(cmd *cobra.Command, cfg *config.Config, target string, asJSON bool, lang i18n.Language) error {
	ctx, cancel := context.WithTimeout(context.Background(), explainTimeout)
	defer cancel()
	e, err := app.Explain(ctx, cfg, target,
		slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(cmd, e)
	}
	fmt.Fprint(cmd.OutOrStdout(), e.In(lang))
	return nil
}

// explainByGateway requests the explanation from the running gateway.
func explainByGateway(cmd *cobra.Command, admin adminFlags, target string, asJSON bool, lang i18n.Language) error {
	client, err := admin.client(cmd, explainTimeout)
	if err != nil {
		return err
	}
	query := url.Values{"url": {target}, "lang": {string(lang)}}
	if asJSON {
		query.Set("json", "1")
	}
	body, err := client.text(context.Background(), http.MethodGet, "/explain", query)
	if err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), body)
	return nil
}
