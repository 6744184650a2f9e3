/* A Slurm without Slurm for the SPANK plugin: loads it, offers it the whole of Slurm's API that it uses, and
 * calls what standard input says. One process here is one process of Slurm: slurmd, slurmstepd, a prolog, srun.
 *
 *   slurm PLUGIN.so < script
 *
 * Lines of the script; values may hold %XX:
 *   context slurmd|remote|local|allocator|job_script
 *   arg VALUE                  one argument of the line in plugstack.conf
 *   clear args                 none of them any more
 *   item NAME NUMBER           job uid step array_job array_task tasks task status pid
 *   without NAME               that item cannot be had
 *   env NAME=VALUE             the job's environment, for spank_getenv
 *   process NAME=VALUE         this process' own
 *   option NAME VALUE          as if it stood in the prolog's environment
 *   say NAME VALUE             calls the callback of a registered option
 *   call CALLBACK              init, init_post_opt, task_post_fork, task_exit, exit, job_prolog, job_epilog
 *
 * Writes one line for each line of the log ("log LEVEL TEXT") and each call ("call NAME RESULT"). */
#include <slurm/spank.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MANY 512

struct spank_handle {
	int unused;
};

struct pair {
	char *name, *value;
};

static struct spank_handle handle;
static spank_context_t context = S_CTX_ERROR;
static struct pair items[MANY], environment[MANY], given[MANY];
static size_t item_count, environment_count, given_count;
static struct spank_option options[MANY];
static size_t option_count;
static char *args[MANY];
static int arg_count;
static void *plugin;

static char *copy(const char *text)
{
	char *made = strdup(text);

	if (!made)
		abort();
	return made;
}

static void put(struct pair *pairs, size_t *count, const char *name, const char *value)
{
	if (*count == MANY)
		abort();
	pairs[*count].name = copy(name);
	pairs[(*count)++].value = copy(value);
}

/* The last one counts. */
static const char *get(const struct pair *pairs, size_t count, const char *name)
{
	while (count--)
		if (!strcmp(pairs[count].name, name))
			return pairs[count].value;
	return NULL;
}

static void say(const char *level, const char *format, va_list values)
{
	char text[8192];

	vsnprintf(text, sizeof(text), format, values);
	printf("log %s ", level);
	for (const char *c = text; *c; c++)
		printf(*c == '\n' ? "\\n" : "%c", *c);
	printf("\n");
}

#define LOGGER(name, level)                                  \
	void name(const char *format, ...)                   \
	{                                                    \
		va_list values;                              \
		va_start(values, format);                    \
		say(level, format, values);                  \
		va_end(values);                              \
	}
LOGGER(slurm_error, "error")
LOGGER(slurm_info, "info")
LOGGER(slurm_verbose, "verbose")
LOGGER(slurm_debug, "debug")

spank_context_t spank_context(void)
{
	return context;
}

/* The rules of Slurm's own: a prolog may ask for the job and its user only, and only slurmstepd for the rest. */
spank_err_t spank_get_item(spank_t spank, spank_item_t item, ...)
{
	static const char *const NAME[] = {
		[S_JOB_ID] = "job",	     [S_JOB_UID] = "uid",	   [S_JOB_STEPID] = "step",
		[S_JOB_ARRAY_ID] = "array_job", [S_JOB_ARRAY_TASK_ID] = "array_task",
		[S_JOB_LOCAL_TASK_COUNT] = "tasks",
		[S_TASK_GLOBAL_ID] = "task", [S_TASK_EXIT_STATUS] = "status", [S_TASK_PID] = "pid",
	};
	const char *value = NULL;
	va_list to;

	if (spank != &handle)
		return ESPANK_BAD_ARG;
	if (context == S_CTX_JOB_SCRIPT && item != S_JOB_ID && item != S_JOB_UID)
		return ESPANK_NOT_AVAIL;
	if (context != S_CTX_JOB_SCRIPT && context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	if ((size_t)item < sizeof(NAME) / sizeof(NAME[0]) && NAME[item])
		value = get(items, item_count, NAME[item]);
	if (!value || !*value)
		return ESPANK_NOT_AVAIL;
	va_start(to, item);
	if (item == S_TASK_EXIT_STATUS)
		*va_arg(to, int *) = atoi(value);
	else if (item == S_TASK_PID)
		*va_arg(to, pid_t *) = !strcmp(value, "self") ? getpid() : atoi(value);
	else
		*va_arg(to, uint32_t *) = (uint32_t)strtoul(value, NULL, 10);
	va_end(to);
	return ESPANK_SUCCESS;
}

spank_err_t spank_getenv(spank_t spank, const char *name, char *buffer, int length)
{
	const char *value = get(environment, environment_count, name);

	if (spank != &handle || length < 0)
		return ESPANK_BAD_ARG;
	if (context != S_CTX_REMOTE)
		return ESPANK_NOT_REMOTE;
	if (!value)
		return ESPANK_ENV_NOEXIST;
	if (strlen(value) >= (size_t)length)
		return ESPANK_NOSPACE;
	memcpy(buffer, value, strlen(value) + 1);
	return ESPANK_SUCCESS;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
	return spank == &handle && name && context == S_CTX_REMOTE ? ESPANK_SUCCESS : ESPANK_BAD_ARG;
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	if (spank != &handle || !option->name || !option->usage || option_count == MANY)
		return ESPANK_BAD_ARG;
	options[option_count++] = *option;
	return ESPANK_SUCCESS;
}

spank_err_t spank_option_getopt(spank_t spank, struct spank_option *option, char **value)
{
	if (spank != &handle || !option || !option->name || (option->has_arg && !value))
		return ESPANK_BAD_ARG;
	if (context != S_CTX_JOB_SCRIPT)
		return ESPANK_NOT_AVAIL;
	*value = (char *)get(given, given_count, option->name);
	return *value ? ESPANK_SUCCESS : ESPANK_ERROR;
}

static void unescape(char *text)
{
	char *to = text, digits[3] = "";

	for (; *text; text++) {
		if (*text == '%' && text[1] && text[2]) {
			memcpy(digits, text + 1, 2);
			*to++ = (char)strtol(digits, NULL, 16);
			text += 2;
		} else {
			*to++ = *text;
		}
	}
	*to = '\0';
}

static void call(const char *name)
{
	char symbol[64];
	spank_f *function;

	snprintf(symbol, sizeof(symbol), "slurm_spank_%s", name);
	if (!strcmp(name, "init"))
		option_count = 0;
	*(void **)&function = dlsym(plugin, symbol);
	if (!function) {
		printf("call %s missing\n", name);
		return;
	}
	printf("call %s %d\n", name, function(&handle, arg_count, args));
}

static void choose(const char *name)
{
	static const char *const NAME[] = { "error", "local", "remote", "allocator", "slurmd", "job_script" };

	for (int i = S_CTX_ERROR; i <= S_CTX_JOB_SCRIPT; i++)
		if (!strcmp(name, NAME[i]))
			context = (spank_context_t)i;
}

static void option_said(const char *name, const char *value)
{
	for (size_t i = 0; i < option_count; i++)
		if (!strcmp(options[i].name, name))
			printf("call --%s %d\n", name, options[i].cb(options[i].val, value, context == S_CTX_REMOTE));
}

static void obey(char *line)
{
	char *rest = strchr(line, ' '), *value;

	if (!rest)
		return;
	*rest++ = '\0';
	value = strpbrk(rest, " =");
	if (!strcmp(line, "context")) {
		choose(rest);
	} else if (!strcmp(line, "call")) {
		call(rest);
	} else if (!strcmp(line, "clear")) {
		while (arg_count)
			free(args[--arg_count]);
	} else if (!strcmp(line, "without")) {
		put(items, &item_count, rest, "");
	} else if (!strcmp(line, "arg")) {
		if (arg_count == MANY)
			abort();
		unescape(rest);
		args[arg_count++] = copy(rest);
	} else if (value) {
		*value++ = '\0';
		unescape(value);
		if (!strcmp(line, "item"))
			put(items, &item_count, rest, value);
		else if (!strcmp(line, "env"))
			put(environment, &environment_count, rest, value);
		else if (!strcmp(line, "process"))
			setenv(rest, value, 1);
		else if (!strcmp(line, "option"))
			put(given, &given_count, rest, value);
		else if (!strcmp(line, "say"))
			option_said(rest, value);
	}
}

static void forget(struct pair *pairs, size_t count)
{
	while (count--) {
		free(pairs[count].name);
		free(pairs[count].value);
	}
}

int main(int argc, char **argv)
{
	char line[16384];

	setvbuf(stdout, NULL, _IOLBF, 0);
	plugin = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	if (!plugin) {
		fprintf(stderr, "slurm: %s\n", argc == 2 ? dlerror() : "which plugin?");
		return 2;
	}
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = '\0';
		obey(line);
	}
	forget(items, item_count);
	forget(environment, environment_count);
	forget(given, given_count);
	while (arg_count)
		free(args[--arg_count]);
	/* Slurm unloads it, too. */
	return dlclose(plugin) ? 3 : 0;
}
