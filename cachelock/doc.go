// Package cachelock is a library of distributed locks on Redis.
package cachelock
