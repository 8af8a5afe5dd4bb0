package cachelock_test

import (
	"context"
	"errors"
	"fmt"

	"fastdfs-gateway/cachelock"
)

func ExampleClient_Folders() {
	ctx := context.Background()
	client := cachelock.NewLocal(cachelock.Options{Holder: "alice"}) // or New, with a Redis client
	defer client.Close()
	folders, err := client.Folders("project 7")
	if err != nil {
		fmt.Println(err)
		return
	}
	lock, err := folders.Acquire(ctx, "docs/2026", cachelock.Exclusive, cachelock.LockOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, path := range []string{"docs", "docs/2026/11/plan.txt", "docs/2026-11"} {
		other, err := folders.Acquire(ctx, path, cachelock.Shared, cachelock.LockOptions{})
		if held := (*cachelock.HeldError)(nil); errors.As(err, &held) {
			fmt.Printf("%s: %s has %s\n", path, held.Holder, held.Key)
			continue
		}
		fmt.Println(path + ": free")
		_ = other.Release(ctx) // or it expires
	}
	fmt.Println(lock.Release(ctx))
	// Output:
	// docs: alice has docs/2026
	// docs/2026/11/plan.txt: alice has docs/2026
	// docs/2026-11: free
	// <nil>
}

func ExampleFolders_Begin() {
	ctx := context.Background()
	client := cachelock.NewLocal(cachelock.Options{})
	defer client.Close()
	folders, err := client.Folders("project 7")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := folders.Begin(ctx, cachelock.OpCopyDir, "photos", "backup", cachelock.LockOptions{}); err != nil {
		fmt.Println(err)
		return
	}
	_, err = folders.Begin(ctx, cachelock.OpCopyFile, "photos/cat.jpg", "desk", cachelock.LockOptions{})
	fmt.Println("another copy from it:", err)
	_, err = folders.Begin(ctx, cachelock.OpUpload, "photos", "", cachelock.LockOptions{})
	fmt.Println("an upload to it is rejected:", errors.Is(err, cachelock.ErrHeld))
	_, err = folders.Begin(ctx, cachelock.OpUpload, "backup", "", cachelock.LockOptions{})
	fmt.Println("an upload to its target:", err)
	// Output:
	// another copy from it: <nil>
	// an upload to it is rejected: true
	// an upload to its target: <nil>
}
