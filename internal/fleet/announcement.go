package fleet

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// Limits of announcements, which gateways publish for the status pages of the others.
const (
	announcementMax  = 1024             // bytes
	announcementKept = 40 * time.Second // longer than the pause between two calls of Publish
)

// Publish announces a text about this gateway to the others, of announcementMax bytes at most.
// Redis keeps it for announcementKept. After HandOver only the other process publishes.
func (f *Fleet) Publish(ctx context.Context, text string) error {
	if f.handedOver.Load() || f.Name() == unknownName {
		return nil
	}
	return f.ask(ctx, "tell about this gateway", func(ctx context.Context) error {
		return f.rdb.Set(ctx, f.key("about:"+f.Name()), text[:min(len(text), announcementMax)], announcementKept).Err()
	})
}

// addAnnounced adds the announcement of each gateway to a list. An announcement that cannot be read
// is empty.
func (f *Fleet) addAnnounced(ctx context.Context, list []Gateway) {
	var texts []*redis.StringCmd
	_ = f.ask(ctx, "ask what the gateways tell", func(ctx context.Context) error { // the list is good without it
		_, err := f.rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, g := range list {
				texts = append(texts, p.GetRange(ctx, f.key("about:"+g.Name), 0, announcementMax))
			}
			return nil
		})
		if _, rejected := errors.AsType[redis.Error](err); rejected {
			return nil // a key of another type: no failure of Redis
		}
		return err
	})
	for i, text := range texts {
		list[i].Announcement = text.Val()
	}
}
