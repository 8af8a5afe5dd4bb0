package logtemplate

import (
	"maps"
	"net/textproto"
	"slices"
	"strings"
)

// ID names a variable, or a family of them.
type ID uint8

// The variables.
const (
	RemoteAddr ID = iota + 1
	PeerAddr      // $realip_remote_addr: of the connection, not of the client that a proxy names
	RemotePort
	RemoteUser
	TimeLocal
	TimeISO8601
	Msec
	Request
	RequestMethod
	RequestURI
	URI
	Args
	IsArgs
	RequestID
	RequestLength
	RequestTime
	ServerProtocol
	Status
	BodyBytesSent
	BytesSent
	Host
	Scheme
	ServerAddr
	ServerPort
	Hostname
	PID
	Connection
	ConnectionRequests
	SSLProtocol
	SSLCipher
	SSLServerName
	CacheStatus
	UpstreamTime
	None     // variables of nginx that have no value in a gateway
	HTTP     // a field of the request
	SentHTTP // a field of the response
	Arg      // a parameter of the query
)

// byName maps the names of variables, without families, to their IDs. Common formats use the
// variables of None.
var byName = map[string]ID{
	"remote_addr": RemoteAddr, "realip_remote_addr": PeerAddr, "remote_port": RemotePort, "remote_user": RemoteUser,
	"time_local": TimeLocal, "time_iso8601": TimeISO8601, "msec": Msec,
	"request": Request, "request_method": RequestMethod, "request_uri": RequestURI, "uri": URI, "document_uri": URI,
	"args": Args, "query_string": Args, "is_args": IsArgs, "request_id": RequestID,
	"request_length": RequestLength, "request_time": RequestTime, "server_protocol": ServerProtocol,
	"status": Status, "body_bytes_sent": BodyBytesSent, "bytes_sent": BytesSent,
	"host": Host, "scheme": Scheme, "server_addr": ServerAddr, "server_port": ServerPort,
	"hostname": Hostname, "pid": PID, "connection": Connection, "connection_requests": ConnectionRequests,
	"ssl_protocol": SSLProtocol, "ssl_cipher": SSLCipher, "ssl_server_name": SSLServerName,
	"upstream_cache_status": CacheStatus, "upstream_response_time": UpstreamTime,
	"upstream_addr": None, "upstream_status": None, "upstream_connect_time": None, "upstream_header_time": None,
	"gzip_ratio": None, "server_name": None, "pipe": None,
}

// families are the prefixes of variables whose names end with the name of a field or a parameter.
var families = []struct {
	prefix string
	id     ID
}{{"http_", HTTP}, {"sent_http_", SentHTTP}, {"arg_", Arg}}

// Lookup returns the variable of a name without $.
func Lookup(name string) (Variable, bool) {
	if id, ok := byName[name]; ok {
		return Variable{ID: id}, true
	}
	for _, f := range families {
		rest, ok := strings.CutPrefix(name, f.prefix)
		switch {
		case !ok || rest == "":
		case f.id == Arg:
			return Variable{f.id, rest}, true
		default:
			return Variable{f.id, textproto.CanonicalMIMEHeaderKey(strings.ReplaceAll(rest, "_", "-"))}, true
		}
	}
	return Variable{}, false
}

// Names returns the names of all variables, without families, sorted.
func Names() []string { return slices.Sorted(maps.Keys(byName)) }
