package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/lua"
	"fastdfs-gateway/tests/lab"
)

// connections to Redis while it is measured, each used by a goroutine of its own.
const connections = 64

// load is one kind of work for Redis.
type load struct {
	name     string
	commands int // in one call of do
	do       func(ctx context.Context) error
}

// redisFigure is what came of a load.
type redisFigure struct {
	load
	perSecond float64       // commands that were executed
	cpu       time.Duration // of the main thread of Redis for one of them
}

// measureRedis lets a redis-server of its own execute locks and heartbeats for about so long each.
func measureRedis(each time.Duration) (_ []redisFigure, err error) {
	dir, err := os.MkdirTemp("", "simulate-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := lab.StartRedis(dir)
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: connections, ContextTimeoutEnabled: true})
	defer rdb.Close()
	locks := cachelock.New(rdb, cachelock.Options{Prefix: "scale", TTL: 10 * time.Second, Shards: 1})
	defer locks.Close()
	ctx := context.Background()
	var figures []redisFigure
	measure := func(l load) (err error) {
		f, err := l.measure(ctx, rdb, each)
		figures = append(figures, f)
		return err
	}
	if err := measure(lockLoad(locks)); err != nil {
		return nil, err
	}
	for _, gateways := range []int{10, 1000} {
		for _, told := range []bool{false, true} {
			l, err := registered(ctx, rdb, gateways, told) // just before, as members expire
			if err == nil {
				err = measure(l)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return figures, nil
}

// lockLoad takes the lock of a file that is wanted once, as a fill does, and gives it back.
func lockLoad(locks *cachelock.Client) load {
	return load{"lock of a download: acquire, release", 2, func(ctx context.Context) error {
		key := fileName(rand.IntN(1e9)) + "#0"
		lock, err := locks.Acquire(ctx, key, cachelock.LockOptions{Renew: true})
		if err != nil {
			return err
		}
		return lock.Release(ctx)
	}}
}

// registered makes the members of a fleet, and gives the load of their heartbeats: as they are
// while the list of members stays the same, or where told, with the list, as each gateway gets it
// once after a change.
func registered(ctx context.Context, rdb *redis.Client, gateways int, told bool) (load, error) {
	prefix, script := fmt.Sprintf("scale-%d:{0}:", gateways), redis.NewScript(lua.FleetSync)
	var keys []string
	for _, name := range []string{"fence", "purges", "base", "gateways", "applied", "records"} {
		keys = append(keys, prefix+name)
	}
	const kept, forgotten, living = 14 * 86_400_000, 86_400_000, 15_000 // milliseconds, as in internal/fleet
	beat := func(ctx context.Context, i int, revision string) ([]any, error) {
		name := gatewayName(i)
		record := name + " " + strings.Repeat("0", 32)
		return script.Run(ctx, rdb, keys, name, 0, 100, kept, forgotten, prefix+"news",
			record, living, revision, 1024).Slice()
	}
	revision := ""
	for i := range gateways {
		answer, err := beat(ctx, i, "")
		if err != nil {
			return load{}, err
		}
		if records, ok := answer[len(answer)-1].([]any); !ok || len(records) <= i {
			return load{}, fmt.Errorf("the heartbeat of gateway %d is answered with %v", i, answer)
		}
		revision, _ = answer[len(answer)-2].(string)
	}
	name := fmt.Sprintf("heartbeat, fleet of %d", gateways)
	if told {
		name, revision = name+", with the list of members", ""
	}
	return load{name, 1, func(ctx context.Context) error {
		answer, err := beat(ctx, rand.IntN(gateways), revision)
		if err == nil && told != (answer[len(answer)-1] != nil) {
			err = fmt.Errorf("a heartbeat is answered with %v", answer)
		}
		return err
	}}, nil
}

// measure runs a load on all connections.
func (l load) measure(ctx context.Context, rdb *redis.Client, each time.Duration) (redisFigure, error) {
	if err := l.do(ctx); err != nil { // loads the scripts
		return redisFigure{}, err
	}
	before, err := mainThread(ctx, rdb)
	if err != nil {
		return redisFigure{}, err
	}
	var running sync.WaitGroup
	var done atomic.Int64
	errs := make([]error, connections)
	start := time.Now()
	for i := range connections {
		running.Go(func() {
			for errs[i] == nil && time.Since(start) < each {
				errs[i] = l.do(ctx)
				done.Add(int64(l.commands))
			}
		})
	}
	running.Wait()
	took := time.Since(start)
	after, err := mainThread(ctx, rdb)
	if err = errors.Join(err, errors.Join(errs...)); err != nil {
		return redisFigure{}, err
	}
	n := done.Load()
	return redisFigure{l, float64(n) / took.Seconds(), (after - before) / time.Duration(n)}, nil
}

// mainThread is the processor time that the thread of Redis that executes commands has taken.
func mainThread(ctx context.Context, rdb *redis.Client) (time.Duration, error) {
	info, err := rdb.Info(ctx, "cpu").Result()
	if err != nil {
		return 0, err
	}
	var sum, found float64
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_sys_main_thread" || name == "used_cpu_user_main_thread" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, fmt.Errorf("cannot understand %q of INFO: %w", line, err)
			}
			sum, found = sum+seconds, found+1
		}
	}
	if found != 2 {
		return 0, errors.New("INFO does not tell the time of the main thread: Redis 6.2 or later is needed")
	}
	return time.Duration(sum * float64(time.Second)), nil
}

const redisHead = `| load | commands/s here | processor time of Redis for a command | commands/s of one full core |
| --- | ---: | ---: | ---: |
`

// redisTable gives the figures in a table.
func redisTable(figures []redisFigure, each time.Duration) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %d processors (%s), %d connections, %v for each row.\n\n", time.Now().Format(time.DateOnly),
		runtime.NumCPU(), runtime.GOARCH, connections, each)
	b.WriteString(redisHead)
	for _, f := range figures {
		fmt.Fprintf(&b, "| %s | %s | %.0f us | %s |\n", f.name, count(f.perSecond), float64(f.cpu)/1000,
			count(f.full()))
	}
	downloads := figures[0].full() / 2
	fmt.Fprintf(&b, "\nSo one core carries the locks of %s downloads/s, which are %.1f GB/s from the storages\n"+
		"at the mean size of the files.\n", count(downloads), downloads*meanSize/1e9)
	return strings.TrimSpace(b.String())
}

// full is the commands per second that take all of the time of one core.
func (f redisFigure) full() float64 { return float64(time.Second) / float64(f.cpu) }
