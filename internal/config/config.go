// Package config reads mod_fastdfs.conf: the keys of the nginx module, those of an included
// http.conf, the lists that they name (mime.types, storage_ids.conf), and the gateway's own
// sections ([gateway], [cache], ...), which the module ignores.
//
//	c, problems := config.Load("/etc/fdfs/mod_fastdfs.conf")
//	for _, p := range problems {
//		fmt.Println(p) // /etc/fdfs/mod_fastdfs.conf:12: warning: ...; ...
//	}
//	if c == nil {
//		os.Exit(1) // at least one problem is an error
//	}
//	for _, p := range c.Check(time.Now()) { // looks at this host: folders, files, clock
//		fmt.Println(p)
//	}
//
// Every problem has file, line and advice. Problems never show the values of secrets.
//
// The dialect: `#` begins a comment at the start of a line only; there are no quotes, escapes or
// line continuation; `=` is the only delimiter; names are case-sensitive; sections of one name are
// merged and `[]` is the global one. Only the gateway's own sections have variables of the
// environment, ${NAME}. `#include FILE` reads another file, relative to the folder of the file with
// this line; an included file begins in the global section, and after it the global section is the
// current one again. If a scalar key is written twice, the last value counts, with a warning. An
// empty value of a number, duration or size means the default. The relative name of a file is
// relative to the folder of the file with the key; base_path and the store paths are taken as
// written.
package config

import (
	"io/fs"
	"log/slog"
	"net/netip"
	"time"

	"fastdfs-gateway/internal/fdfs"
	"fastdfs-gateway/internal/httpserver/certificates"
	"fastdfs-gateway/internal/httpserver/fileselect"
)

// Config is a whole configuration with all defaults. It does not change after Load, and any number
// of goroutines may read it.
type Config struct {
	File  string   // the file given to Load
	Files []string // every file read, in order: File, its includes, mime.types, storage ids

	BasePath              string
	ConnectTimeout        time.Duration // to trackers and storages
	NetworkTimeout        time.Duration // of one read or write to them
	TrackerServers        []Tracker
	ParametersFromTracker bool          // load_fdfs_parameters_from_tracker
	SyncMaxDelay          time.Duration // storage_sync_file_max_delay
	UseStorageID          bool
	StorageIDsFile        string // path of storage_ids_filename
	StorageIDs            []fdfs.StorageID
	GroupName             string  // group_name at the top; empty in multi-group mode if it is not written
	StoragePort           int     // storage_server_port at the top
	URLHasGroupName       bool    // url_have_group_name
	Groups                []Group // the groups with files on this host; empty on a host without a store
	LogLevel              slog.Level
	LogFile               string // log_filename; empty = standard error
	ResponseMode          string // "proxy" or "redirect"
	FLV                   bool   // flv_support
	FLVExtension          string // without a dot

	DefaultType string            // http.default_content_type
	TypesFile   string            // path of http.mime_types_filename; empty = none
	Types       map[string]string // lower-case extension without dot -> media type: built-in, TypesFile and [types]
	MultiRange  bool              // http.multi_range.enabled
	AntiSteal   AntiSteal

	Gateway        Gateway
	Access         Access
	AccessSections []*AccessSection // of the sections [access SELECTORS], in their order
	OpenFileCache  OpenFileCache
	Cache          Cache
	Image          Image
	Redis          Redis
	Lock           Lock
	Peer           Peer
	AddressMap     map[string]string // address in a file id -> address (or address:port) to use
	Headers        []HeaderSection   // of the sections [headers ...], in their order
	ErrorPages     map[int]string    // path by status, or by 4 or 5 for 4xx or 5xx

	pathCount  int // store_path_count at the top
	groupCount int
	written    map[string]entry // the lines in use, by the full name of their key
}

// Tracker is one tracker server under one or two addresses.
type Tracker struct {
	Addresses []string // host:port
}

// Group is one group whose files are on this host.
type Group struct {
	Name        string
	StoragePort int      // storage_server_port
	StorePaths  []string // by store path index: M00 is StorePaths[0]
}

// AntiSteal holds http.anti_steal.*, the bypass header and [antisteal].
type AntiSteal struct {
	CheckToken   bool
	TTL          time.Duration // whole seconds
	Secret       string
	FailFile     string // path of token_check_fail; empty = respond with FailStatus
	BypassHeader string // a request with this header and BypassValue needs no token; empty = off
	BypassValue  string
	ExtraSecrets []string // accepted besides Secret
	SecretFiles  []string // paths; see ReadSecrets
	FailStatus   int      // 400 or 403
}

// Gateway is the section [gateway].
type Gateway struct {
	Listen              []string // host:port or unix:/path
	TLSListen           []string // same forms; empty = TLSOnListen decides
	AdminListen         string   // same forms; empty = off
	AdminHosts          []string // names in a Host field, besides IP addresses and localhost; small letters
	AdminTokenFile      string   // path; empty = no token
	AdminSocketMode     fs.FileMode
	Profiles            bool     // pprof
	TLSCert, TLSKey     []string // paths of the same number; see Certificates
	TLSMinVersion       string   // "1.2" or "1.3"
	TLSRedirect         bool     // plain requests are redirected to TLSListen
	HTTP2               bool     // on TLS listeners, by ALPN
	TrustedProxies      Networks
	ClientAddress       string // a clientaddr.Method
	HealthPath          string // empty = none
	URLPrefix           string // "" or "/files", never with a slash at the end
	Upstream            string // "storage" or "http"
	UpstreamHTTPPort    int    // 0 = the port of the request; with TLS on TLSListen the one of Listen
	RedirectScheme      string // "", "http" or "https"
	RedirectPort        int    // 0 = the port of the request
	TryReplicas         bool
	AllowSources        []netip.Prefix // of allow_sources
	AllowLocalNetworks  bool           // allow_sources holds local-networks
	LocalIPs            []netip.Addr   // empty = found from the interfaces
	MaxRanges           int
	CacheControl        string
	CORSOrigins         []string // "*", or origins
	CORSExpose          string
	CORSHeaders         string
	CORSMaxAge          time.Duration
	CORSCredentials     bool // of Access-Control-Allow-Credentials in [headers]
	FilenameParameters  []string
	Charset             string // of text types without one; empty = none is sent
	XCache              bool
	ReadTimeout         time.Duration
	IdleTimeout         time.Duration
	SlotMaxSize         int64 // bytes
	MinSendRate         int64 // bytes a second; 0 = off
	MaxConnections      int
	MaxConnectionsPerIP int // 0 = an eighth of MaxConnections; -1 = no limit
	ShutdownTimeout     time.Duration
	AccessLog           string                // "" = off, "-" = standard output, else a path
	AccessLogFormat     string                // "combined", "json", or a template with variables
	AccessLogExcept     []fileselect.Selector // requests for files of any of them have no line
	LogTokens           bool                  // log_tokens
	ActiveContent       string                // "inline", "sandbox" or "attachment"
	User                string                // account of the gateway; empty = the one that started it
	Landlock            bool                  // open only what the configuration names
}

// TLSOnListen reports whether the addresses of listen are served by TLS: there is a certificate,
// and no tls_listen.
func (g *Gateway) TLSOnListen() bool { return len(g.TLSCert) > 0 && len(g.TLSListen) == 0 }

// Certificates returns the files of tls_cert and tls_key.
func (g *Gateway) Certificates() []certificates.Pair {
	pairs := make([]certificates.Pair, min(len(g.TLSCert), len(g.TLSKey)))
	for i := range pairs {
		pairs[i] = certificates.Pair{Cert: g.TLSCert[i], Key: g.TLSKey[i]}
	}
	return pairs
}

// OpenFileCache is the section [open_file_cache].
type OpenFileCache struct {
	MaxFiles   int
	Valid      time.Duration
	MaxBody    int64 // bytes
	Memory     int64 // bytes
	DropBehind int64 // bytes; 0 = never
}

// Cache is the section [cache].
type Cache struct {
	MemoryMax            int64  // bytes
	DiskPath             string // empty = no disk tier
	DiskMax              int64  // bytes
	Copies               int    // gateways that keep a segment on disk; 0 = all
	TTL                  time.Duration
	MutableTTL           time.Duration
	NegativeTTL          time.Duration
	StaleWhileRevalidate time.Duration
	StaleIfError         time.Duration
}

// Folder returns the folder of the disk tier; empty = there is none.
func (c *Cache) Folder() string {
	if c.DiskMax == 0 {
		return ""
	}
	return c.DiskPath
}

// Enabled reports whether there is room for files of other hosts.
func (c *Cache) Enabled() bool { return c.MemoryMax > 0 || c.Folder() != "" }

// Redis is the section [redis].
type Redis struct {
	Addresses    []string // host:port; empty = no Redis
	Mode         string   // "single", "sentinel" or "cluster"
	MasterName   string
	Username     string
	Password     string // see ReadPassword
	PasswordFile string // path; empty = Password
	SentinelAuth bool   // the Sentinels require the same user and password
	DB           int
	TLS          bool   // also by rediss:// in front of the addresses
	CAFile       string // paths; see TLSConfig
	CertFile     string
	KeyFile      string
	KeyPrefix    string

	rediss bool // the addresses begin with rediss://
}

// Lock is the section [lock].
type Lock struct {
	TTL  time.Duration
	Wait time.Duration
}

// AdvertiseAuto is the value of Peer.Advertise for the address from which this host reaches Redis,
// with the port of Peer.Listen.
const AdvertiseAuto = "auto"

// Peer is the section [peer].
type Peer struct {
	Listen     string // host:port where other gateways are served
	Advertise  string // https://host[:port], no path; empty = no peers and no listener; or AdvertiseAuto
	Secret     string // see ReadSecret
	SecretFile string // path; empty = Secret
}
