// Command library is another program that uses the packages of this module: see docs/locks.md. Its
// argument is the address of a Redis.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/cachelock"

	"github.com/redis/go-redis/v9"
)

func main() {
	rdb := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	defer rdb.Close()
	locks := cachelock.New(rdb, cachelock.Options{})
	defer locks.Close()
	ctx := context.Background()
	lock, err := locks.Acquire(ctx, "thumbnail:42", cachelock.LockOptions{Policy: cachelock.WaitFor(time.Minute)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("/group1/M00/00/0C/x.jpg?" + antisteal.Query("key", "M00/00/0C/x.jpg", 1700000000))
	if err := lock.Release(ctx); err != nil {
		log.Fatal(err)
	}
}
