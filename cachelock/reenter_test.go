package cachelock_test

import (
	"strings"
	"testing"
	"time"

	"fastdfs-gateway/cachelock"

	"github.com/stretchr/testify/require"
)

// reenterMistakes are mistakes that can be made in the scripts of a reentrant lock, each with a
// check that has to notice it.
var reenterMistakes = []struct {
	name, script, right, wrong string
	check                      func(t require.TestingT, b *bench)
}{
	{"takes what another has", "reenter", "if holder and holder ~= ARGV[1] then", "if false then", checkOwnersExclude},
	{"ends with the shortest hold", "reenter", "math.max(ttl, tonumber(ARGV[2]))", "tonumber(ARGV[2])",
		checkLongestHoldCounts},
	{"begins anew each time", "reenter", "if not holder or fence == 0 then", "if true then", checkEachHoldCounts},
	{"counts a repeated request twice", "reenter", "KEYS[5], ARGV[5], '1', 'fence'",
		"KEYS[5], ARGV[5], '1', time[2], '1', 'fence'", checkRepeatedHold},
	{"keeps the holds of a lock that was lost", "reenter", "redis.call('DEL', KEYS[5])", "", checkLostHoldsAreGone},
	{"extends a hold that was lost", "reenter", "ARGV[6] == '1' and", "false and", checkLostHoldStaysLost},
	{"keeps holds for ever", "reenter", "redis.call('PEXPIRE', KEYS[5], till)", "", checkHoldsExpire},
	{"enters no queue", "reenter", "		enqueue()\n", "", checkOwnersQueue},
	{"stays in the queue", "reenter",
		"redis.call('ZREM', KEYS[3], ARGV[3])\n	redis.call('ZREM', KEYS[4], ARGV[3])\nend", "end", checkOwnersQueue},
	{"releases what another has", "reenter_release", "redis.call('GET', KEYS[1]) ~= ARGV[1] or", "",
		checkAnothersStays},
	{"releases by a hold that was lost", "reenter_release", "redis.call('HDEL', KEYS[4], ARGV[3]) == 0",
		"redis.call('HDEL', KEYS[4], ARGV[3]) < 0", checkLostHoldStaysLost},
	{"is free after the first release", "reenter_release", "redis.call('HLEN', KEYS[4]) > 1",
		"redis.call('HLEN', KEYS[4]) > 2", checkEachHoldCounts},
	{"is never free", "reenter_release", "redis.call('HLEN', KEYS[4]) > 1", "redis.call('HLEN', KEYS[4]) > 0",
		checkEachHoldCounts},
	{"tells nobody", "reenter_release", "wake(KEYS[1], KEYS[2], KEYS[3])", "", checkOwnersQueue},
}

func TestReenterMistakes(t *testing.T) {
	t.Parallel()
	for _, m := range reenterMistakes {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			noticed(t, m.check, func(c *cachelock.Client) { swap(c, m.script, m.right, m.wrong) })
		})
	}
}

// owner makes an attempt of an owner.
func (b *bench) owner(owner, hold, waiter string, ttl time.Duration) (cachelock.Hold, int64, error) {
	return cachelock.AttemptHold(everyDay, b.c, "k", owner, hold, waiter, ttl)
}

func checkOwnersExclude(t require.TestingT, b *bench) {
	_, _, err := b.owner("a:", "1", "", time.Minute)
	require.NoError(t, err)
	_, _, err = b.owner("b:", "1", "", time.Minute)
	require.ErrorIs(t, err, cachelock.ErrHeld)
}

func checkLongestHoldCounts(t require.TestingT, b *bench) {
	first, _, err := b.owner("a:", "1", "", time.Hour)
	require.NoError(t, err)
	second, _, err := b.owner("a:", "2", "", time.Second)
	require.NoError(t, err)
	require.NoError(t, second.Extend(everyDay, time.Second))
	for _, name := range []string{nameOf("k"), strings.Replace(nameOf("k"), ":lock:", ":holds:", 1)} {
		require.Greater(t, b.admin.PTTL(everyDay, name).Val(), time.Minute)
	}
	require.NoError(t, first.Release(everyDay))
}

// Each hold has to be released, and has the fence of the first.
func checkEachHoldCounts(t require.TestingT, b *bench) {
	first, fence, err := b.owner("a:", "1", "", time.Minute)
	require.NoError(t, err)
	second, again, err := b.owner("a:", "2", "", time.Minute)
	require.NoError(t, err)
	require.Equal(t, fence, again)
	require.NoError(t, first.Release(everyDay))
	require.EqualValues(t, 1, b.admin.Exists(everyDay, nameOf("k")).Val())
	require.NoError(t, second.Release(everyDay))
	require.Zero(t, b.admin.Exists(everyDay, nameOf("k")).Val())
}

func checkRepeatedHold(t require.TestingT, b *bench) {
	_, _, err := b.owner("a:", "1", "", time.Minute)
	require.NoError(t, err)
	hold, _, err := b.owner("a:", "1", "", time.Minute)
	require.NoError(t, err)
	require.NoError(t, hold.Release(everyDay))
	require.Zero(t, b.admin.Exists(everyDay, nameOf("k")).Val())
	require.ErrorIs(t, hold.Release(everyDay), cachelock.ErrLost)
}

// A hold from before the lock was lost blocks no other holder.
func checkLostHoldsAreGone(t require.TestingT, b *bench) {
	_, _, err := b.owner("a:", "1", "", time.Minute)
	require.NoError(t, err)
	b.admin.Del(everyDay, nameOf("k"))
	hold, _, err := b.owner("a:", "2", "", time.Minute)
	require.NoError(t, err)
	require.NoError(t, hold.Release(everyDay))
	require.Zero(t, b.admin.Exists(everyDay, nameOf("k")).Val())
}

// It is neither extended nor released, although its owner has the lock again.
func checkLostHoldStaysLost(t require.TestingT, b *bench) {
	lost, _, err := b.owner("a:", "1", "", time.Minute)
	require.NoError(t, err)
	b.admin.Del(everyDay, nameOf("k"))
	hold, _, err := b.owner("a:", "2", "", time.Minute)
	require.NoError(t, err)
	require.ErrorIs(t, lost.Extend(everyDay, time.Minute), cachelock.ErrLost)
	require.ErrorIs(t, lost.Release(everyDay), cachelock.ErrLost)
	require.NoError(t, hold.Release(everyDay))
}

func checkHoldsExpire(t require.TestingT, b *bench) {
	_, _, err := b.owner("a:", "1", "", time.Minute)
	require.NoError(t, err)
	for _, key := range b.admin.Keys(everyDay, "*").Val() {
		if !strings.HasSuffix(key, ":fence") {
			require.Positive(t, b.admin.PTTL(everyDay, key).Val(), key)
		}
	}
}

// A refused owner enters the queue, is notified of the last release, and leaves the queue when it
// has the lock.
func checkOwnersQueue(t require.TestingT, b *bench) {
	onMessage := b.admin.Subscribe(everyDay, "cachelock:wake:waiter")
	defer onMessage.Close()
	_, err := onMessage.Receive(everyDay)
	require.NoError(t, err)
	hold, _, err := b.owner("a:", "1", "", time.Minute)
	require.NoError(t, err)
	_, _, err = b.owner("b:", "1", "waiter", time.Minute)
	require.ErrorIs(t, err, cachelock.ErrHeld)
	queue := func() []string { return b.admin.ZRange(everyDay, "cachelock:{0}:queue:k", 0, -1).Val() }
	require.Equal(t, []string{"waiter"}, queue())
	require.NoError(t, hold.Release(everyDay))
	require.NoError(t, b.admin.Publish(everyDay, "cachelock:wake:waiter", "nobody has told").Err())
	message, err := onMessage.ReceiveMessage(everyDay)
	require.NoError(t, err)
	require.Equal(t, "waiter "+nameOf("k"), message.Payload)
	_, _, err = b.owner("b:", "1", "waiter", time.Minute)
	require.NoError(t, err)
	require.Empty(t, queue())
}

// What another has is not released, although the holds are there yet.
func checkAnothersStays(t require.TestingT, b *bench) {
	hold, _, err := b.owner("a:", "1", "", time.Minute)
	require.NoError(t, err)
	b.takeOver("k")
	require.ErrorIs(t, hold.Release(everyDay), cachelock.ErrLost)
	require.Equal(t, "another", b.admin.Get(everyDay, nameOf("k")).Val())
}
