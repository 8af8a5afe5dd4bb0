package command

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/variant"

	"github.com/spf13/cobra"
)

// link is a URL with its token, in the form of -json.
type link struct {
	FileID string `json:"file_id"`
	Query  string `json:"query"` // token=...&ts=...
	URL    string `json:"url"`
}

// tokenCommand prints the query with the token of a file, and the whole URL.
func tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "token [-c] FILE [-ts N|-ttl D] [-image SIZE] [-json] FILE_ID",
		Short:   "print the anti-steal query of a file, and its URL",
		Example: "gateway token -c /etc/fdfs/mod_fastdfs.conf -ttl 24h " + exampleID,
	}
	path := requiredConfigFlag(cmd, 1)
	ts := cmd.Flags().Int64("ts", -1, "put the unix time `N` into the token; 0 never expires, -1 is now")
	ttl := durationFlag(cmd, "ttl", 0, "let the token expire after the time `D`, such as 24h, instead of token_ttl")
	image := cmd.Flags().String("image", "", "sign a picture of the `SIZE`, such as w=300,h=200,fit=cover")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *ts < -1 {
			return usageError{i18n.Errorf("token: -ts is negative")}
		}
		if *ts >= 0 && *ttl != 0 {
			return usageError{i18n.Errorf("token: -ts and -ttl exclude each other")}
		}
		cfg, err := loadConfig(cmd, *path)
		if err != nil {
			return err
		}
		secrets, err := cfg.AntiSteal.ReadSecrets()
		switch {
		case err != nil:
			return i18n.Errorf("cannot make a token: %w; see secret_files in [antisteal]", err)
		case len(secrets) == 0:
			return i18n.Errorf("cannot make a token: %s has no http.anti_steal.secret_key", *path)
		}
		id, err := parseID(cfg, args[len(args)-1])
		if err != nil {
			return err
		}
		query := antisteal.Query(secrets[0], id.Logic, tokenTime(*ts, *ttl, cfg.AntiSteal.TTL, time.Now()))
		if *image != "" {
			wish, err := variant.ParseWish(*image)
			if err != nil {
				return usageError{i18n.Errorf("token: -image: %w", err)}
			}
			wish.Quality = cmp.Or(wish.Quality, cfg.Image.Quality) // the URL stays valid if the configuration changes
			signed := wish.String() + "&sig=" + variant.Sign(secrets[0], wish, id.Canonical().String(), id.Ext())
			if query += "&" + signed; !cfg.AntiSteal.CheckToken {
				query = signed
			}
		}
		l := link{FileID: id.String(), Query: query, URL: urlOf(cfg, id) + "?" + query}
		if *asJSON {
			return printJSON(cmd, l)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s\n%s\n", l.Query, l.URL)
		return nil
	}
	return cmd
}

// tokenTime returns the ts of a token: the given one, or the ts of a token that expires after
// wanted. The server adds ttl to every ts.
func tokenTime(ts int64, wanted, ttl time.Duration, now time.Time) int64 {
	switch {
	case ts >= 0:
		return ts
	case wanted != 0:
		return now.Add(wanted - ttl).Unix()
	}
	return now.Unix()
}

// parseID parses a file id, also one without the group if the configuration names the group.
func parseID(cfg *config.Config, arg string) (fdfs.FileID, error) {
	arg = strings.TrimPrefix(arg, "/")
	id, err := fdfs.Parse(arg)
	if err != nil && !cfg.URLHasGroupName {
		if short, shortErr := fdfs.ParseLogic(cfg.GroupName, arg); shortErr == nil {
			return short, nil
		}
	}
	if err != nil {
		return id, i18n.Errorf("cannot read file id %q: %w", arg, err)
	}
	return id, nil
}

// urlOf returns the URL of a file on this host.
func urlOf(cfg *config.Config, id fdfs.FileID) string {
	scheme, addresses := "http", cfg.Gateway.Listen
	if len(cfg.Gateway.TLSCert) > 0 {
		scheme = "https"
	}
	if len(cfg.Gateway.TLSListen) > 0 {
		addresses = cfg.Gateway.TLSListen
	}
	host := "localhost"
	for _, listen := range addresses {
		if address, ok := localAddress(listen); ok {
			host = address
			break
		}
	}
	path := id.Logic
	if cfg.URLHasGroupName {
		path = id.String()
	}
	return scheme + "://" + host + cfg.Gateway.URLPrefix + "/" + path
}
