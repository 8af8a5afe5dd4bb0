// Command library is another program that uses the packages of this module: see docs/locks.md.
package main

import (
	"context"
	"fmt"
	"log"
	"time"

	"fastdfs-gateway/antisteal"
	"fastdfs-gateway/cachelock"
)

func main() {
	locks := cachelock.NewLocal(cachelock.Options{}) // with Redis: cachelock.New
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
