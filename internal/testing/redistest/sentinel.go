package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"fastdfs-gateway/internal/testing/eventually"

	"github.com/redis/go-redis/v9"
)

// MasterName is the name of the master in the Sentinels.
const MasterName = "test-master"

// Sentinel is a master with two replicas, watched by three Sentinels of which two must agree.
type Sentinel struct {
	t         testing.TB
	servers   []*Server // the first one starts as the master
	sentinels []*Server
}

// StartSentinel starts a master, two replicas and three Sentinels, and returns when all know each
// other. KillMaster makes the Sentinels replace a killed master. By themselves they do that only
// after minutes, as they cannot distinguish a killed server from one on a slow machine. The end of
// the test stops all of them.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	quick := []string{"--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}
	s.servers = append(s.servers, Start(t, quick...))
	for range 2 {
		master := strconv.Itoa(s.servers[0].port)
		s.servers = append(s.servers, Start(t, append(quick, "--replicaof", "127.0.0.1 "+master)...))
	}
	// The Sentinels get the list of replicas from the master, so the replicas start first.
	for _, replica := range s.servers[1:] {
		await(t, "a replica follows its master", func(ctx context.Context) bool {
			return infoHas(ctx, replica.Addr(), "replication", "master_link_status:up")
		})
	}
	for range 3 {
		s.sentinels = append(s.sentinels, startSentinel(t, s.servers[0].port))
	}
	for _, one := range s.sentinels {
		await(t, "the Sentinels know each other", func(ctx context.Context) bool {
			return infoHas(ctx, one.Addr(), "sentinel", "status=ok", "slaves=2,sentinels=3")
		})
	}
	return s
}

// startSentinel starts one Sentinel. Its settings must be in a file that it can write.
func startSentinel(t testing.TB, master int) *Server {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "sentinel.conf")
	conf := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\nsentinel down-after-milliseconds %[1]s 600000\n",
		MasterName, master)
	if err := os.WriteFile(path, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	s := launched(t, &Server{dir: dir, config: path})
	// The default periods of a Sentinel are seconds, which is too long for a test.
	client := s.Client()
	args := []any{"sentinel", "debug", "info-period", 500, "publish-period", 200, "ask-period", 200, "ping-period", 200}
	if err := client.Do(context.Background(), args...).Err(); err != nil {
		t.Fatalf("cannot quicken the Sentinel on %s: %v", s.Addr(), err)
	}
	return s
}

// Addrs returns the addresses of the Sentinels.
func (s *Sentinel) Addrs() []string { return addrs(s.sentinels) }

// Client returns a new client that follows the master. The end of the test closes it.
func (s *Sentinel) Client() *redis.Client {
	client := redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName: MasterName, SentinelAddrs: s.Addrs(), DialerRetries: 1, DialTimeout: waitBudget,
		ReadTimeout: waitBudget,
	})
	s.t.Cleanup(func() { client.Close() })
	return client
}

// Master returns the server that the first Sentinel names as the master, when it has that role.
func (s *Sentinel) Master() *Server {
	s.t.Helper()
	var master *Server
	await(s.t, "there is a master", func(ctx context.Context) bool {
		master = s.named(ctx, s.sentinels[0])
		return master != nil && infoHas(ctx, master.Addr(), "replication", "role:master")
	})
	return master
}

// named returns the running server that a Sentinel names as the master; nil = none, or a killed
// one.
func (s *Sentinel) named(ctx context.Context, sentinel *Server) *Server {
	client := redis.NewSentinelClient(&redis.Options{Addr: sentinel.Addr()})
	defer client.Close()
	addr, err := client.GetMasterAddrByName(ctx, MasterName).Result()
	if err != nil {
		return nil
	}
	for _, server := range s.servers {
		if server.proc != nil && server.Addr() == net.JoinHostPort(addr[0], addr[1]) {
			return server
		}
	}
	return nil
}

// KillMaster kills the master. It returns the killed server when the Sentinels have made another
// server the master.
func (s *Sentinel) KillMaster() *Server {
	s.t.Helper()
	dead := s.Master()
	dead.Kill()
	await(s.t, "the Sentinels name the same new master", func(ctx context.Context) bool {
		first := s.named(ctx, s.sentinels[0])
		if first == nil { // none yet; a second order is rejected
			s.sentinels[0].admin().Do(ctx, "sentinel", "failover", MasterName)
			return false
		}
		for _, other := range s.sentinels[1:] {
			if s.named(ctx, other) != first {
				return false
			}
		}
		return true
	})
	s.Master()
	return dead
}

// infoHas reports whether a section of a server's INFO has all the texts.
func infoHas(ctx context.Context, addr, section string, texts ...string) bool {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, DialerRetries: 1})
	defer client.Close()
	info, err := client.Info(ctx, section).Result()
	for _, text := range texts {
		if !strings.Contains(info, text) {
			return false
		}
	}
	return err == nil
}

// await waits until ok returns true, for eventually.Limit at most. ctx ends then.
func await(t testing.TB, what string, ok func(ctx context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), eventually.Limit)
	defer cancel()
	eventually.True(t, func() bool { return ok(ctx) }, what)
}

func addrs(servers []*Server) []string {
	list := make([]string, len(servers))
	for i, s := range servers {
		list[i] = s.Addr()
	}
	return list
}
