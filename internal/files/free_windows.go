package files

// Free is how many bytes a program may still write into a folder; ok is false where the system does not say.
func Free(string) (bytes uint64, ok bool) { return 0, false }
