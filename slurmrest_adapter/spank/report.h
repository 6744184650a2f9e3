/* One process' reports about one job. */
#ifndef SRA_REPORT_H
#define SRA_REPORT_H

#include "config.h"
#include "event.h"
#include "spool.h"
#include "transport.h"

/* When an event goes: at once, or together with this process's next one, which is known to follow soon. A
 * connection and an answer for both are half the time. */
enum sra_when { SRA_NOW, SRA_HELD };

/* An event as it will be posted or spooled. */
struct sra_signed {
	struct sra_event event;
	char signature[SRA_SIGNATURE_LEN + 1];
	uint64_t time_us; /* since 1970 */
	unsigned sequence;
};

struct sra_report {
	struct sra_config config;
	struct sra_spool spool;
	struct sra_job job; /* its options, and the time it has lost */
	uint32_t id, uid, array_job, array_task;
	int has_array;
	char step[16]; /* empty in prolog and epilog */
	char node[SRA_NAME_MAX + 1];
	struct sra_gpus gpus;
	char stream[17];
	unsigned sequence, delivered, spooled, lost;
	uint64_t spent_us; /* in this process, in all callbacks so far */
	uint64_t entered;  /* when this callback began */
	uint64_t live_us;  /* of it, for talking to the sidecar */
	uint64_t unsaved_us; /* waited, and not yet told the job's other processes */
	int told_spool, gave_up;
	struct sra_signed waiting[SRA_POSTS_MAX]; /* oldest first */
	unsigned waits;
};

/* Reads and checks the configuration. 0, or -1: then nothing is to be done, and the log says why if `loud`. */
int sra_report_configure(struct sra_config *config, int ac, char **av, int loud);

/* Begins and ends what a callback does: the spool is open in between, and the time is counted. */
void sra_report_enter(struct sra_report *report, uint64_t began);
void sra_report_leave(struct sra_report *report);

/* Reports `name`. `more` adds what belongs to this event alone; may be NULL. */
void sra_report_send(struct sra_report *report, enum sra_when when, const char *name,
		     void (*more)(struct sra_event *event, const void *what), const void *what);

/* One line of the log, for those who look for it. */
void sra_report_sum_up(const struct sra_report *report);

#endif
