package ops

import (
	"context"
	"encoding/base64"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fastdfs-gateway/tests/e2e"
	"fastdfs-gateway/tests/storetest"

	"github.com/stretchr/testify/require"
)

// adminRequest is a request to an admin listener, with the expected status.
type adminRequest struct {
	name, method, path, host string
	headers                  []string // "Name: value"
	status                   int
}

// askAdmin sends the requests of list through dial, and compares the statuses.
func askAdmin(t *testing.T, dial func(ctx context.Context, network, address string) (net.Conn, error),
	list []adminRequest) {
	t.Helper()
	client := http.Client{Timeout: e2e.Timeout, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	for _, a := range list {
		t.Run(a.name, func(t *testing.T) {
			req, err := http.NewRequest(a.method, "http://127.0.0.1:1"+a.path, nil)
			require.NoError(t, err)
			if a.host != "" {
				req.Host = a.host
			}
			for _, h := range a.headers {
				name, value, _ := strings.Cut(h, ": ")
				req.Header.Set(name, value)
			}
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, a.status, resp.StatusCode)
		})
	}
}

// otherSites are requests that a page of another site can make an operator's browser send.
var otherSites = []adminRequest{
	{"rebinding, purge", "POST", "/purge?all=1", "evil.example", nil, 421},
	{"rebinding, metrics", "GET", "/metrics", "evil.example:8889", nil, 421},
	{"rebinding, a name that begins well", "GET", "/metrics", "localhost.evil.example", nil, 421},
	{"rebinding, a name like an address", "GET", "/metrics", "127.0.0.1.evil.example", nil, 421},
	{"cross-site reload", "POST", "/reload", "", []string{"Sec-Fetch-Site: cross-site"}, 403},
	{"cross-site explain", "GET", "/explain?url=x", "", []string{"Sec-Fetch-Site: cross-site"}, 403},
	{"cross-site profile", "GET", "/debug/pprof/profile?seconds=1", "", []string{"Sec-Fetch-Site: cross-site"}, 403},
	{"cross-site behind an empty field", "POST", "/reload", "",
		[]string{"Sec-Fetch-Site: none", "Sec-Fetch-Site: cross-site"}, 403},
	{"the status page in a frame", "GET", "/status", "",
		[]string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}, 403},
	{"the status page, fetched", "GET", "/status", "",
		[]string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors", "Sec-Fetch-Dest: empty"}, 403},
	{"a link that explains", "GET", "/status?explain=x", "",
		[]string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 403},
	{"a page that is served on another port", "GET", "/explain?url=x", "", []string{"Sec-Fetch-Site: same-site"}, 403},
	{"a browser without Fetch Metadata", "POST", "/reload", "", []string{"Origin: http://evil.example"}, 403},
}

// operators are requests that the protection against other sites must not reject.
var operators = []adminRequest{
	{"by address", "GET", "/status", "127.0.0.1:8889", nil, 200},
	{"by an address of IPv6", "GET", "/status", "[::1]:8889", nil, 200},
	{"by localhost", "POST", "/reload", "LOCALHOST:1", nil, 200},
	{"a link of the listener's own page", "GET", "/metrics", "", []string{"Sec-Fetch-Site: same-origin"}, 200},
	{"a link of another page", "GET", "/status", "",
		[]string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"}, 200},
	{"an address that was typed in", "GET", "/status", "", []string{"Sec-Fetch-Site: none"}, 200},
	{"a method that is not served", "PUT", "/reload", "", nil, 405},
	{"how a reload would end", "GET", "/reload", "", nil, 200},
	{"profiles", "GET", "/debug/pprof/cmdline", "", nil, 200},
}

// requireMode requires the permissions of an admin socket: for the account of the gateway only, or
// those of admin_socket_mode.
func requireMode(t *testing.T, socket string, mode os.FileMode) {
	t.Helper()
	info, err := os.Stat(socket)
	require.NoError(t, err)
	require.Equal(t, mode, info.Mode().Perm())
}

// TestAdminOtherSites: pages of other sites cannot use the admin listener through an operator's
// browser, on any kind of listener.
func TestAdminOtherSites(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	p := e2e.Serve(t, s)
	t.Run("loopback", func(t *testing.T) {
		askAdmin(t, e2e.DialTo("tcp", p.AdminAddr), append(otherSites, operators...))
	})
	admin := &e2e.Process{T: t, Addrs: []string{p.AdminAddr}}
	require.Regexp(t, "^HTTP/1.0 200 ", admin.Raw("GET /readyz HTTP/1.0\r\n\r\n"), "an old health check sends no Host")

	socket := filepath.Join(t.TempDir(), "admin")
	e2e.ServeConfig(t, e2e.WriteConfig(t, s.Config("[gateway]", "listen = 127.0.0.1:0", "admin_listen = unix:"+socket,
		"admin_hosts = ops.example, b", "admin_socket_mode = 0660")))
	requireMode(t, socket, 0o660)
	named := []adminRequest{{"a configured name", "GET", "/status", "Ops.Example.:80", nil, 200},
		{"another configured name", "GET", "/status", "b", nil, 200}}
	t.Run("unix socket", func(t *testing.T) {
		askAdmin(t, e2e.DialTo("unix", socket), append(append(otherSites, operators...), named...))
	})

	every := e2e.ServeConfig(t, e2e.WriteConfig(t,
		s.Config("[gateway]", "listen = 127.0.0.1:0", "admin_listen = 0.0.0.0:0")))
	_, port, err := net.SplitHostPort(every.AdminAddr)
	require.NoError(t, err)
	t.Run("every address", func(t *testing.T) {
		askAdmin(t, e2e.DialTo("tcp", "127.0.0.2:"+port), append(otherSites, operators...))
	})
}

const adminToken = "an-admin-token-0123456789"

// tokenConfig writes a configuration whose admin listener is a unix socket that requires a token.
// The results are the paths of the configuration, of the socket and of the token file.
func tokenConfig(t *testing.T, s *storetest.Store, lines ...string) (conf, socket, token string) {
	t.Helper()
	dir := t.TempDir()
	socket, token = filepath.Join(dir, "admin"), filepath.Join(dir, "token")
	require.NoError(t, os.WriteFile(token, []byte(adminToken+"\n"), 0o600))
	own := append([]string{"[gateway]", "listen = 127.0.0.1:0", "admin_listen = unix:" + socket, "admin_token_file = " +
		token}, lines...)
	return e2e.WriteConfig(t, s.Config(own...)), socket, token
}

// TestAdminToken: every admin path but /healthz and /readyz requires the token, as a Bearer token
// or as the password of Basic authentication. A reload applies a changed token, and is rejected if
// the file is empty.
func TestAdminToken(t *testing.T) {
	t.Parallel()
	conf, socket, token := tokenConfig(t, storetest.New(t), "pprof = false")
	e2e.ServeConfig(t, conf)
	requireMode(t, socket, 0o600)
	bearer := func(token string) []string { return []string{"Authorization: Bearer " + token} }
	basic := func(text string) []string {
		return []string{"Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(text))}
	}
	askAdmin(t, e2e.DialTo("unix", socket), []adminRequest{
		{"health needs none", "GET", "/healthz", "", nil, 200},
		{"readiness needs none", "GET", "/readyz", "", nil, 200},
		{"metrics do", "GET", "/metrics", "", nil, 401},
		{"purges do", "POST", "/purge?all=1", "", nil, 401},
		{"a path that is only like that of health", "GET", "/healthz/../metrics", "", nil, 401},
		{"the token", "GET", "/metrics", "", bearer(adminToken), 200},
		{"the scheme in small letters", "GET", "/metrics", "", []string{"Authorization: bearer " + adminToken}, 200},
		{"another token", "GET", "/metrics", "", bearer(adminToken + "x"), 401},
		{"the beginning of it", "GET", "/metrics", "", bearer(adminToken[:20]), 401},
		{"an empty one", "GET", "/metrics", "", bearer(""), 401},
		{"another scheme", "GET", "/metrics", "", []string{"Authorization: Digest " + adminToken}, 401},
		{"the token as a password", "GET", "/metrics", "", basic("any name:" + adminToken), 200},
		{"the token as a password without a name", "GET", "/metrics", "", basic(":" + adminToken), 200},
		{"the token as a name", "GET", "/metrics", "", basic(adminToken + ":"), 401},
		{"another password", "GET", "/metrics", "", basic("admin:" + adminToken + "x"), 401},
		{"no colon", "GET", "/metrics", "", basic(adminToken), 401},
		{"the token, not encoded", "GET", "/metrics", "", []string{"Authorization: Basic " + adminToken}, 401},
		{"another site that has it", "GET", "/metrics", "evil.example", bearer(adminToken), 421},
		{"profiles that are off", "GET", "/debug/pprof/", "", bearer(adminToken), 404},
		{"a profile that is off", "GET", "/debug/pprof/heap", "", bearer(adminToken), 404},
	})
	require.NoError(t, os.WriteFile(token, []byte("the-next-token-0123456789"), 0o600))
	askAdmin(t, e2e.DialTo("unix", socket), []adminRequest{
		{"reload", "POST", "/reload", "", bearer(adminToken), 200},
		{"the old token", "GET", "/metrics", "", bearer(adminToken), 401},
		{"the new token", "GET", "/metrics", "", bearer("the-next-token-0123456789"), 200},
	})
	require.NoError(t, os.WriteFile(token, nil, 0o600))
	askAdmin(t, e2e.DialTo("unix", socket), []adminRequest{
		{"a reload without a token", "POST", "/reload", "", bearer("the-next-token-0123456789"), 422},
		{"the token stays", "GET", "/metrics", "", bearer("the-next-token-0123456789"), 200},
	})
}

// TestAdminCommands: purge, prefetch and explain reach a gateway by its socket, with the token from
// a file or from the configuration.
func TestAdminCommands(t *testing.T) {
	t.Parallel()
	s := storetest.New(t)
	f := s.Normal("jpg", s.Bytes(100))
	conf, socket, token := tokenConfig(t, s)
	e2e.ServeConfig(t, conf)
	for name, flags := range map[string][]string{
		"socket and token file":  {"-admin", "unix:" + socket, "-admin-token-file", token},
		"from the configuration": {"-c", conf},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := e2e.Run(t, append(append([]string{"purge"}, flags...), "-id", f.ID.String())...)
			require.Equal(t, 0, code, stderr)
			require.Equal(t, "applied by 1 of 1 gateways\n", stdout)
			code, stdout, stderr = e2e.Run(t, append(append([]string{"prefetch"}, flags...), f.ID.String())...)
			require.Equal(t, 0, code, "%s%s", stdout, stderr)
			require.Contains(t, stdout, "done: 1 file, 0 failed")
		})
	}
	code, stdout, stderr := e2e.Run(t, "explain", "-admin", "unix:"+socket, "-admin-token-file", token, f.ID.String())
	require.Equal(t, 0, code, stderr)
	require.Contains(t, stdout, "the file of this host")
	code, _, stderr = e2e.Run(t, "purge", "-admin", "unix:"+socket, "-all")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "401")
	require.Contains(t, stderr, "admin_token_file")
}

// TestPurgeWithoutRedis: while Redis is unreachable, a purge reaches one gateway, and the command
// asks to repeat it.
func TestPurgeWithoutRedis(t *testing.T) {
	t.Parallel()
	p := e2e.Serve(t, storetest.New(t), "[redis]", "addresses = 127.0.0.1:1")
	code, stdout, stderr := e2e.Run(t, "purge", "-admin", p.AdminAddr, "-all")
	require.Equal(t, 1, code)
	require.Empty(t, stderr)
	require.Equal(t, "applied by this gateway; others are not known\n"+
		"redis does not answer, so no other gateway could be asked: repeat the purge\n", stdout)
}
