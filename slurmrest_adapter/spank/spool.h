/* The spool directory: events that could not be delivered, the mark that says so, and what is known of jobs. */
#ifndef SRA_SPOOL_H
#define SRA_SPOOL_H

#include "config.h"
#include "options.h"

struct sra_spool {
	int fd;         /* the directory, or -1 */
	unsigned most;  /* files */
	int counted;    /* how many files there are is known, for this process */
	unsigned count;
	unsigned owed;  /* dropped, and not yet added to the file `dropped` */
};

/* What the prolog leaves for the job's steps and its epilog: srun inside a script gets no option of ours, and
 * the time that the job has lost to us is counted for all its processes on this node. */
struct sra_job {
	struct sra_options options;
	uint64_t waited_us;
};

/* Opens the directory, making it if need be. It must be root's, and nobody else may write into it. */
int sra_spool_open(struct sra_spool *spool, const char *directory, unsigned most, char why[SRA_WHY_MAX]);
void sra_spool_close(struct sra_spool *spool);

/* Stores one event as `name`, dropping and counting the oldest ones where the spool is full. */
int sra_spool_put(struct sra_spool *spool, const char *name, const char *signature, const char *body,
		  size_t length, char why[SRA_WHY_MAX]);
/* How many events this spool has dropped so far. */
uint64_t sra_spool_dropped(const struct sra_spool *spool);

/* Was the sidecar found to be away less than `seconds` ago? */
int sra_spool_is_down(const struct sra_spool *spool, unsigned seconds);
void sra_spool_mark_down(const struct sra_spool *spool);
void sra_spool_mark_up(const struct sra_spool *spool);

/* `node` tells the slurmd processes of one machine apart. Reading what is not there gives zeros. */
void sra_job_load(const struct sra_spool *spool, const char *node, uint32_t id, struct sra_job *job);
void sra_job_store(const struct sra_spool *spool, const char *node, uint32_t id, const struct sra_job *job);
void sra_job_forget(const struct sra_spool *spool, const char *node, uint32_t id);

#endif
