/* --pod-uid and --pod-events. */
#ifndef SRA_OPTIONS_H
#define SRA_OPTIONS_H

#include "sra.h"

enum sra_events { SRA_UNSAID, SRA_ALL, SRA_ENDS, SRA_NONE };

struct sra_options {
	char pod[SRA_NAME_MAX + 1]; /* empty: none */
	enum sra_events events;
};

/* Each takes an option's value. 0, or -1 for one that is dropped, with a line in the log. */
int sra_options_pod(struct sra_options *options, const char *value);
int sra_options_events(struct sra_options *options, const char *value);

/* What `step` leaves unsaid is taken from `job`. */
void sra_options_merge(struct sra_options *step, const struct sra_options *job);

/* Is anything to be reported under these options? */
int sra_options_report(const struct sra_options *options, int report_all);

/* Does this event belong to what is reported? Those that end something do always. */
int sra_options_wants(const struct sra_options *options, int ends);

/* "all", "ends", "none", or "" for what was not said. */
const char *sra_options_word(enum sra_events events);

/* Offer both options; in srun, sbatch, salloc and slurmstepd. Their values go into `options`. */
void sra_options_register(spank_t spank, struct sra_options *options);

/* Take away the variables by which sbatch hands the options on to srun: the prolog has told the node. */
void sra_options_hide(spank_t spank);

/* Read both in a prolog or epilog. */
void sra_options_ask(spank_t spank, struct sra_options *options);

#endif
