#include "spool.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SUFFIX ".event"
#define NAME_SIZE 64
/* A job's file; its longest text is shorter. */
#define JOB_SIZE 192
/* Tries, a millisecond each, to get at the counter of dropped events. */
#define LOCK_TRIES 5

static int fail(char why[SRA_WHY_MAX], const char *what, int error)
{
	snprintf(why, SRA_WHY_MAX, "spool: %s%s%s", what, error ? ": " : "", error ? strerror(error) : "");
	return -1;
}

int sra_spool_open(struct sra_spool *spool, const char *directory, unsigned most, char why[SRA_WHY_MAX])
{
	struct stat found;

	memset(spool, 0, sizeof(*spool));
	spool->most = most;
	spool->fd = -1;
	if (mkdir(directory, 0700) && errno != EEXIST)
		return fail(why, "mkdir", errno);
	spool->fd = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (spool->fd < 0)
		return fail(why, "open", errno);
	if (fstat(spool->fd, &found) || found.st_uid != geteuid() || found.st_mode & (S_IRWXG | S_IRWXO)) {
		sra_spool_close(spool);
		return fail(why, "the directory must be root's, with mode 0700", 0);
	}
	return 0;
}

void sra_spool_close(struct sra_spool *spool)
{
	if (spool->fd >= 0)
		close(spool->fd);
	spool->fd = -1;
}

uint64_t sra_spool_dropped(const struct sra_spool *spool)
{
	char text[24];
	uint64_t value = 0;
	ssize_t got;
	int fd = spool->fd < 0 ? -1 : openat(spool->fd, "dropped", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

	if (fd >= 0) {
		got = read(fd, text, sizeof(text) - 1);
		close(fd);
		text[got < 0 ? 0 : got] = '\0';
		text[strcspn(text, "\n")] = '\0';
		if (sra_number(text, UINT64_MAX, &value))
			value = 0;
	}
	return value + spool->owed;
}

/* Adds what is owed to the counter; another process may be doing the same, and nobody is waited for long. */
static void settle(struct sra_spool *spool)
{
	const struct timespec pause = { .tv_nsec = 1000000 };
	char text[24];
	int fd = openat(spool->fd, "dropped", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), tries = 0, length;
	uint64_t total;

	if (fd < 0)
		return;
	while (flock(fd, LOCK_EX | LOCK_NB) && tries++ < LOCK_TRIES)
		nanosleep(&pause, NULL);
	if (tries <= LOCK_TRIES) {
		total = sra_spool_dropped(spool);
		length = snprintf(text, sizeof(text), "%" PRIu64 "\n", total);
		if (pwrite(fd, text, (size_t)length, 0) == length)
			spool->owed = 0;
	}
	close(fd);
}

static int by_name(const void *one, const void *other)
{
	return strcmp(one, other);
}

static int is_event(const char *name)
{
	size_t length = strlen(name);

	return length < NAME_SIZE && length > sizeof(SUFFIX) && !strcmp(name + length - sizeof(SUFFIX) + 1, SUFFIX);
}

/* Lists the events; *names is the caller's to free. -1 if they cannot be listed. */
static long list(const struct sra_spool *spool, char (**names)[NAME_SIZE])
{
	int fd = openat(spool->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *directory = fd < 0 ? NULL : fdopendir(fd);
	size_t count = 0, room = 0;
	struct dirent *entry;

	*names = NULL;
	if (!directory) {
		if (fd >= 0)
			close(fd);
		return -1;
	}
	while ((entry = readdir(directory))) {
		if (!is_event(entry->d_name))
			continue;
		if (count == room) {
			void *grown = realloc(*names, (room + 1024) * NAME_SIZE);

			if (!grown)
				break; /* as many as fit; the rest are younger or older, and dropped another time */
			*names = grown;
			room += 1024;
		}
		memcpy((*names)[count++], entry->d_name, strlen(entry->d_name) + 1);
	}
	closedir(directory);
	return (long)count;
}

/* Makes room for one more. A hundredth more than needed is dropped, so that a full spool is not listed for
 * each event. */
static void make_room(struct sra_spool *spool)
{
	char(*names)[NAME_SIZE];
	long count, excess;

	if (spool->counted && spool->count < spool->most)
		return;
	count = list(spool, &names);
	if (count < 0)
		return;
	excess = count + 1 - (long)spool->most;
	if (excess > 0) {
		excess += spool->most / 100;
		qsort(names, (size_t)count, NAME_SIZE, by_name);
		for (long i = 0; i < excess && i < count; i++)
			if (!unlinkat(spool->fd, names[i], 0))
				spool->owed++;
		count -= excess < count ? excess : count;
	}
	free(names);
	spool->counted = 1;
	spool->count = (unsigned)count;
}

/* Writes a file under another name and renames it, so that nobody sees half of one. */
static int write_file(int directory, const char *name, const char *first, const char *second, size_t length)
{
	char hidden[NAME_SIZE * 2 + 8];
	int fd, error = 0;

	snprintf(hidden, sizeof(hidden), ".new-%s", name);
	fd = openat(directory, hidden, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return errno;
	if (write(fd, first, strlen(first)) != (ssize_t)strlen(first) ||
	    (length && write(fd, second, length) != (ssize_t)length))
		error = errno ? errno : ENOSPC;
	close(fd);
	if (!error && renameat(directory, hidden, directory, name))
		error = errno;
	if (error)
		unlinkat(directory, hidden, 0);
	return error;
}

int sra_spool_put(struct sra_spool *spool, const char *name, const char *signature, const char *body,
		  size_t length, char why[SRA_WHY_MAX])
{
	char first[SRA_SIGNATURE_LEN + 2];
	int error;

	make_room(spool);
	snprintf(first, sizeof(first), "%s\n", signature);
	errno = 0;
	error = write_file(spool->fd, name, first, body, length);
	if (error)
		spool->owed++;
	else
		spool->count++;
	if (spool->owed)
		settle(spool);
	return error ? fail(why, "write", error) : 0;
}

int sra_spool_is_down(const struct sra_spool *spool, unsigned seconds)
{
	struct stat mark;
	time_t now = time(NULL);

	return spool->fd >= 0 && !fstatat(spool->fd, "down", &mark, AT_SYMLINK_NOFOLLOW) && now >= mark.st_mtime &&
	       now - mark.st_mtime < (time_t)seconds;
}

void sra_spool_mark_down(const struct sra_spool *spool)
{
	int fd = spool->fd < 0 ? -1 : openat(spool->fd, "down", O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

	if (fd >= 0) {
		(void)futimens(fd, NULL);
		close(fd);
	}
}

void sra_spool_mark_up(const struct sra_spool *spool)
{
	if (spool->fd >= 0)
		(void)unlinkat(spool->fd, "down", 0);
}

/* Names under jobs/ within the spool. */
static int job_name(char name[NAME_SIZE * 2], const char *node, uint32_t id)
{
	return sra_is_word(node, "_.-", SRA_NAME_MAX) ? snprintf(name, NAME_SIZE * 2, "%s.%" PRIu32, node, id) : -1;
}

static int open_jobs(const struct sra_spool *spool, int make)
{
	if (spool->fd < 0)
		return -1;
	if (make && mkdirat(spool->fd, "jobs", 0700) && errno != EEXIST)
		return -1;
	return openat(spool->fd, "jobs", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

void sra_job_load(const struct sra_spool *spool, const char *node, uint32_t id, struct sra_job *job)
{
	char name[NAME_SIZE * 2], text[JOB_SIZE + 1], *rest = NULL, *line;
	int jobs = open_jobs(spool, 0), fd = -1;
	ssize_t got = -1;

	memset(job, 0, sizeof(*job));
	if (jobs >= 0 && job_name(name, node, id) > 0)
		fd = openat(jobs, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd >= 0) {
		got = read(fd, text, sizeof(text) - 1);
		close(fd);
	}
	if (jobs >= 0)
		close(jobs);
	if (got <= 0)
		return;
	text[got] = '\0';
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		if (!strncmp(line, "pod=", 4) && line[4])
			(void)sra_options_pod(&job->options, line + 4);
		else if (!strncmp(line, "events=", 7) && line[7])
			(void)sra_options_events(&job->options, line + 7);
		else if (!strncmp(line, "waited_us=", 10))
			(void)sra_number(line + 10, UINT64_MAX, &job->waited_us);
	}
}

void sra_job_store(const struct sra_spool *spool, const char *node, uint32_t id, const struct sra_job *job)
{
	char name[NAME_SIZE * 2], text[JOB_SIZE];
	int jobs = open_jobs(spool, 1), fd = -1, length;

	if (jobs < 0)
		return;
	/* Always of one size and written in one piece, in place: a new file for each change would have to wait for
	 * the file system's journal, and the job with it. */
	memset(text, '\n', sizeof(text));
	length = snprintf(text, sizeof(text), "pod=%s\nevents=%s\nwaited_us=%" PRIu64 "\n", job->options.pod,
			  sra_options_word(job->options.events), job->waited_us);
	text[length] = '\n';
	if (job_name(name, node, id) > 0)
		fd = openat(jobs, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0) {
		if (write(fd, text, sizeof(text)) != (ssize_t)sizeof(text))
			(void)unlinkat(jobs, name, 0);
		close(fd);
	}
	close(jobs);
}

void sra_job_forget(const struct sra_spool *spool, const char *node, uint32_t id)
{
	char name[NAME_SIZE * 2];
	int jobs = open_jobs(spool, 0);

	if (jobs < 0)
		return;
	if (job_name(name, node, id) > 0)
		(void)unlinkat(jobs, name, 0);
	close(jobs);
}
