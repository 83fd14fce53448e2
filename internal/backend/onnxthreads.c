//go:build cgo && linux

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

typedef struct { void **(*table)(uint32_t version); } posttrain_base;

// Places in the table, which only grows at its end.
enum { CREATE_OPTIONS = 10, NO_PATTERN = 17, NO_ARENA = 19, SET_THREADS = 24, ADD_ENTRY = 130 };

static void *(*create)(void **options);
static void *(*no_pattern)(void *options);
static void *(*no_arena)(void *options);
static void *(*set_threads)(void *options, int threads);
static void *(*add_entry)(void *options, const char *key, const char *value);
static int threads;

// create_sparing makes options whose threads wait for each other asleep but for the first 20 microseconds, which cost no
// time alone, and which take memory from the C library and give it back as soon as nobody reads it. An arena would keep
// the memory of a session's largest run, and a pattern have it twice from the second run on: a gradient of 135M
// parameters took twice the memory and a fifth more processor time.
static void *create_sparing(void **options) {
	void *failed = create(options);
	if (!failed)
		failed = add_entry(*options, "session.intra_op.spin_duration_us", "20");
	if (!failed)
		failed = no_pattern(*options);
	if (!failed)
		failed = no_arena(*options);
	if (!failed && threads < sysconf(_SC_NPROCESSORS_ONLN))
		failed = set_threads(*options, threads);
	return failed;
}

// posttrain_spare makes the sessions of ONNX Runtime's library at path, which is loaded, share the machine: on at most so
// many processors, and hardly spinning. It is 0 if the library has another form than is known here.
int posttrain_spare(const char *path, int processors) {
	void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
	posttrain_base *(*base)(void) = library ? dlsym(library, "OrtGetApiBase") : NULL;
	void **table = base ? base()->table(17) : NULL;
	uintptr_t size = sysconf(_SC_PAGESIZE), page = (uintptr_t)(table + CREATE_OPTIONS) / size * size;
	if (!table || mprotect((void *)page, size, PROT_READ | PROT_WRITE))
		return 0;
	threads = processors, create = table[CREATE_OPTIONS], no_pattern = table[NO_PATTERN], no_arena = table[NO_ARENA];
	set_threads = table[SET_THREADS], add_entry = table[ADD_ENTRY];
	table[CREATE_OPTIONS] = create_sparing; // the page stays writable: it may have been so before
	return 1;
}
