package redistest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"fastdfs-gateway/internal/testing/certtest"
)

// Authority signs certificates for one test.
type Authority struct {
	File string // its certificate, in PEM

	t    testing.TB
	cert *certtest.Certificate
}

// NewAuthority makes an authority. Only clients and servers with its File trust it.
func NewAuthority(t testing.TB) *Authority {
	t.Helper()
	dir := t.TempDir()
	a := &Authority{t: t, cert: certtest.New(t, certtest.Order{Name: "authority of a test", CA: true}),
		File: filepath.Join(dir, "ca.crt")}
	a.cert.Write(t, a.File, filepath.Join(dir, "ca.key"))
	return a
}

// Issue makes a certificate for servers at the hosts, which are names or addresses, and for
// clients. It returns the names of two files in PEM.
func (a *Authority) Issue(hosts ...string) (certFile, keyFile string) {
	a.t.Helper()
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	certtest.New(a.t, certtest.Order{Name: "gateway", Hosts: hosts, By: a.cert}).Write(a.t, certFile, keyFile)
	return certFile, keyFile
}

// TLS is a server with a second port for TLS, where it requires a certificate of its clients. Addr
// returns the address of the port without TLS.
type TLS struct {
	*Server
	port int
}

// TLSAddr returns the server's address for TLS.
func (s *TLS) TLSAddr() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// StartTLS starts a server with a certificate for 127.0.0.1, as Start does.
func (a *Authority) StartTLS(args ...string) *TLS {
	a.t.Helper()
	port, settings := a.settings()
	for _, s := range settings {
		args = append(args, "--"+s[0], s[1])
	}
	return &TLS{Start(a.t, args...), port}
}

// StartTLSCluster starts a cluster of one node, which sends clients its address for TLS.
func (a *Authority) StartTLSCluster() *TLS {
	a.t.Helper()
	s := a.StartTLS("--cluster-enabled", "yes", "--tls-cluster", "yes", "--cluster-announce-ip", "127.0.0.1")
	check(a.t, s.admin().Do(context.Background(), "cluster", "addslotsrange", 0, slots-1).Err())
	await(a.t, "the cluster is whole", func(ctx context.Context) bool {
		state, err := s.admin().ClusterInfo(ctx).Result()
		return err == nil && len(state) > 0 && state[:len("cluster_state:ok")] == "cluster_state:ok"
	})
	return s
}

// StartTLSSentinel starts one Sentinel that watches a server by TLS, under MasterName and with the
// server's user and password.
func (a *Authority) StartTLSSentinel(master *TLS, user, password string) *TLS {
	a.t.Helper()
	port, settings := a.settings()
	conf := fmt.Sprintf("tls-replication yes\nsentinel monitor %[1]s 127.0.0.1 %[2]d 1\n"+
		"sentinel auth-user %[1]s %[3]s\nsentinel auth-pass %[1]s %[4]s\n",
		MasterName, master.port, user, password)
	for _, s := range settings {
		conf += s[0] + " " + s[1] + "\n"
	}
	dir := a.t.TempDir()
	path := filepath.Join(dir, "sentinel.conf")
	check(a.t, os.WriteFile(path, []byte(conf), 0o600))
	s := &TLS{launched(a.t, &Server{dir: dir, config: path}), port}
	await(a.t, "the Sentinel sees the master", func(ctx context.Context) bool {
		return infoHas(ctx, s.Addr(), "sentinel", "status=ok")
	})
	return s
}

// settings returns the settings of a server for TLS, with a port that the end of the test releases.
func (a *Authority) settings() (port int, list [][2]string) {
	a.t.Helper()
	port, err := takePort()
	check(a.t, err)
	a.t.Cleanup(func() { givePort(port) })
	cert, key := a.Issue("127.0.0.1")
	return port, [][2]string{
		{"tls-port", strconv.Itoa(port)}, {"tls-cert-file", cert}, {"tls-key-file", key}, {"tls-ca-cert-file", a.File},
	}
}

// Protect adds a user that may run the commands of rules on keys and channels that begin with
// prefix. The default user keeps only PING, INFO and HELLO.
func (s *Server) Protect(user, password, prefix string, rules ...any) {
	s.t.Helper()
	ctx, client := context.Background(), s.Client()
	set := append([]any{"acl", "setuser", user, "on", ">" + password, "~" + prefix + "*", "&" + prefix + "*"}, rules...)
	check(s.t, client.Do(ctx, set...).Err())
	check(s.t, client.Do(ctx, "acl", "setuser", "default", "-@all", "+ping", "+info", "+hello").Err())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
