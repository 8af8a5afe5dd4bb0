package command

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/i18n"

	"github.com/spf13/cobra"
)

// defaultAdmin is the default of admin_listen.
const defaultAdmin = "127.0.0.1:8889"

// adminFlags are the flags that select a running gateway.
type adminFlags struct {
	address   *string
	tokenFile *string
	config    *string
}

// addAdminFlags adds -admin, -admin-token-file and -c.
func addAdminFlags(cmd *cobra.Command) adminFlags {
	return adminFlags{
		address: cmd.Flags().String("admin", "",
			"the admin listener `ADDR` of a running gateway: host:port, http(s)://host:port or unix:/path; "+
				"by default the one of -c, or "+defaultAdmin),
		tokenFile: cmd.Flags().String("admin-token-file", "",
			"the `FILE` with the token that the admin listener wants; by default the one of -c"),
		config: configFlag(cmd),
	}
}

// adminClient sends requests to one admin listener.
type adminClient struct {
	http  http.Client
	base  string // scheme and host
	token string
}

// client returns a client for the listener of the flags. timeout bounds a whole operation; 0 =
// none.
func (f adminFlags) client(cmd *cobra.Command, timeout time.Duration) (*adminClient, error) {
	address, tokenFile := *f.address, *f.tokenFile
	if *f.config != "" {
		cfg, err := loadConfig(cmd, *f.config)
		if err != nil {
			return nil, err
		}
		if address == "" {
			if address, err = adminAddress(cfg); err != nil {
				return nil, err
			}
		}
		if tokenFile == "" {
			tokenFile = cfg.Gateway.AdminTokenFile
		}
	}
	return newAdminClient(cmp.Or(address, defaultAdmin), tokenFile, timeout)
}

// newAdminClient returns a client for the listener at an address.
func newAdminClient(address, tokenFile string, timeout time.Duration) (*adminClient, error) {
	a := &adminClient{base: address}
	transport := &http.Transport{}
	a.http = http.Client{Timeout: timeout, Transport: transport}
	if path, isUnix := strings.CutPrefix(address, "unix:"); isUnix {
		a.base = "http://localhost"
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	} else if !strings.Contains(address, "://") {
		a.base = "http://" + address
	}
	a.base = strings.TrimRight(a.base, "/")
	if tokenFile == "" {
		return a, nil
	}
	var err error
	a.token, err = config.ReadSecretFile(tokenFile)
	return a, err
}

// adminAddress returns the address of the admin listener of a configuration, for clients on this
// host.
func adminAddress(cfg *config.Config) (string, error) {
	address := cfg.Gateway.AdminListen
	if address == "" {
		return "", i18n.Errorf("the configuration has no admin_listen")
	}
	if local, ok := localAddress(address); ok {
		return local, nil
	}
	return address, nil
}

// localAddress returns the address by which clients on this host reach the listener of an address;
// ok is false for a unix socket.
func localAddress(address string) (local string, ok bool) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || strings.HasPrefix(address, "unix:") {
		return "", false
	}
	if ip, err := netip.ParseAddr(host); host == "" || err == nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port), true
}

// do sends a request. The caller closes the body.
func (a *adminClient) do(
	ctx context.Context, method, path string, query url.Values, body io.Reader,
) (*http.Response, error) {
	target := a.base + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, i18n.Errorf("cannot use the address of the admin listener: %w", err)
	}
	if a.token != "" {
		req.Header.Set("Authorization", "Bearer "+a.token)
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return nil, i18n.Errorf("cannot reach the gateway (-admin is its admin_listen): %w", err)
	}
	return resp, nil
}

// maxAdminResponse bounds the body of a response.
const maxAdminResponse = 1 << 20

// text sends a request and returns the body of the response. A status other than 200 and those of
// also is an error.
func (a *adminClient) text(
	ctx context.Context, method, path string, query url.Values, also ...int,
) (string, error) {
	resp, err := a.do(ctx, method, path, query, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminResponse))
	if err != nil {
		return "", i18n.Errorf("cannot read the gateway's response: %w", err)
	}
	body := strings.TrimSpace(string(text))
	if resp.StatusCode != http.StatusOK && !slices.Contains(also, resp.StatusCode) {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return body, nil
}
