package config

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/internal/httpserver/fileselect"

	"github.com/stretchr/testify/require"
)

func TestHeaders(t *testing.T) {
	c := clean(t, base+"tracker_server = 10.0.0.9:22122\n[headers]\nx-frame-options = DENY\nCache-Control =\n"+
		"[gateway]\ncors_origin = https://A.example\n[headers jpg group2/]\nX-A = b = c # d\n"+
		"[headers]\nAccess-Control-Allow-Credentials = true\n")
	require.Len(t, c.Headers, 3)
	require.Equal(t, []HeaderField{{"X-Frame-Options", "DENY"}, {"Cache-Control", ""}}, c.Headers[0].Fields)
	require.Equal(t, []HeaderField{{"X-A", "b = c # d"}}, c.Headers[1].Fields)
	require.True(t, c.Headers[1].Files.Match("group2", 0, "JPG"))
	require.False(t, c.Headers[1].Files.Match("group1", 0, "jpg"))
	require.Empty(t, c.Headers[2].Fields)
	require.True(t, c.Gateway.CORSCredentials)
	require.Equal(t, []string{"https://a.example"}, c.Gateway.CORSOrigins)
	_, problems := load(t, base+"[headers jpg]\nX-A = 1\nX-A = 2\n")
	require.Equal(t, 1, found(problems, Warning, 5, "is written already"))
}

// TestBadHeadersAndPages: each text of the table has an error at its last line.
func TestBadHeadersAndPages(t *testing.T) {
	for text, want := range map[string]string{
		"[headers]\nContent-Length = 5":                                                  "computes",
		"[headers]\nContent-Type = a/b":                                                  "[types]",
		"[headers]\nX-Cache = HIT":                                                       "x_cache",
		"[headers]\nX A = 1":                                                             "is not the name",
		"[headers]\nX-A = a\x01b":                                                        "control characters",
		"[headers]\nno value":                                                            "without =",
		"[headers]\nAccess-Control-Allow-Credentials = true":                             "cors_origin",
		"[headers]\nAccess-Control-Allow-Credentials = yes":                              "no other value",
		"[headers jpg]\nAccess-Control-Allow-Credentials = true":                         "for all files",
		"[headder jpg]":                                                                  "did you mean [headers ...]",
		"[error_pages]\n200 = /x":                                                        "no status of an error",
		"[error_pages]\nall = /x":                                                        "no status of an error",
		"[error_pages]\n404 =":                                                           "names no file",
		"[gateway]\ncors_origin = https://a.example/":                                    "no origin",
		"[gateway]\ncors_origin = https://a.example, *":                                  "beside other origins",
		"[gateway]\ncors_max_age = soon":                                                 "duration",
		"[gateway]\nfilename_parameters = a b":                                           "no name of a parameter",
		"[gateway]\nfilename_parameters = name,token":                                    "another meaning",
		"[gateway]\naccess_log_format = $remote_adr $status":                             "did you mean $remote_addr",
		"[gateway]\naccess_log_format = $status $nothing_like_it":                        "no variable",
		"[gateway]\naccess_log_format = 100$ $status":                                    "dollar sign",
		"[gateway]\naccess_log_format = commbined":                                       "combined, json",
		"[gateway]\naccess_log_except = *.jpg":                                           "extension",
		"[gateway]\ncors_origin = *\n[headers]\nAccess-Control-Allow-Credentials = true": "cors_origin",
	} {
		c, problems := load(t, base+text)
		require.Nil(t, c, text)
		require.Equal(t, 1, found(problems, Error, strings.Count(base+text, "\n")+1, want), "%q: %v", text, problems)
	}
	first := strings.Count(base, "\n") + 1
	_, problems := load(t, base+"[headers *.jpg]\nX-A = 1\n")
	require.Equal(t, 1, found(problems, Error, first, "neither an extension"))
	_, problems = load(t, base+strings.Repeat("[headers]\nX-A = 1\n[types]\nx = a/b\n", fileselect.MaxSelectors+1))
	require.Equal(t, 1, found(problems, Error, first+4*fileselect.MaxSelectors+1, "more than"))
}

// TestMisplacedKeys: a key is no header and no address, and a word is no boolean.
func TestMisplacedKeys(t *testing.T) {
	for text, want := range map[string]string{
		"[headers]\nhttp.anti_steal.check_token = true": "is no header",
		"[headers jpg]\nhttp.anti_steal.secret_key = s": "belongs in the global section",
		"[headers]\ndeny = all":                         "belongs in [access]",
		"[headers]\nmax_ranges = 2":                     "belongs in [gateway]",
		"[headers]\nmax_rangs = 1":                      "did you mean gateway.max_ranges",
		"[headers]\nX.Y = 1":                            "write a name such as X-Frame-Options",
		"[address_map]\ndeny = 10.0.0.1":                "belongs in [access]",
		"[gateway]\ntls_redirect = enable":              "neither true nor false",
		"[redis]\ntls = enable":                         "neither true nor false",
	} {
		_, problems := load(t, base+text)
		require.Equal(t, 1, found(problems, Error, 4, want), "%q: %v", text, problems)
	}
	c, problems := load(t, base+"[headers]\nX_Site = 1")
	require.Empty(t, problems)
	require.Len(t, c.Headers, 1)
}

func TestErrorPages(t *testing.T) {
	dir := put(t, map[string]string{"here.html": "x", "big.html": strings.Repeat("x", MaxErrorPage+1),
		"sub/c.conf": base + "[error_pages]\n404 = ../here.html\n5XX = missing.html\n403 = ../big.html\n4xx = .\n"})
	c, problems := Load(filepath.Join(dir, "sub/c.conf"))
	require.Empty(t, problems)
	require.Equal(t, filepath.Join(dir, "here.html"), c.ErrorPages[404])
	require.Equal(t, filepath.Join(dir, "sub/missing.html"), c.ErrorPages[5])
	require.Equal(t, c.ErrorPages[5], maps.Collect(c.Paths())["error_pages.5xx"])
	problems = c.Check(time.Now())
	require.Zero(t, found(problems, Error, 4))
	require.Equal(t, 1, found(problems, Error, 5, "cannot read the file"))
	require.Equal(t, 1, found(problems, Error, 6, "has more than"))
	require.Equal(t, 1, found(problems, Error, 7, "cannot read the file"))
	require.NoError(t, os.Remove(filepath.Join(dir, "here.html")))
	require.Equal(t, 1, found(c.Check(time.Now()), Error, 4, "cannot read the file"))
}
