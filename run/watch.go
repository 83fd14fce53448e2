package run

import "errors"

// Watcher hears what a run logs, once the folder has it: an event file, a tracking server. It may read the folder.
type Watcher interface {
	// Logged is called with every record.
	Logged(Record) error
	// Sampled is called with the lines of samples that were logged together, all of one step.
	Sampled(step int, lines []byte) error
	// Cut says that records or samples were removed: a resumed run is about to measure them again.
	Cut() error
	// Close is called once, when the folder is released.
	Close() error
}

// Watch adds a watcher. It hears what comes from now on, and is closed with the folder.
func (f *Folder) Watch(w Watcher) { f.watchers = append(f.watchers, w) }

// tell calls every watcher and joins their errors.
func (f *Folder) tell(call func(Watcher) error) (err error) {
	for _, w := range f.watchers {
		err = errors.Join(err, call(w))
	}
	return err
}
