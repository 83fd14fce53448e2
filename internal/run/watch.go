package run

// Watcher hears what a run logs, once the folder has it: an event file, a tracking server. It may read the folder. No
// method returns an error, since a training does not stop for what only shows it: a watcher warns.
type Watcher interface {
	// AddRecord is called with every record.
	AddRecord(Record)
	// AddSamples is called with the lines of samples that were logged together, all of one step.
	AddSamples(step int, lines []byte)
	// Rewind says that records or samples were removed: a resumed run is about to measure them again.
	Rewind()
	// Close is called once, when the folder is released.
	Close()
}

// Watch adds a watcher. It hears what comes from now on, and is closed with the folder.
func (f *Folder) Watch(w Watcher) { f.watchers = append(f.watchers, w) }

// tell calls every watcher.
func (f *Folder) tell(call func(Watcher)) {
	for _, w := range f.watchers {
		call(w)
	}
}
