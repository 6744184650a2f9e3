#include "usage.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define ROOT "/sys/fs/cgroup"

/* Reads a small file; its length, 0 if there is none. */
static size_t slurp(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	ssize_t got = -1;

	if (fd >= 0) {
		got = read(fd, text, size - 1);
		close(fd);
	}
	text[got > 0 ? got : 0] = '\0';
	return got > 0 ? (size_t)got : 0;
}

/* The path up to and with the component step_NAME below job_ID; -1 if the path has none, as Slurm makes it. */
static int step_path(const char *path, uint32_t job, char *to, size_t size)
{
	char wanted[32];
	const char *at, *end;

	snprintf(wanted, sizeof(wanted), "/job_%" PRIu32 "/step_", job);
	at = strstr(path, wanted);
	if (!at || strstr(path, ".."))
		return -1;
	at += strlen(wanted);
	end = at + strcspn(at, "/\n");
	if (end == at || (size_t)(end - path) >= size)
		return -1;
	memcpy(to, path, (size_t)(end - path));
	to[end - path] = '\0';
	return 0;
}

/* Is `name` one of the controllers in a list with commas? */
static int has_controller(const char *controllers, const char *end, const char *name)
{
	size_t length = strlen(name);

	for (const char *at = controllers; at < end; at += strcspn(at, ",:") + 1)
		if (!strncmp(at, name, length) && (at[length] == ',' || at[length] == ':'))
			return 1;
	return 0;
}

static void join(char to[SRA_PATH_MAX], const char *root, const char *group, const char *path, const char *file)
{
	if (snprintf(to, SRA_PATH_MAX, "%s%s%s%s", root, group, path, file) >= SRA_PATH_MAX)
		to[0] = '\0';
}

void sra_usage_parse(struct sra_usage *usage, const char *text, const char *root, uint32_t job)
{
	char path[SRA_PATH_MAX];

	memset(usage, 0, sizeof(*usage));
	for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n') {
		const char *controllers = strchr(line, ':'), *end;

		if (!controllers || !(end = strchr(++controllers, ':')) || step_path(end + 1, job, path, sizeof(path)))
			continue;
		if (end == controllers) { /* version 2: the users' processes are in a group of their own */
			usage->version = 2;
			join(usage->memory_peak, root, "", path, "/user/memory.peak");
			join(usage->cpu, root, "", path, "/user/cpu.stat");
			return;
		}
		usage->version = 1;
		if (has_controller(controllers, end, "memory"))
			join(usage->memory_peak, root, "/memory", path, "/memory.max_usage_in_bytes");
		if (has_controller(controllers, end, "cpuacct"))
			join(usage->cpu, root, "/cpuacct", path, "/cpuacct.usage");
	}
}

void sra_usage_find(struct sra_usage *usage, pid_t task, uint32_t job)
{
	char path[48], text[4096];

	snprintf(path, sizeof(path), "/proc/%ld/cgroup", (long)task);
	slurp(path, text, sizeof(text));
	sra_usage_parse(usage, text, ROOT, job);
}

/* The number at the beginning of a line, or after `name ` in one; -1 if there is none. */
static int number_in(char *text, const char *name, uint64_t *value)
{
	char *rest = NULL;

	for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		size_t length = strlen(name);

		if (!length)
			return sra_number(line, UINT64_MAX, value);
		if (!strncmp(line, name, length) && line[length] == ' ')
			return sra_number(line + length + 1, UINT64_MAX, value);
	}
	return -1;
}

void sra_usage_read(struct sra_usage *usage)
{
	char text[4096];
	struct rusage ended;
	uint64_t value;

	if (usage->memory_peak[0] && slurp(usage->memory_peak, text, sizeof(text)) && !number_in(text, "", &value)) {
		usage->has_peak = 1;
		usage->peak_bytes = value;
	}
	if (usage->cpu[0] && slurp(usage->cpu, text, sizeof(text)) &&
	    !number_in(text, usage->version == 2 ? "usage_usec" : "", &value)) {
		usage->has_cpu = 1;
		usage->cpu_us = usage->version == 2 ? value : value / 1000;
	}
	if ((usage->has_peak && usage->memory_peak[0]) && (usage->has_cpu && usage->cpu[0]))
		return;
	if (getrusage(RUSAGE_CHILDREN, &ended) || ended.ru_maxrss <= 0) /* none has ended yet */
		return;
	if (!usage->memory_peak[0] || !usage->has_peak) {
		usage->memory_peak[0] = '\0';
		usage->has_peak = 1;
		usage->peak_bytes = (uint64_t)ended.ru_maxrss * 1024;
	}
	if (!usage->cpu[0] || !usage->has_cpu) {
		usage->cpu[0] = '\0';
		usage->has_cpu = 1;
		usage->cpu_us = (uint64_t)(ended.ru_utime.tv_sec + ended.ru_stime.tv_sec) * 1000000u +
				(uint64_t)(ended.ru_utime.tv_usec + ended.ru_stime.tv_usec);
	}
}
