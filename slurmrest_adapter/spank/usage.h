/* What a step has used, from the kernel. */
#ifndef SRA_USAGE_H
#define SRA_USAGE_H

#include "sra.h"

#include <sys/types.h>

struct sra_usage {
	char memory_peak[SRA_PATH_MAX]; /* files of the step's control group; empty: there is none */
	char cpu[SRA_PATH_MAX];
	int version; /* of control groups */
	int has_peak, has_cpu;
	uint64_t peak_bytes, cpu_us;
};

/* Finds the control group of the step from the text of a task's /proc/PID/cgroup, below `root` (/sys/fs/cgroup). */
void sra_usage_parse(struct sra_usage *usage, const char *text, const char *root, uint32_t job);
/* The same from a task's pid. */
void sra_usage_find(struct sra_usage *usage, pid_t task, uint32_t job);
/* Reads what the kernel counts now; the last good reading is kept, since the group goes before the step does.
 * Without a control group: what wait() has told of the processes that ended (their sum of CPU time, the peak
 * of the largest one). */
void sra_usage_read(struct sra_usage *usage);

#endif
