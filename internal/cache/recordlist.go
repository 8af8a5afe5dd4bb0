package cache

import "container/list"

// recordList lists records by file and by their last use. It has no limit of its own, and its user
// locks it.
type recordList struct {
	records map[string]*metaRecord
	byUse   list.List // of *metaRecord, the one that was used last at the front
}

func newRecordList() *recordList { return &recordList{records: make(map[string]*metaRecord)} }

// Len is the number of records.
func (l *recordList) Len() int { return len(l.records) }

// Peek finds a record.
func (l *recordList) Peek(file string) (*metaRecord, bool) {
	rec, ok := l.records[file]
	return rec, ok
}

// Get is Peek that counts as use.
func (l *recordList) Get(file string) (*metaRecord, bool) {
	rec, ok := l.records[file]
	if ok {
		l.byUse.MoveToFront(rec.use)
	}
	return rec, ok
}

// Add adds the record of a file that has none.
func (l *recordList) Add(rec *metaRecord) {
	rec.use = l.byUse.PushFront(rec)
	l.records[rec.file] = rec
}

// Remove removes a record, if it is there.
func (l *recordList) Remove(rec *metaRecord) {
	if l.records[rec.file] == rec {
		delete(l.records, rec.file)
		l.byUse.Remove(rec.use)
	}
}

// Oldest is the record that was not used for the longest time; there is one.
func (l *recordList) Oldest() *metaRecord { return l.byUse.Back().Value.(*metaRecord) }
