package redistest

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// clusterMasters is the number of masters of a cluster. Each has one replica.
const clusterMasters = 3

// slots is the number of slots of a Redis Cluster.
const slots = 16384

// Cluster is a Redis Cluster of three masters with a replica each.
type Cluster struct {
	t     testing.TB
	nodes []*Server // the masters first
	admin *redis.ClusterClient
}

// The time without a message after which nodes consider another one as failed. Nodes exchange
// messages at least twice within it, so it is short while the state of a new cluster spreads.
// Afterwards it is long: a node on a slow machine has not failed.
const (
	talkative = 1000 // milliseconds
	patient   = 600_000
)

// StartCluster starts six nodes, makes them a cluster, and returns when every node reports that the
// cluster is complete. KillMasterOf makes a replica replace its killed master; by itself the
// replica does that only after minutes. The end of the test stops the nodes.
func StartCluster(t testing.TB) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range 2 * clusterMasters {
		c.nodes = append(c.nodes, Start(t, "--cluster-enabled", "yes", "--cluster-node-timeout", strconv.Itoa(patient),
			"--cluster-replica-validity-factor", "0", "--cluster-allow-replica-migration", "no",
			"--repl-diskless-sync-delay", "0"))
	}
	c.meet()
	c.share()
	for _, timeout := range []int{talkative, patient} {
		for _, node := range c.nodes {
			c.do(node, "config", "set", "cluster-node-timeout", timeout)
		}
		for _, node := range c.nodes {
			await(t, "the cluster is whole", func(ctx context.Context) bool { return c.whole(ctx, node) })
		}
	}
	c.admin = c.Client()
	return c
}

// meet introduces the nodes to each other, and repeats a failed handshake.
func (c *Cluster) meet() {
	c.t.Helper()
	for i, node := range c.nodes {
		c.do(node, "cluster", "set-config-epoch", i+1)
	}
	for _, node := range c.nodes {
		await(c.t, "the nodes know each other", func(ctx context.Context) bool {
			nodes, err := node.admin().ClusterNodes(ctx).Result()
			if err != nil {
				return false
			}
			known := true
			for _, other := range c.nodes {
				if other != node && !strings.Contains(nodes, other.Addr()+"@") {
					c.do(node, "cluster", "meet", "127.0.0.1", other.port)
					known = false
				}
			}
			return known && !strings.Contains(nodes, "handshake") && strings.Count(nodes, "\n") == len(c.nodes)
		})
	}
}

// share assigns the slots to the masters, and a replica to each master.
func (c *Cluster) share() {
	c.t.Helper()
	for i := range clusterMasters {
		c.do(c.nodes[i], "cluster", "addslotsrange", i*slots/clusterMasters, (i+1)*slots/clusterMasters-1)
		id, err := c.nodes[i].admin().ClusterMyID(context.Background()).Result()
		if err != nil {
			c.t.Fatalf("cannot ask %s for its id: %v", c.nodes[i].Addr(), err)
		}
		c.do(c.nodes[i+clusterMasters], "cluster", "replicate", id)
	}
}

// whole reports whether a node sees the whole cluster, and has a link to its replica or master.
func (c *Cluster) whole(ctx context.Context, node *Server) bool {
	nodes, err := node.admin().ClusterNodes(ctx).Result()
	if err != nil || strings.Count(nodes, "slave ") != clusterMasters {
		return false
	}
	return c.info(ctx, node, "cluster_state:ok") &&
		(infoHas(ctx, node.Addr(), "replication", "role:master", "connected_slaves:1") ||
			infoHas(ctx, node.Addr(), "replication", "role:slave", "master_link_status:up"))
}

// info reports whether the CLUSTER INFO of a node has a line.
func (c *Cluster) info(ctx context.Context, node *Server, line string) bool {
	info, err := node.admin().ClusterInfo(ctx).Result()
	return err == nil && strings.Contains(info, line+"\r\n")
}

func (c *Cluster) do(node *Server, args ...any) {
	c.t.Helper()
	if err := node.admin().Do(context.Background(), args...).Err(); err != nil {
		c.t.Fatalf("%v on %s: %v", args, node.Addr(), err)
	}
}

// Addrs returns the addresses of all nodes.
func (c *Cluster) Addrs() []string { return addrs(c.nodes) }

// Client returns a new client of the cluster, which the end of the test closes. The client notices
// a failover within about a second; by default a client needs more than ten if a killed node
// refuses connections.
func (c *Cluster) Client() *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs(), DialerRetries: 1, DialTimeout: waitBudget, ReadTimeout: waitBudget,
		ClusterStateReloadInterval: 200 * time.Millisecond,
	})
	c.t.Cleanup(func() { client.Close() })
	return client
}

// MasterOf returns the node that serves the slot of a key now.
func (c *Cluster) MasterOf(key string) *Server {
	c.t.Helper()
	c.admin.ReloadState(context.Background())
	var master *Server
	await(c.t, "the key has a master", func(ctx context.Context) bool {
		client, err := c.admin.MasterForKey(ctx, key)
		if err != nil {
			return false
		}
		for _, node := range c.nodes {
			if node.proc != nil && node.Addr() == client.Options().Addr {
				master = node
			}
		}
		if master == nil {
			c.admin.ReloadState(ctx)
		}
		return master != nil
	})
	return master
}

// KillMasterOf kills the master of a key's slot. It returns the killed node when the replica is the
// new master and every running node reports that the cluster is complete again.
func (c *Cluster) KillMasterOf(key string) *Server {
	c.t.Helper()
	dead := c.MasterOf(key)
	id, err := dead.admin().ClusterMyID(context.Background()).Result()
	if err != nil {
		c.t.Fatalf("cannot ask %s for its id: %v", dead.Addr(), err)
	}
	replica := c.replicaOf(id)
	dead.Kill()
	c.do(replica, "cluster", "failover", "takeover")
	for _, node := range c.nodes {
		if node.proc == nil {
			continue
		}
		await(c.t, "the replica is the master", func(ctx context.Context) bool {
			nodes, err := node.admin().ClusterNodes(ctx).Result()
			return err == nil && !ownsSlots(nodes, id) && c.info(ctx, node, "cluster_state:ok")
		})
	}
	return dead
}

// replicaOf returns the replica of the master with an id.
func (c *Cluster) replicaOf(id string) *Server {
	c.t.Helper()
	for _, node := range c.nodes {
		if node.proc == nil {
			continue
		}
		nodes, err := node.admin().ClusterNodes(context.Background()).Result()
		if err != nil {
			c.t.Fatalf("cannot ask %s for the nodes: %v", node.Addr(), err)
		}
		for line := range strings.Lines(nodes) {
			if strings.Contains(line, "myself,slave "+id) {
				return node
			}
		}
	}
	c.t.Fatalf("nobody follows %s", id)
	return nil
}

// ownsSlots reports whether the text of CLUSTER NODES assigns slots to the node with an id: a line
// has eight fields, then the ranges of slots.
func ownsSlots(nodes, id string) bool {
	for line := range strings.Lines(nodes) {
		fields := strings.Fields(line)
		if len(fields) > 8 && fields[0] == id {
			return true
		}
	}
	return false
}
