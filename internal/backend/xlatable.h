// What keeping compiled programs, and compiling for devices that are not there, need of PJRT 0's C interface. go-xla binds
// none of it, and its header cannot be included from here. Within a major version the table and the structs only grow at
// their ends.
#pragma once
#include <stddef.h>

typedef void *posttrain_function(void *args); // of the table: it returns NULL or an error

enum { // places in the table
	POSTTRAIN_ERROR_DESTROY = 0,
	POSTTRAIN_ERROR_MESSAGE = 1,
	POSTTRAIN_PLATFORM_VERSION = 14,
	POSTTRAIN_DEVICES = 16,
	POSTTRAIN_COMPILE = 20,
	POSTTRAIN_KIND = 26,
	POSTTRAIN_DESCRIPTION = 29,
	POSTTRAIN_EXECUTABLE_DESTROY = 40,
	POSTTRAIN_SERIALIZE = 49,
	POSTTRAIN_EXECUTABLE = 51,
	POSTTRAIN_LOAD = 56,
	POSTTRAIN_FUNCTIONS = 57, // of every plugin; newer ones have those below, too
	POSTTRAIN_INITIALIZE = 3,
	POSTTRAIN_OPTIMIZED = 48,
	POSTTRAIN_TOPOLOGY = 82,
	POSTTRAIN_COMPILE_FOR = 89,
	POSTTRAIN_MEMORY = 96,
};

typedef struct {
	size_t size;
	void *extensions;
	struct { size_t size; void *extensions; int major, minor; } version;
	posttrain_function *call[POSTTRAIN_FUNCTIONS];
} posttrain_table;

typedef struct { size_t size; void *extensions; char *code; size_t bytes; char *format; size_t format_bytes; }
	posttrain_program;

typedef struct {
	size_t size;
	void *extensions, *client;
	posttrain_program *program;
	char *options;
	size_t options_bytes;
	void *executable; // the result
} posttrain_compile_args;

// posttrain_text is text or bytes that the plugin owns.
typedef struct { const char *start; size_t bytes; } posttrain_text;

// posttrain_saved is a program in the plugin's memory, until posttrain_free_saved.
typedef struct { posttrain_text text; void *owner; void (*free)(void *owner); } posttrain_saved;

#define POSTTRAIN_TABLES 8 // as many plugins of a process can have their programs kept

// Functions that can fail return NULL, or an error to free.
posttrain_table *posttrain_wrap(posttrain_table *table, int slot);
void *posttrain_compile(int slot, posttrain_compile_args *args); // the plugin's own; its error is PJRT's
void posttrain_describe(int slot, void *client, posttrain_text *version, posttrain_text *kind);
char *posttrain_save(int slot, void *executable, posttrain_saved *saved); // of a client's
char *posttrain_serialize(posttrain_table *table, void *executable, posttrain_saved *saved);
void posttrain_free_saved(posttrain_saved *saved);
char *posttrain_load(int slot, void *client, void *start, size_t bytes, void **executable);

// posttrain_memory are the bytes of a program on one device.
typedef struct { long long code, arguments, results, aliased, temporary; } posttrain_memory;

// posttrain_compiled is a program for a device that is not there: freed by posttrain_free_compiled.
typedef struct { void *executable; char *optimized; size_t bytes; posttrain_memory memory; } posttrain_compiled;

char *posttrain_initialize(posttrain_table *table);
char *posttrain_topology(posttrain_table *table, const char *config, size_t config_bytes, const char *shape,
	size_t shape_bytes, void **topology);
char *posttrain_compile_for(posttrain_table *table, void *topology, posttrain_program *program, const char *options,
	size_t options_bytes, posttrain_compiled *compiled);
void posttrain_free_compiled(posttrain_table *table, posttrain_compiled *compiled);
