package app

import (
	"path/filepath"
	"slices"
	"strings"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/internal/admin"
	"fastdfs-gateway/internal/config"
	"fastdfs-gateway/internal/gateway"
	"fastdfs-gateway/internal/httpserver/certificates"
	"fastdfs-gateway/internal/i18n"
	"fastdfs-gateway/internal/origin"
	"fastdfs-gateway/storage/local"
)

// This file turns a configuration into the options of the packages, which do not import config.

// storeOptions returns the options of the store: the store paths of the groups on this host.
func storeOptions(cfg *config.Config) local.Options {
	var opts local.Options
	for _, g := range cfg.Groups {
		if len(g.StorePaths) > 0 {
			opts.Groups = append(opts.Groups, local.GroupPaths{Name: g.Name, StorePaths: g.StorePaths})
		}
	}
	return opts
}

// worthCopying is the largest content that costs no more to send from memory than by sendfile(2),
// which copies nothing: both take the same time at about 10 KB, and at 64 KB sending from memory
// takes a fifth more.
const worthCopying = 8 << 10

// fileCacheOptions returns the limits of the cache of local files. 0 means none in a configuration,
// and the default in options.
func fileCacheOptions(cfg *config.Config) local.FileCacheOptions {
	c := &cfg.OpenFileCache
	body := c.MaxBody
	onlyPlain := len(cfg.Gateway.TLSCert) == 0
	if onlyPlain && !slices.ContainsFunc(cfg.Gateway.Listen, isUnix) { // sendfile(2) can be used everywhere
		body = min(body, worthCopying)
	}
	return local.FileCacheOptions{
		MaxFiles: orNone(maxFiles(cfg, OpenFiles())), Valid: orNone(c.Valid),
		MaxBody: orNone(body), Memory: orNone(c.Memory),
	}
}

func isUnix(address string) bool { return strings.HasPrefix(address, "unix:") }

func orNone[N ~int | ~int64](n N) N {
	if n == 0 {
		return -1
	}
	return n
}

// handlerOptions returns the settings of a configuration for requests, and the secrets of tokens.
func handlerOptions(cfg *config.Config) (o gateway.Options, secrets []string, err error) {
	g, anti := &cfg.Gateway, &cfg.AntiSteal
	if anti.CheckToken || cfg.Image.Enabled {
		if secrets, err = anti.ReadSecrets(); err != nil {
			return o, nil, i18n.Errorf("%w; see secret_files in [antisteal]", err)
		}
	}
	o = gateway.Options{
		GroupInURL: cfg.URLHasGroupName, Group: cfg.GroupName, URLPrefix: g.URLPrefix,
		Types: cfg.Types, DefaultType: cfg.DefaultType,
		ActiveContent: gateway.ActiveContent(g.ActiveContent), LogTokens: g.LogTokens,
		MaxRanges: g.MaxRanges, CacheControl: g.CacheControl, XCache: g.XCache,
		DropBehind: cfg.OpenFileCache.DropBehind, FilenameParameters: append([]string{}, g.FilenameParameters...),
		CORS: gateway.CORS{Origins: g.CORSOrigins, Expose: g.CORSExpose, Headers: g.CORSHeaders,
			MaxAge: orNone(g.CORSMaxAge), Credentials: g.CORSCredentials},
	}
	if err := addPages(&o, cfg); err != nil {
		return o, nil, err
	}
	if !cfg.MultiRange {
		o.MaxRanges = 1 // a request for several ranges gets the whole file
	}
	o.RedirectScheme, o.RedirectPort = g.RedirectScheme, g.RedirectPort
	if cfg.FLV {
		o.FLVExtension = cfg.FLVExtension
	}
	o.HealthPath, o.Proxies = g.HealthPath, proxies(g)
	addImages(&o, cfg, secrets)
	if err := addRules(&o, cfg); err != nil || !anti.CheckToken {
		return o, secrets, err
	}
	o.Tokens = antisteal.NewChecker(antisteal.Options{Secrets: secrets, TTL: anti.TTL})
	o.BypassName, o.BypassValue, o.FailStatus = anti.BypassHeader, anti.BypassValue, anti.FailStatus
	if anti.FailFile != "" {
		o.FailFile, err = readPage("http.anti_steal.token_check_fail", anti.FailFile, config.MaxPage, cfg)
	}
	return o, secrets, err
}

// originOptions returns the options of the Resolver for a handler with the options o.
func originOptions(o *gateway.Options, cfg *config.Config, u *Upstreams, store origin.Store) origin.Options {
	options := u.options
	options.Store = store
	options.MaxSlot = func() int64 { return u.maxSlot(cfg) }
	options.Targets = origin.Targets{Prefix: o.URLPrefix, Group: o.GroupInURL, Tokens: o.Tokens}
	return options
}

// addPages adds the headers of files and the error pages.
func addPages(o *gateway.Options, cfg *config.Config) error {
	for _, section := range cfg.Headers {
		headers := gateway.HeaderSection{Files: section.Files}
		for _, field := range section.Fields {
			headers.Fields = append(headers.Fields, gateway.HeaderField(field))
		}
		o.Headers = append(o.Headers, headers)
	}
	for status, path := range cfg.ErrorPages {
		page, err := readPage("a page of [error_pages]", path, config.MaxErrorPage, cfg)
		if err != nil {
			return err
		}
		if o.ErrorPages == nil {
			o.ErrorPages = map[int]*gateway.Page{}
		}
		o.ErrorPages[status] = page
	}
	return nil
}

// readPage reads a file that is kept in memory, of at most limit bytes.
func readPage(name, path string, limit int, cfg *config.Config) (*gateway.Page, error) {
	body, _, err := config.ReadBounded(path, limit)
	if err != nil {
		return nil, i18n.Errorf("cannot read %s %q: %w", name, path, err)
	}
	contentType, ok := cfg.Types[strings.ToLower(strings.TrimPrefix(filepath.Ext(path), "."))]
	if !ok {
		contentType = cfg.DefaultType
	}
	return &gateway.Page{Body: body, Type: contentType}, nil
}

// loadCertificates reads tls_cert and tls_key; nil where there are none.
func loadCertificates(cfg *config.Config) (*certificates.Set, error) {
	pairs := cfg.Gateway.Certificates()
	if len(pairs) == 0 {
		return nil, nil
	}
	set, err := certificates.Load(pairs)
	if err != nil {
		return nil, i18n.Errorf("cannot use tls_cert and tls_key: %w", err)
	}
	return set, nil
}

// adminAccess returns the access rules of the admin listener.
func adminAccess(cfg *config.Config) (admin.Access, error) {
	g := &cfg.Gateway
	a := admin.Access{Hosts: g.AdminHosts, NoProfiles: !g.Profiles}
	if g.AdminTokenFile == "" {
		return a, nil
	}
	var err error
	if a.Token, err = config.ReadSecretFile(g.AdminTokenFile); err != nil {
		return a, i18n.Errorf("%w; see admin_token_file in [gateway]", err)
	}
	return a, nil
}

// HostProblems returns the problems of a configuration on this host that config.Load and Check do
// not find, but a start of the gateway does.
func HostProblems(cfg *config.Config) []config.Problem {
	return slices.Concat(accountProblem(cfg), diskProblem(cfg))
}
