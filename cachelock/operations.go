package cachelock

import "strings"

// Operation is an operation of a user on folders and files. The table below, also in docs/locks.md,
// has the operations that may run concurrently on overlapping paths.
type Operation uint8

// The operations. source and target are those of Folders.Begin: source is the folder that is
// changed or read, target the folder that a move or a copy adds to, or the new path of a renaming.
const (
	OpCreate     Operation = iota // create a file or a folder in source
	OpUpload                      // upload a file into source
	OpMoveDir                     // folder source into folder target
	OpMoveFile                    // file source into folder target
	OpCopyDir                     // folder source into folder target
	OpCopyFile                    // file source into folder target
	OpRenameDir                   // folder source becomes target
	OpRenameFile                  // file source becomes target
	OpDeleteDir                   // folder source to the trash
	OpDeleteFile                  // file source to the trash
	OpPurgeTrash                  // folder or file source in the trash, for good
)

var operationNames = [...]string{"create", "upload", "move dir", "move file", "copy dir", "copy file", "rename dir",
	"rename file",
	"delete dir", "delete file", "purge trash"}

// operations is the number of operations.
const operations = Operation(len(operationNames))

// String returns the name in the table.
func (op Operation) String() string {
	if op >= operations {
		return "unknown operation"
	}
	return operationNames[op]
}

// hasTarget reports whether the operation has two paths.
func (op Operation) hasTarget() bool { return op >= OpMoveDir && op <= OpRenameFile }

// role is one of the paths of an operation.
type role uint8

const (
	roleSource role = iota // A, or a
	roleTarget             // B
)

// verdict is the condition under which an operation may start while another one runs.
type verdict byte

const (
	verdictYes   verdict = 'y'
	verdictNo    verdict = 'n'
	verdictApart verdict = '-' // never on the same paths
)

// cell has the verdicts for a running and a requested operation on overlapping paths: by the path
// of the running one, then by the path of the requested one, source first.
type cell [2][2]verdict

// operationTable has a row for each running operation and a column for each requested one.
var operationTable = makeOperationTable()

// makeOperationTable returns the table. The rows of create, upload, move dir, delete dir, delete
// file and purge trash are requirements of the services for which the lock was made. The other rows
// follow from them:
//
//   - a file that is moved or renamed is treated like a deleted one at its old path, and nothing
//     starts there meanwhile;
//   - a renaming of a folder moves everything in it, so nothing starts meanwhile;
//   - a copy reads its source: other reads may start, changes may not, and nothing may be added to
//     a folder that is being copied;
//   - an addition to a folder is treated like an upload, and additions may run together, also that
//     of a copied folder; but a folder that is being added to is not copied.
func makeOperationTable() [operations][operations]cell {
	const yes, no = verdictYes, verdictNo
	var (
		y  = cell{{yes, yes}, {yes, yes}}
		n  = cell{{no, no}, {no, no}}
		x  = cell{{verdictApart, verdictApart}, {verdictApart, verdictApart}}
		ab = cell{{no, no}, {yes, yes}} // A n, B y: not where the running operation takes from, but where it adds to

		fileDir  = cell{{no, no}, {no, yes}}   // a file is moved, copying a folder is requested
		dirDir   = cell{{yes, no}, {no, yes}}  // a folder is copied, copying another is requested
		dirFile  = cell{{yes, no}, {yes, yes}} // a folder is copied, copying a file is requested
		copyMove = cell{{no, yes}, {yes, yes}} // a file is copied, moving one is requested
		copyDir  = cell{{yes, yes}, {no, yes}} // a file is copied, copying a folder is requested
	)
	return [operations][operations]cell{
		// create, upload, move dir, file, copy dir, file, rename dir, file, delete dir, file, purge
		OpCreate:     {y, y, n, y, n, y, n, y, n, y, x},
		OpUpload:     {y, y, n, y, n, y, n, y, n, y, x},
		OpMoveDir:    {n, n, n, n, y, y, n, ab, n, ab, x},
		OpMoveFile:   {ab, ab, n, ab, fileDir, ab, n, ab, n, ab, x},
		OpCopyDir:    {ab, ab, n, ab, dirDir, dirFile, n, ab, n, ab, x},
		OpCopyFile:   {y, y, n, copyMove, copyDir, y, n, ab, n, ab, x},
		OpRenameDir:  {n, n, n, n, n, n, n, n, n, n, x},
		OpRenameFile: {n, n, n, n, n, n, n, n, n, n, x},
		OpDeleteDir:  {n, n, n, n, n, n, n, n, n, n, x},
		OpDeleteFile: {n, n, n, n, n, n, n, n, n, n, x},
		OpPurgeTrash: {x, x, x, x, x, x, x, x, x, x, n},
	}
}

// kind is the kind of a claim: a mode, or an operation with one of its paths.
type kind uint8

const (
	kindShared kind = iota
	kindExclusive
	firstOpKind
	kinds = firstOpKind + 2*kind(operations)
)

func kindOf(op Operation, r role) kind { return firstOpKind + 2*kind(op) + kind(r) }

// operation returns the operation and the role of a kind that is not a mode.
func (k kind) operation() (Operation, role) {
	return Operation((k - firstOpKind) / 2), role((k - firstOpKind) % 2)
}

// exists reports whether k is a mode, or a path that its operation has.
func (k kind) exists() bool {
	if k < firstOpKind {
		return true
	}
	op, r := k.operation()
	return r == roleSource || op.hasTarget()
}

// mayStart reports whether a claim may be acquired while another is held, on overlapping paths.
// Modes and operations exclude each other.
func mayStart(running, wanted kind) bool {
	if running < firstOpKind || wanted < firstOpKind {
		return running == kindShared && wanted == kindShared
	}
	runningOp, runningRole := running.operation()
	wantedOp, wantedRole := wanted.operation()
	return operationTable[runningOp][wantedOp][runningRole][wantedRole] != verdictNo
}

// Kinds that admit the same kinds are one class, which keeps look-ups short. The letter of a class
// is that of its first kind.
var (
	classOf    [kinds]byte   // of each kind
	classes    string        // all letters
	excludedBy [kinds]string // classes that exclude a kind
)

func init() {
	seen := map[string]byte{}
	for running := range kinds {
		if !running.exists() {
			continue
		}
		var row strings.Builder
		for wanted := range kinds {
			if wanted.exists() && mayStart(running, wanted) {
				row.WriteByte(letter(wanted))
			}
		}
		if seen[row.String()] == 0 {
			seen[row.String()] = letter(running)
			classes += string(letter(running))
			for wanted := range kinds {
				if wanted.exists() && !mayStart(running, wanted) {
					excludedBy[wanted] += string(letter(running))
				}
			}
		}
		classOf[running] = seen[row.String()]
	}
}

func letter(k kind) byte { return 'a' + byte(k) }
