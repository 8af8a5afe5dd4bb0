package command

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/tools/demo"

	"github.com/spf13/cobra"
)

// demoCommand writes a small store and serves it twice in the foreground: without and with tokens.
func demoCommand(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "demo [-dir DIR] [-listen ADDR] [-token-listen ADDR] [-admin-listen ADDR]",
		Short:   "write a small store and serve it, without and with tokens",
		Example: "gateway demo -dir /tmp/demo-store",
	}
	dir := cmd.Flags().String("dir", "demo-store",
		"the folder `DIR` for the store; made when it is missing, used again when it is one of ours")
	var opts demo.Options
	cmd.Flags().StringVar(&opts.Listen, "listen", ":8888", "the address `ADDR` of the server without tokens")
	cmd.Flags().StringVar(&opts.TokenListen, "token-listen", ":8890", "the address `ADDR` of the server with tokens")
	cmd.Flags().StringVar(&opts.AdminListen, "admin-listen", defaultAdmin, "the address `ADDR` for health and metrics")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := demo.Write(*dir, time.Now(), opts)
		if err != nil {
			return err
		}
		urls, err := demoURLs(cmd, store, opts)
		if err != nil {
			return err
		}
		index, err := store.Index(urls.links)
		if err != nil {
			return err
		}
		signals := watchSignals()
		open := app.New(app.Options{Config: store.Config, Version: version, Index: index})
		if err := open.Start(); err != nil {
			return fmt.Errorf("cannot start: %w", err)
		}
		protected := app.New(app.Options{Config: store.TokenConfig, Version: version})
		if err := protected.Start(); err != nil {
			return fmt.Errorf("cannot start the server with tokens: %w", errors.Join(err, open.Stop()))
		}
		printDemo(cmd.OutOrStdout(), store, urls)
		return runUntilStopped(signals, open, protected)
	}
	return cmd
}

// urls are the addresses of the demonstration.
type urls struct {
	index string
	files []string // in the order of the files of the store
	links demo.Links
	never string        // with a token that never expires
	ttl   time.Duration // of the token of links
	admin string        // empty = there is no admin listener
}

func demoURLs(cmd *cobra.Command, store demo.Store, opts demo.Options) (u urls, err error) {
	plain, err := loadConfig(store.Config, cmd.ErrOrStderr())
	if err != nil {
		return u, err
	}
	protected, err := loadConfig(store.TokenConfig, cmd.ErrOrStderr())
	if err != nil {
		return u, err
	}
	for _, f := range store.Files {
		u.files = append(u.files, urlOf(plain, f.ID))
	}
	first := store.Files[0].ID
	u.index = strings.TrimSuffix(u.files[0], first.String())
	u.ttl = protected.AntiSteal.TTL
	u.links.Rejected = urlOf(protected, first)
	u.links.Token = u.links.Rejected + "?" + antisteal.Query(demo.Secret, first.Logic, time.Now().Unix())
	u.never = u.links.Rejected + "?" + antisteal.Query(demo.Secret, first.Logic, 0)
	if _, port, err := net.SplitHostPort(opts.AdminListen); err == nil {
		u.admin = "http://localhost:" + port
		u.links.Status = u.admin + "/status"
	}
	return u, nil
}

// printDemo prints the URLs.
func printDemo(w io.Writer, store demo.Store, u urls) {
	fmt.Fprintf(w, "A demonstration store is in %s\nIts configurations: %s\n                    %s (tokens)\n\n",
		store.Dir, store.Config, store.TokenConfig)
	fmt.Fprintf(w, "Open in a browser:\n\n  %s\n\nor use curl:\n\n", u.index)
	for i, f := range store.Files {
		fmt.Fprintf(w, "  %s (%d bytes, %s)\n    %s\n    %s\n", f.Title, f.Size, f.ContentType, f.Note, u.files[i])
	}
	fmt.Fprintf(w, "\nThe same store where each download needs a token:\n\n")
	fmt.Fprintf(w, "  rejected:            %s\n  good for %s:     %s\n  never expires:       %s\n",
		u.links.Rejected, u.ttl, u.links.Token, u.never)
	fmt.Fprintf(w, "  for any other file:  gateway token -c %s FILE_ID\n", store.TokenConfig)
	if u.admin != "" {
		fmt.Fprintf(w, "\nHealth and metrics: %s/readyz and /metrics\n", u.admin)
	}
	fmt.Fprintln(w, "Stop with Ctrl-C.")
}
