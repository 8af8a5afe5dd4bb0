package cachelock_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"fastdfs-gateway/cachelock"
	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// rdb is a client of a Redis on this host.
var rdb = redis.NewClient(&redis.Options{
	Dialer: func(ctx context.Context, network, _ string) (net.Conn, error) {
		address, err := redistest.SharedAddr()
		if err != nil {
			return nil, err
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	},
	MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // has goroutines
})

// A process needs one client.
func ExampleNew() {
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: []string{"127.0.0.1:6379"}})
	locks := cachelock.New(rdb, cachelock.Options{Prefix: "thumbnails", Holder: "gateway-1:8080"})
	defer locks.Close()
}

func ExampleClient_Acquire() {
	ctx := context.Background()
	locks := cachelock.New(rdb, cachelock.Options{Holder: "gateway-1:8080"})
	defer locks.Close()
	lock, err := locks.Acquire(ctx, "report", cachelock.LockOptions{TTL: time.Minute})
	if err != nil {
		return
	}
	_, err = locks.Acquire(ctx, "report", cachelock.LockOptions{})
	var held *cachelock.HeldError
	if errors.As(err, &held) {
		fmt.Println(held.Key, "is held by", held.Holder)
	}
	fmt.Println(lock.Release(ctx))
	// Output:
	// report is held by gateway-1:8080
	// <nil>
}

// Work that takes longer than the ttl renews its lock, and stops when the lock is lost.
func ExampleLock_Context() {
	ctx := context.Background()
	locks := cachelock.New(rdb, cachelock.Options{})
	defer locks.Close()
	lock, err := locks.Acquire(ctx, "export",
		cachelock.LockOptions{TTL: 30 * time.Second, Renew: true, MaxHold: time.Hour})
	if err != nil {
		return
	}
	defer lock.Release(ctx)
	for part := range 3 {
		if lock.Context().Err() != nil {
			fmt.Println("stopped:", context.Cause(lock.Context()))
			return
		}
		fmt.Println("part", part)
	}
	// Output:
	// part 0
	// part 1
	// part 2
}

func ExampleGuard() {
	type size struct {
		File  string
		Width int
	}
	locks := cachelock.New(rdb, cachelock.Options{})
	defer locks.Close()
	thumbnail, err := cachelock.Guard(locks, "thumbnail:{{.File}}:{{.Width}}",
		cachelock.LockOptions{Policy: cachelock.DefaultRetry()},
		func(_ context.Context, s size) (string, error) { return fmt.Sprintf("%s-%d.jpg", s.File, s.Width), nil })
	if err != nil {
		return
	}
	fmt.Println(thumbnail(context.Background(), size{"cat", 200}))
	// Output: cat-200.jpg <nil>
}

func ExampleFolders_Begin() {
	ctx := context.Background()
	locks := cachelock.New(rdb, cachelock.Options{})
	defer locks.Close()
	folders, err := locks.Folders("project 8")
	if err != nil {
		return
	}
	lock, err := folders.Begin(ctx, cachelock.OpCopyDir, "photos", "backup", cachelock.LockOptions{})
	if err != nil {
		return
	}
	_, err = folders.Begin(ctx, cachelock.OpUpload, "photos", "", cachelock.LockOptions{})
	fmt.Println("an upload to it is rejected:", errors.Is(err, cachelock.ErrHeld))
	upload, err := folders.Begin(ctx, cachelock.OpUpload, "backup", "", cachelock.LockOptions{})
	fmt.Println("an upload to its target:", err)
	fmt.Println(upload.Release(ctx), lock.Release(ctx))
	// Output:
	// an upload to it is rejected: true
	// an upload to its target: <nil>
	// <nil> <nil>
}
