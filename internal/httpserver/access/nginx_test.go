package access

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"fastdfs-gateway/tests/lab"

	"github.com/stretchr/testify/require"
)

// TestReferersBesideNginx: the decisions are those of valid_referers in nginx. They differ for a
// URL with a user, which browsers do not send: nginx allows http://example.com@evil.test/ by
// example.*.
func TestReferersBesideNginx(t *testing.T) {
	t.Parallel()
	lists := []string{"none x.test", "blocked x.test", "none blocked example.com *.example.com", ".example.com",
		"example.* www.example.*", "Example.COM other.test", "*.example.com/x example.com/ example.*/X",
		`~\.co\.|wWw ~^other`}
	referers := []string{absent, "", "unknown", "http://example.com", "http://example.com/",
		"https://EXAMPLE.com:8443/a?b", "http://www.example.com/", "http://a.b.example.com/x", "http://example.org/",
		"http://example.co.uk/x", "http://www.example.net/", "http://evil.test/", "http://evil.test/example.com",
		"http://example.com.evil.test/",
		"http://evilexample.com/", "HTTP://other.test/", "ftp://example.com/", "//example.com/", "example.com",
		"http://other.test:80"}
	var locations strings.Builder
	for i, list := range lists {
		fmt.Fprintf(&locations,
			"\t\tlocation /%d { valid_referers %s; if ($invalid_referer) { return 403; } return 204; }\n", i, list)
	}
	dir, address := t.TempDir(), lab.Address(lab.Port())
	p, err := lab.RunNginx(dir, address, "error_log stderr crit; events { worker_connections 64; }",
		fmt.Sprintf("\taccess_log off;\n\tserver {\n\t\tlisten %s;\n%s\t}\n", address, locations.String()))
	if errors.Is(err, lab.ErrMissing) {
		t.Skipf("SKIPPED: referers are compared with nothing: %v (apt-get install nginx-light)", err)
	}
	require.NoError(t, err)
	t.Cleanup(p.Stop)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i, list := range lists {
		ours, err := NewReferers(strings.Fields(list))
		require.NoError(t, err)
		for _, referer := range referers {
			req, err := http.NewRequest(http.MethodGet, fmt.Sprintf("http://%s/%d", address, i), nil)
			require.NoError(t, err)
			if referer != absent {
				req.Header["Referer"] = []string{referer}
			}
			resp, err := client.Do(req)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, resp.StatusCode == http.StatusNoContent, allows(ours, referer),
				"%s: %q is %d for nginx", list, referer, resp.StatusCode)
		}
	}
}
