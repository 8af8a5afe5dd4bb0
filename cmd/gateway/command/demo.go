package command

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/app"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/tools/demo"

	"github.com/spf13/cobra"
)

// demoCommand writes a small store and serves it twice in the foreground: without and with tokens.
func demoCommand(version string) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "demo [-dir DIR] [-listen ADDR] [-token-listen ADDR] [-admin-listen ADDR] [-lang en|zh]",
		Short:   "write a small store and serve it, without and with tokens",
		Example: "gateway demo -dir /tmp/demo-store",
	}
	dir := cmd.Flags().String("dir", "demo-store",
		"the folder `DIR` for the store; made when it is missing, used again when it is one of ours")
	var opts demo.Options
	cmd.Flags().StringVar(&opts.Listen, "listen", ":8888", "the address `ADDR` of the server without tokens")
	cmd.Flags().StringVar(&opts.TokenListen, "token-listen", ":8890", "the address `ADDR` of the server with tokens")
	cmd.Flags().StringVar(&opts.AdminListen, "admin-listen", defaultAdmin, "the address `ADDR` for health and metrics")
	lang := languageFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		store, err := demo.Write(*dir, time.Now(), opts)
		if err != nil {
			return err
		}
		urls, err := demoURLs(cmd, store, opts)
		if err != nil {
			return err
		}
		index, err := store.Index(urls.links, *lang)
		if err != nil {
			return err
		}
		signals := watchSignals()
		open := app.New(app.Options{Config: store.Config, Version: version, Index: index})
		if err := signals.start(open); err != nil {
			return startError(err)
		}
		protected := app.New(app.Options{Config: store.TokenConfig, Version: version})
		if err := signals.start(protected); err != nil {
			return startError(errors.Join(err, open.Stop()))
		}
		printDemo(cmd.OutOrStdout(), *lang, store, urls)
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
	plain, err := loadConfig(cmd, store.Config)
	if err != nil {
		return u, err
	}
	protected, err := loadConfig(cmd, store.TokenConfig)
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

// printDemo prints the URLs in a language.
func printDemo(w io.Writer, lang i18n.Language, store demo.Store, u urls) {
	say := func(format string, args ...any) { fmt.Fprintln(w, i18n.Sprintf(format, args...).In(lang)) }
	say("A demonstration store is in %s", store.Dir)
	say("Its configuration: %s, and with tokens: %s", store.Config, store.TokenConfig)
	say("\nOpen in a browser:\n\n  %s\n\nor use curl:\n", u.index)
	for i, f := range store.Files {
		say("  %s (%d bytes, %s)", f.Title, f.Size, f.ContentType)
		fmt.Fprintf(w, "    %s\n    %s\n", f.Note.In(lang), u.files[i])
	}
	say("\nThe same store where each download needs a token:\n")
	say("  rejected: %s", u.links.Rejected)
	say("  good for %s: %s", config.Written(u.ttl), u.links.Token)
	say("  never expires: %s", u.never)
	say("  for any other file: %s token -c %s FILE_ID", os.Args[0], store.TokenConfig)
	if u.admin != "" {
		say("\nThe state of the gateway, with /readyz and /metrics for programs: %s/status", u.admin)
	}
	say("Next: make run-cluster starts three gateways in front of three storages.")
	say("Stop with Ctrl-C.")
}
