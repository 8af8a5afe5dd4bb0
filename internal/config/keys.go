package config

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
)

// setting is one key. The tables of settings are the only list of keys: for defaults, parsing,
// unknown keys and the test of the sample file.
type setting struct {
	key  string
	def  string // the default, as one would write it
	into field
	doc  string // one line, without a full stop
}

// tables are the settings by section, bound to the fields of one Config.
type tables map[string][]setting

// sections returns the names of the sections, sorted; the global one is first.
func (t tables) sections() []string { return slices.Sorted(maps.Keys(t)) }

// settings yields every key with its full name, in the order of the sections.
func (c *Config) settings() iter.Seq2[string, setting] {
	return func(yield func(string, setting) bool) {
		tables := newTables(c)
		for _, section := range tables.sections() {
			for _, s := range tables[section] {
				if !yield(full(section, s.key), s) {
					return
				}
			}
		}
	}
}

func newTables(c *Config) tables {
	group := groupKeys(&c.GroupName, &c.StoragePort, &c.pathCount)
	return tables{
		"":                slices.Concat(moduleKeys(c), group, httpKeys(c)),
		"gateway":         gatewayKeys(&c.Gateway),
		"access":          accessKeys(&c.Access),
		"open_file_cache": openFileCacheKeys(&c.OpenFileCache),
		"cache":           cacheKeys(&c.Cache),
		imageSection:      imageKeys(&c.Image),
		"redis":           redisKeys(&c.Redis),
		"lock":            lockKeys(&c.Lock),
		"peer":            peerKeys(&c.Peer),
		"antisteal":       antiStealKeys(&c.AntiSteal),
	}
}

// addressMap is the section whose keys are addresses.
const addressMap = "address_map"

// trackerServer is the only key of which each line counts.
const trackerServer = "tracker_server"

func moduleKeys(c *Config) []setting {
	return []setting{
		{"base_path", "", text(&c.BasePath),
			"folder of FastDFS on this host; store_path0 where that is not set"},
		{trackerServer, "", trackers(&c.TrackerServers),
			"host:port of a tracker, one line each"},
		{"load_fdfs_parameters_from_tracker", "false", moduleFlag(&c.ParametersFromTracker),
			"ask the trackers for storage_sync_file_max_delay and the storage ids"},
		{"connect_timeout", "30", moduleSeconds(&c.ConnectTimeout, Warning),
			"seconds to connect to a tracker or storage"},
		{"network_timeout", "30", moduleSeconds(&c.NetworkTimeout, Warning),
			"seconds for one read or write to a tracker or storage"},
		{"storage_sync_file_max_delay", "86400", moduleSeconds(&c.SyncMaxDelay, Warning),
			"seconds after which a file must be on every storage of its group"},
		{"use_storage_id", "false", moduleFlag(&c.UseStorageID),
			"file ids hold storage ids, not addresses"},
		{"storage_ids_filename", "storage_ids.conf", path(&c.StorageIDsFile),
			"the list of storage ids"},
		{"url_have_group_name", "false", moduleFlag(&c.URLHasGroupName),
			"URLs begin with the group: /group1/M00/..."},
		{"group_count", "0", moduleNumber(&c.groupCount, 0, maxGroups, Error),
			"groups on this host, each in a section [groupN]; 0 = one group, in the global section"},
		{"response_mode", "proxy", moduleChoice(&c.ResponseMode, "proxy", "redirect"),
			"what to do with a file of another host"},
		{"if_alias_prefix", "", text(new(string)),
			"has no effect: see local_ips"},
		{"flv_support", "true", moduleFlag(&c.FLV),
			"serve parts of flv files by start= and end="},
		{"flv_extension", "flv", text(&c.FLVExtension),
			"extension of flv files"},
		{"anti_steal_bypass_header_name", "", headerName(&c.AntiSteal.BypassHeader),
			"a request with this header needs no token"},
		{"anti_steal_bypass_header_value", "", hidden(text(&c.AntiSteal.BypassValue)),
			"the value that the header must have"},
		{"log_level", "info", logLevel(&c.LogLevel),
			"emerg, alert, crit, error, warn, notice, info or debug"},
		{"log_filename", "", path(&c.LogFile),
			"the log; empty = standard error"},
	}
}

// groupKeys are the keys of a group section, and of the global section for the only group, without
// store_path0, store_path1 ... (see storePathIndex).
func groupKeys(name *string, port, pathCount *int) []setting {
	return []setting{
		{"group_name", "", text(name),
			"the group of the store paths"},
		{"storage_server_port", "23000", moduleNumber(port, 1, math.MaxUint16, Warning),
			"port of the storage servers of the group"},
		{"store_path_count", "1", moduleNumber(pathCount, 0, maxStorePaths, Error),
			"store paths of the group on this host; 0 = none"},
	}
}

func httpKeys(c *Config) []setting {
	return []setting{
		{"http.default_content_type", "application/octet-stream", header(&c.DefaultType),
			"Content-Type of files with an unknown extension"},
		{"http.mime_types_filename", "", path(&c.TypesFile),
			"list of media types by extension"},
		{"http.multi_range.enabled", "true", moduleFlag(&c.MultiRange),
			"send several ranges in one response"},
		{"http.anti_steal.check_token", "false", flag(&c.AntiSteal.CheckToken),
			"serve only requests with a valid token"},
		{"http.anti_steal.token_ttl", "600", moduleSeconds(&c.AntiSteal.TTL, Error),
			"seconds for which a token is valid"},
		{"http.anti_steal.secret_key", "", hidden(text(&c.AntiSteal.Secret)),
			"the secret of the tokens"},
		{"http.anti_steal.token_check_fail", "", path(&c.AntiSteal.FailFile),
			"file sent instead of an error to a request with a bad token"},
	}
}

func gatewayKeys(g *Gateway) []setting {
	return slices.Concat(gatewayListenKeys(g), gatewayProxyKeys(g), gatewayResponseKeys(g), gatewayProcessKeys(g),
		gatewaySourceKeys(g))
}

func gatewayListenKeys(g *Gateway) []setting {
	return []setting{
		{"listen", ":8888", needed(listeners(&g.Listen)),
			"where to serve files: host:port or unix:/path, with commas between them"},
		{"tls_listen", "", listeners(&g.TLSListen),
			"where to serve files by TLS; empty = on listen if tls_cert is set"},
		{"admin_listen", "127.0.0.1:8889", listener(&g.AdminListen),
			"where to serve health, metrics and admin; empty = nowhere"},
		{"admin_hosts", "", hosts(&g.AdminHosts),
			"names under which admin_listen is asked, besides addresses and localhost"},
		{"admin_token_file", "", secretIn(path(&g.AdminTokenFile)),
			"file with the token that admin_listen wants; empty = none"},
		{"admin_socket_mode", "0600", fileMode(&g.AdminSocketMode),
			"permissions of admin_listen = unix:/path"},
		{"pprof", "true", flag(&g.Profiles),
			"serve profiles on admin_listen"},
		{"tls_cert", "", paths(&g.TLSCert),
			"certificate chains in PEM, with commas between them, for tls_listen or listen"},
		{"tls_key", "", secretIn(paths(&g.TLSKey)),
			"private keys in PEM, in the order of tls_cert"},
		{"tls_min_version", "1.2", choice(&g.TLSMinVersion, "1.2", "1.3"),
			"oldest version of TLS: 1.2 or 1.3"},
		{"tls_redirect", "false", flag(&g.TLSRedirect),
			"redirect plain requests on listen to https, at the first port of tls_listen"},
		{"http2", "true", flag(&g.HTTP2),
			"serve HTTP/2 by TLS"},
		{"url_prefix", "", prefix(&g.URLPrefix),
			"path in front of every file id"},
	}
}

func gatewayResponseKeys(g *Gateway) []setting {
	return []setting{
		{"max_ranges", "16", number(&g.MaxRanges, 1, 1000),
			"most ranges in one request; for more the whole file is sent"},
		{"cache_control", "", cacheControl(&g.CacheControl),
			"Cache-Control of files"},
		{"cors_origin", "", origins(&g.CORSOrigins),
			"* or origins whose pages may read responses, with commas between them; empty = none"},
		{"cors_expose", "Accept-Ranges, Content-Length, Content-Range, ETag", header(&g.CORSExpose),
			"headers that these pages may read"},
		{"cors_headers", "Range, If-Range", header(&g.CORSHeaders),
			"headers that requests of these pages may have"},
		{"cors_max_age", "86400", duration(&g.CORSMaxAge, 0, 365*24*time.Hour),
			"time for which browsers keep the response to a preflight request"},
		{"filename_parameters", "filename, attname", parameters(&g.FilenameParameters),
			"query parameters with the name for saving a file; the first one present counts"},
		{"charset", "", charset(&g.Charset),
			"charset of text types; empty = none is sent"},
		{"x_cache", "false", flag(&g.XCache),
			"send X-Cache, which names the source of a file"},
		{"active_content", "sandbox", choice(&g.ActiveContent, "inline", "sandbox", "attachment"),
			"how HTML, SVG and XML are sent: inline, sandbox or attachment"},
	}
}

func gatewayProcessKeys(g *Gateway) []setting {
	const ms, day = time.Millisecond, 24 * time.Hour
	return []setting{
		{"read_timeout", "10s", duration(&g.ReadTimeout, ms, day),
			"time for a client to send its request"},
		{"idle_timeout", "75s", duration(&g.IdleTimeout, ms, day),
			"time for which an idle connection is kept, unless a new one needs its place"},
		{"slot_max_size", "16MB", size(&g.SlotMaxSize),
			"largest trunk slot that is served, unless the trackers have a larger one"},
		{"min_send_rate", "1KB", size(&g.MinSendRate),
			"bytes a second that a client must take over 30 seconds; 0 = any rate will do"},
		{"max_connections", "100000", number(&g.MaxConnections, 1, 10_000_000),
			"most connections at a time"},
		{"max_connections_per_ip", "0", numberOr(&g.MaxConnectionsPerIP, "unlimited", 0, 10_000_000),
			"most connections at a time from one address; 0 = an eighth of all; unlimited"},
		{"shutdown_timeout", "30s", duration(&g.ShutdownTimeout, 0, day),
			"time for running responses to end at a stop"},
		{"access_log", "", accessLog(&g.AccessLog),
			"a file, - for standard output, or empty or off for none"},
		{"access_log_format", "combined", logFormat(&g.AccessLogFormat),
			"combined, json, or a template with variables of nginx such as $remote_addr"},
		{"access_log_except", "", selectors(&g.AccessLogExcept),
			"files whose requests have no line: selectors as in [headers jpg group2/], with commas between them"},
		{"log_tokens", "false", flag(&g.LogTokens),
			"write tokens to the logs as they are"},
		{"user", "", text(&g.User),
			"account to serve as, once listen and tls_key have been opened as root; empty = no change"},
		{"landlock", "true", flag(&g.Landlock),
			"keep this process from files that the configuration does not name"},
	}
}

func gatewaySourceKeys(g *Gateway) []setting {
	return []setting{
		{"upstream", "storage", choice(&g.Upstream, "storage", "http"),
			"how remote files are fetched: storage (FastDFS protocol) or http (the source's web server)"},
		{"upstream_http_port", "", number(&g.UpstreamHTTPPort, 1, math.MaxUint16),
			"port of upstream = http; empty = that of the request, for tls_listen that of listen"},
		{"redirect_scheme", "", choice(&g.RedirectScheme, "http", "https"),
			"http or https; empty = as the request came"},
		{"redirect_port", "", number(&g.RedirectPort, 1, math.MaxUint16),
			"empty = as the request came"},
		{"try_replicas", "true", flag(&g.TryReplicas),
			"ask all storages of a group before a file counts as missing"},
		{"allow_sources", "", sources(&g.AllowSources, &g.AllowLocalNetworks),
			"networks, or local-networks, allowed as sources besides the known storages"},
		{"local_ips", "", addresses(&g.LocalIPs),
			"addresses that count as this host; empty = those of its interfaces"},
	}
}

func openFileCacheKeys(o *OpenFileCache) []setting {
	return []setting{
		{"max_files", "10000", number(&o.MaxFiles, 0, 10_000_000),
			"open files kept; 0 = none"},
		{"valid", "1s", duration(&o.Valid, 0, 24*time.Hour),
			"time after which an open file is looked at again"},
		{"max_body", "64KB", size(&o.MaxBody),
			"largest local file kept in memory; at most 8KB where all listeners are plain TCP"},
		{"memory", "128MB", size(&o.Memory),
			"memory for such files; 0 = none"},
		{"drop_behind", "0", size(&o.DropBehind),
			"responses of at least this size leave nothing in the page cache; 0 = never"},
	}
}

func cacheKeys(c *Cache) []setting {
	const second, year = time.Second, 365 * 24 * time.Hour
	return []setting{
		{"memory_max", "256MB", budget(&c.MemoryMax),
			"memory for files of other hosts"},
		{"disk_path", "", path(&c.DiskPath),
			"folder for files of other hosts; empty = none on disk"},
		{"disk_max", "10GB", budget(&c.DiskMax),
			"disk space for them; on a full disk a 32nd of the oldest goes each minute"},
		{"ttl", "10m", duration(&c.TTL, second, year),
			"time for which an entry is fresh"},
		{"mutable_ttl", "1s", duration(&c.MutableTTL, 0, year),
			"the same for appender and slave files, which can change"},
		{"copies", "2", number(&c.Copies, 0, 1024),
			"gateways of a fleet that keep a segment on disk; 0 = all"},
		{"negative_ttl", "5s", duration(&c.NegativeTTL, 0, year),
			"time for which a missing file is remembered"},
		{"stale_while_revalidate", "1h", duration(&c.StaleWhileRevalidate, 0, year),
			"time beyond ttl for which an entry is served while it is refreshed"},
		{"stale_if_error", "24h", duration(&c.StaleIfError, 0, year),
			"time beyond ttl for which an entry is served while its source fails"},
	}
}

func redisKeys(r *Redis) []setting {
	return []setting{
		{"addresses", "", redisEndpoints(r),
			"host:port, or rediss://host:port for TLS, with commas between them; empty = no Redis"},
		{"mode", "single", choice(&r.Mode, "single", "sentinel", "cluster"),
			"single, sentinel or cluster"},
		{"master_name", "", text(&r.MasterName),
			"name of the master, for sentinel"},
		{"username", "", text(&r.Username),
			"user name"},
		{"password", "", hidden(text(&r.Password)),
			"password"},
		{"password_file", "", secretIn(path(&r.PasswordFile)),
			"file with the password, read at start"},
		{"sentinel_auth", "false", flag(&r.SentinelAuth),
			"the sentinels ask for the same user name and password"},
		{"db", "0", number(&r.DB, 0, 65535),
			"number of the database"},
		{"tls", "false", flag(&r.TLS),
			"connect by TLS"},
		{"ca_file", "", path(&r.CAFile),
			"authorities in PEM for the certificate of Redis; empty = those of the system"},
		{"cert_file", "", path(&r.CertFile),
			"certificate chain in PEM of this gateway, for Redis"},
		{"key_file", "", secretIn(path(&r.KeyFile)),
			"private key in PEM of cert_file"},
		{"key_prefix", "fdfs:", text(&r.KeyPrefix),
			"beginning of every key"},
	}
}

func lockKeys(l *Lock) []setting {
	return []setting{
		{"ttl", "10s", duration(&l.TTL, time.Second, time.Hour),
			"time after which the lock of a dead gateway is free"},
		{"wait", "30s", duration(&l.Wait, time.Second, time.Hour),
			"longest wait for a lock"},
	}
}

func peerKeys(p *Peer) []setting {
	return []setting{
		{"listen", ":8887", listener(&p.Listen),
			"where other gateways are served, by TLS"},
		{"advertise", "", baseURL(&p.Advertise),
			"https URL for other gateways, or auto: the address towards Redis; empty = they do not ask this one"},
		{"secret", "", hidden(text(&p.Secret)),
			"secret of the fleet, the same on all gateways"},
		{"secret_file", "", secretIn(path(&p.SecretFile)),
			"file with the secret, read at start and on reload"},
	}
}

func antiStealKeys(a *AntiSteal) []setting {
	return []setting{
		{"extra_secrets", "", hidden(members(&a.ExtraSecrets)),
			"further secrets, with commas between them"},
		{"secret_files", "", secretIn(paths(&a.SecretFiles)),
			"files with a further secret each, read at start and on reload"},
		{"fail_status", "400", parsed(&a.FailStatus, "write 400 or 403", "is no status for a rejected token",
			func(v string) (int, bool) { n, _ := strconv.Atoi(v); return n, v == "400" || v == "403" }),
			"status of a rejected token: 400 or 403"},
	}
}
