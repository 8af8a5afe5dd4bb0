package cachelock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"fastdfs-gateway/internal/testing/redistest"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// The model is a list of all held claims, and compares paths segment by segment. It generates a
// sequence of steps with the expected result of each step. Then a store executes the sequence.

// modelLock is a held lock of the model.
type modelLock struct {
	token  string
	claims []claim
}

// step is one call with the expected result.
type step struct {
	what   string // acquire, release, extend, expire
	token  string
	claims []claim
	ok     bool            // acquire: granted; else: the token was held
	inWay  map[string]bool // token and path of each claim in the way
}

// folderModel has all held claims, and the steps so far.
type folderModel struct {
	held  []modelLock
	gone  []string // tokens that are not held any more
	steps []step
	names int
}

func (m *folderModel) acquire(claims ...claim) {
	m.names++
	s := step{what: "acquire", token: "token:" + strconv.Itoa(m.names), claims: claims, inWay: map[string]bool{}}
	for _, l := range m.held {
		for _, held := range l.claims {
			for _, wanted := range claims {
				if overlap(segmentsOf(held.path), segmentsOf(wanted.path)) &&
					!mayStart(held.kind, wanted.kind) {
					s.inWay[l.token+held.path] = true
				}
			}
		}
	}
	if s.ok = len(s.inWay) == 0; s.ok {
		m.held = append(m.held, modelLock{s.token, claims})
	}
	m.steps = append(m.steps, s)
}

// end releases or expires a held token.
func (m *folderModel) end(what string, i int) {
	token := m.held[i].token
	m.held = slices.Delete(m.held, i, i+1)
	m.gone = append(m.gone, token)
	m.steps = append(m.steps, step{what: what, token: token, ok: true})
}

// touch extends a held token, or extends or releases one that is not held any more.
func (m *folderModel) touch(what, token string, held bool) {
	m.steps = append(m.steps, step{what: what, token: token, ok: held})
}

// segmentNames are similar to each other, or have a meaning in patterns.
var segmentNames = []string{"A", "AB", "A0", "a.b", "a-b", "a%b", "[x]", "x", "é", ".*", "%a", "A\xff", "A b", "(",
	"A\x01"}

// randomSequence returns a random sequence; draw returns a number below its argument.
func randomSequence(draw func(n int) int) []step {
	m := &folderModel{}
	names := make([]string, 2+draw(3)) // few names, so that paths overlap
	for i := range names {
		names[i] = segmentNames[draw(len(segmentNames))]
	}
	for range 4 + draw(12) {
		switch draw(10) {
		default:
			m.acquire(randomClaims(draw, names)...)
		case 6, 7:
			if len(m.held) > 0 {
				m.end("release", draw(len(m.held)))
			}
		case 8:
			if len(m.held) > 0 {
				m.end("expire", draw(len(m.held)))
			}
		case 9:
			if len(m.held) > 0 {
				m.touch("extend", m.held[draw(len(m.held))].token, true)
			}
			if len(m.gone) > 0 {
				m.touch([]string{"extend", "release"}[draw(2)], m.gone[draw(len(m.gone))], false)
			}
		}
	}
	return m.steps
}

func randomClaims(draw func(n int) int, names []string) []claim {
	path := func() string {
		p := ""
		for range draw(5) {
			p += "/" + names[draw(len(names))]
		}
		return p
	}
	if draw(2) == 0 {
		return []claim{{[]kind{kindShared, kindExclusive}[draw(2)], path()}}
	}
	op := Operation(draw(int(operations)))
	claims := []claim{{kindOf(op, roleSource), path()}}
	if to := path(); op.hasTarget() {
		if within(claims[0].path, to) {
			claims[0].path = "/only" // Begin rejects a target in the source
		}
		claims = append(claims, claim{kindOf(op, roleTarget), to})
	}
	return claims
}

// manyClaims returns a sequence in which many claims lie before a held one in byte order, first
// held, then expired. One call of the script can remove more expired claims than these.
func manyClaims() []step {
	m := &folderModel{}
	m.acquire(claim{kindExclusive, "/p/z"})
	for _, kind := range []kind{kindShared, kindExclusive} {
		for i := range 150 {
			m.acquire(claim{kind, "/p/a" + strconv.Itoa(i)})
		}
		m.acquire(claim{kindShared, "/p"})
		for range 150 {
			m.end("expire", 1)
		}
		m.acquire(claim{kindShared, "/p"})
		m.acquire(claim{kindExclusive, "/p"})
	}
	m.end("release", 0)
	m.acquire(claim{kindExclusive, "/p"})
	return m.steps
}

// check compares the reply to an acquisition with the step.
func (s step) check(fence int64, err error, last *int64) error {
	held := (*HeldError)(nil)
	switch {
	case s.ok && err != nil:
		return fmt.Errorf("%v: rejected though it is free: %v", s, err)
	case s.ok && fence <= *last:
		return fmt.Errorf("%v: the fence %d comes after %d", s, fence, *last)
	case s.ok:
		*last = fence
	case !errors.As(err, &held):
		return fmt.Errorf("%v: granted though it is held: %v", s, err)
	default:
		path, _ := canonical(held.Key)
		if !s.inWay["token:"+held.Holder+path] || held.TTL <= 0 {
			return fmt.Errorf("%v: wrong one in the way: %v", s, err)
		}
	}
	return nil
}

// checkEnd compares the reply to an extension or a release with the step.
func (s step) checkEnd(err error) error {
	if s.ok && err != nil || !s.ok && !errors.Is(err, ErrLost) {
		return fmt.Errorf("%v: unexpected reply: %v", s, err)
	}
	return nil
}

// redisPlayer executes sequences in Redis, each in a separate namespace and in one pipeline.
type redisPlayer struct {
	c      *Client
	rdb    *redis.Client
	played int
}

func newRedisPlayer(t *testing.T) *redisPlayer {
	rdb := redistest.Shared(t).Client()
	c := New(rdb, Options{Prefix: t.Name() + randomHex()})
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	for _, script := range []*redis.Script{folderAcquireScript, folderExtendScript, folderReleaseScript} {
		require.NoError(t, script.Load(t.Context(), rdb).Err())
	}
	return &redisPlayer{c: c, rdb: rdb}
}

func (p *redisPlayer) play(steps []step) error {
	ctx := context.Background()
	p.played++
	names := p.c.folderKeys("n" + strconv.Itoa(p.played))
	pipe := p.rdb.Pipeline()
	for _, step := range steps {
		switch step.what {
		case "acquire":
			w := folderRequest{claims: step.claims, token: step.token, ttl: time.Hour}
			folderAcquireScript.EvalSha(ctx, pipe, names, folderArgs(w)...)
		case "release":
			folderReleaseScript.EvalSha(ctx, pipe, names, classes, step.token, "nobody:")
		case "extend":
			folderExtendScript.EvalSha(ctx, pipe, names, classes, step.token, "7200000", "0")
		case "expire":
			pipe.ZAddXX(ctx, names[1], redis.Z{Score: 1, Member: step.token})
		}
	}
	for _, step := range steps {
		if step.what == "acquire" {
			folderReleaseScript.EvalSha(ctx, pipe, names, classes, step.token, "nobody:")
		}
	}
	left := pipe.Exists(ctx, names[1:]...)
	replies, err := pipe.Exec(ctx)
	if err != nil {
		return err
	}
	if left.Val() != 0 {
		return errors.New("something is left behind")
	}
	return checkReplies(steps, replies)
}

func checkReplies(steps []step, replies []redis.Cmder) error {
	last := int64(0)
	for i, step := range steps {
		reply, _ := replies[i].(*redis.Cmd)
		var err error
		switch step.what {
		case "acquire":
			list, _ := reply.Slice() // parseAcquired rejects a reply that is not a list
			fence, wrong := parseAcquired(list)
			err = step.check(fence, wrong, &last)
		case "release", "extend":
			n, wrong := reply.Int()
			err = step.checkEnd(holdError(context.Background(), step.what, n == 1, wrong))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func TestFolderModelRedis(t *testing.T) {
	t.Parallel()
	p := newRedisPlayer(t)
	require.NoError(t, p.play(manyClaims()))
	rapid.Check(t, func(t *rapid.T) {
		steps := randomSequence(func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") })
		require.NoError(t, p.play(steps))
	})
}
