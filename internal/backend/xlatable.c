//go:build cgo && linux

#include "xlatable.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

extern void *posttrainCompile(int slot, void *args); // in Go

static posttrain_table *tables[POSTTRAIN_TABLES]; // the plugins' own

// A function of the table does not learn whose it is, so that each plugin has one of its own.
#define COMPILE(slot) \
	static void *compile_##slot(void *args) { return posttrainCompile(slot, args); }
COMPILE(0) COMPILE(1) COMPILE(2) COMPILE(3) COMPILE(4) COMPILE(5) COMPILE(6) COMPILE(7)

static posttrain_function *const compilers[POSTTRAIN_TABLES] = {compile_0, compile_1, compile_2, compile_3,
	compile_4, compile_5, compile_6, compile_7};

// posttrain_wrap copies a plugin's table, which may be in read-only memory, with another function to compile. The copy
// is there until the process ends. It is NULL if the plugin lacks a function.
posttrain_table *posttrain_wrap(posttrain_table *table, int slot) {
	if (table->size < sizeof *table || !table->call[POSTTRAIN_SERIALIZE] || !table->call[POSTTRAIN_LOAD])
		return NULL;
	posttrain_table *copy = malloc(table->size);
	if (!copy)
		return NULL;
	memcpy(copy, table, table->size);
	copy->call[POSTTRAIN_COMPILE] = compilers[slot];
	tables[slot] = table;
	return copy;
}

void *posttrain_compile(int slot, posttrain_compile_args *args) {
	return tables[slot]->call[POSTTRAIN_COMPILE](args);
}

// check turns PJRT's error into text.
static char *check(posttrain_table *table, void *error) {
	if (!error)
		return NULL;
	struct { size_t size; void *extensions, *error; posttrain_text text; } message = {sizeof message, 0, error};
	struct { size_t size; void *extensions, *error; } destroy = {sizeof destroy, 0, error};
	table->call[POSTTRAIN_ERROR_MESSAGE](&message);
	char *text = strndup(message.text.start, message.text.bytes);
	table->call[POSTTRAIN_ERROR_DESTROY](&destroy);
	return text;
}

// posttrain_describe gives the platform's version and the kind of the first device, or nothing.
void posttrain_describe(int slot, void *client, posttrain_text *version, posttrain_text *kind) {
	posttrain_table *table = tables[slot];
	struct { size_t size; void *extensions, *client; posttrain_text text; } platform = {sizeof platform, 0, client};
	struct { size_t size; void *extensions, *client; void **devices; size_t count; } devices =
		{sizeof devices, 0, client};
	free(check(table, table->call[POSTTRAIN_PLATFORM_VERSION](&platform)));
	*version = platform.text;
	free(check(table, table->call[POSTTRAIN_DEVICES](&devices)));
	if (!devices.count)
		return;
	struct { size_t size; void *extensions, *device, *description; } device = {sizeof device, 0, devices.devices[0]};
	free(check(table, table->call[POSTTRAIN_DESCRIPTION](&device)));
	if (!device.description)
		return;
	struct { size_t size; void *extensions, *description; posttrain_text text; } name =
		{sizeof name, 0, device.description};
	free(check(table, table->call[POSTTRAIN_KIND](&name)));
	*kind = name.text;
}

char *posttrain_serialize(posttrain_table *table, void *executable, posttrain_saved *saved) {
	struct { size_t size; void *extensions, *executable; posttrain_saved saved; } args = {sizeof args, 0, executable};
	char *error = check(table, table->call[POSTTRAIN_SERIALIZE](&args));
	*saved = args.saved;
	return error;
}

char *posttrain_save(int slot, void *executable, posttrain_saved *saved) {
	posttrain_table *table = tables[slot];
	struct { size_t size; void *extensions, *loaded, *executable; } get = {sizeof get, 0, executable};
	char *error = check(table, table->call[POSTTRAIN_EXECUTABLE](&get));
	if (error)
		return error;
	error = posttrain_serialize(table, get.executable, saved);
	struct { size_t size; void *extensions, *executable; } destroy = {sizeof destroy, 0, get.executable};
	free(check(table, table->call[POSTTRAIN_EXECUTABLE_DESTROY](&destroy)));
	return error;
}

void posttrain_free_saved(posttrain_saved *saved) {
	if (saved->owner && saved->free)
		saved->free(saved->owner);
}

char *posttrain_load(int slot, void *client, void *start, size_t bytes, void **executable) {
	struct {
		size_t size;
		void *extensions, *client, *start;
		size_t bytes;
		void *executable, *options;
		size_t options_bytes;
	} args = {sizeof args, 0, client, start, bytes};
	char *error = check(tables[slot], tables[slot]->call[POSTTRAIN_LOAD](&args));
	*executable = args.executable;
	return error;
}

// has says whether a plugin's table has a function; an older one is shorter.
static int has(posttrain_table *table, int function) {
	return table->size >= offsetof(posttrain_table, call) + (function + 1) * sizeof table->call[0] && table->call[function];
}

char *posttrain_initialize(posttrain_table *table) {
	struct { size_t size; void *extensions; } args = {sizeof args};
	return check(table, table->call[POSTTRAIN_INITIALIZE](&args));
}

// named is an option with a text as its value.
typedef struct {
	size_t size;
	void *extensions;
	const char *name;
	size_t name_bytes;
	int type;
	const char *text;
	size_t bytes;
} named;

char *posttrain_topology(posttrain_table *table, const char *config, size_t config_bytes, const char *shape,
	size_t shape_bytes, void **topology) {
	if (!has(table, POSTTRAIN_TOPOLOGY) || !has(table, POSTTRAIN_COMPILE_FOR) || !has(table, POSTTRAIN_MEMORY))
		return strdup("it is too old to compile without a GPU: run scripts/install-cuda-compiler.sh");
	named options[] = {
		{sizeof(named), 0, "target_config", 13, 0, config, config_bytes},
		{sizeof(named), 0, "topology", 8, 0, shape, shape_bytes},
	};
	struct {
		size_t size;
		void *extensions;
		const char *name;
		size_t name_bytes;
		named *options;
		size_t count;
		void *topology;
	} args = {sizeof args, 0, shape, shape_bytes, options, 2};
	char *error = check(table, table->call[POSTTRAIN_TOPOLOGY](&args));
	*topology = args.topology;
	return error;
}

// optimized copies the program as the compiler leaves it.
static char *optimized(posttrain_table *table, posttrain_compiled *compiled) {
	posttrain_program program = {sizeof program};
	struct { size_t size; void *extensions, *executable; posttrain_program *program; } args =
		{sizeof args, 0, compiled->executable, &program};
	char *error = check(table, table->call[POSTTRAIN_OPTIMIZED](&args)); // says its size
	if (error)
		return error;
	compiled->optimized = program.code = malloc(program.bytes);
	compiled->bytes = program.bytes;
	if (!program.code)
		return strdup("no memory for the optimised program");
	return check(table, table->call[POSTTRAIN_OPTIMIZED](&args));
}

char *posttrain_compile_for(posttrain_table *table, void *topology, posttrain_program *program, const char *options,
	size_t options_bytes, posttrain_compiled *compiled) {
	struct {
		size_t size;
		void *extensions, *topology;
		posttrain_program *program;
		const char *options;
		size_t options_bytes;
		void *client, *executable;
	} args = {sizeof args, 0, topology, program, options, options_bytes};
	char *error = check(table, table->call[POSTTRAIN_COMPILE_FOR](&args));
	if (error)
		return error;
	compiled->executable = args.executable;
	struct { size_t size; void *extensions, *executable; long long bytes[15]; } memory =
		{sizeof memory, 0, args.executable};
	error = check(table, table->call[POSTTRAIN_MEMORY](&memory));
	if (!error) {
		memcpy(&compiled->memory, memory.bytes, sizeof compiled->memory);
		error = optimized(table, compiled);
	}
	return error;
}

void posttrain_free_compiled(posttrain_table *table, posttrain_compiled *compiled) {
	struct { size_t size; void *extensions, *executable; } destroy = {sizeof destroy, 0, compiled->executable};
	if (compiled->executable)
		free(check(table, table->call[POSTTRAIN_EXECUTABLE_DESTROY](&destroy)));
	free(compiled->optimized);
}
