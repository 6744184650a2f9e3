/* One event as JSON, in a buffer of fixed size. */
#ifndef SRA_EVENT_H
#define SRA_EVENT_H

#include "sra.h"

struct sra_event {
	char text[SRA_EVENT_MAX];
	size_t length;
	int full; /* something did not fit, and the event is unusable */
};

struct sra_gpus {
	int known; /* 0: nobody knows; then nothing is said of them */
	unsigned count;
	unsigned index[SRA_GPUS_MAX];
};

void sra_event_begin(struct sra_event *event);
void sra_event_text(struct sra_event *event, const char *key, const char *value);
void sra_event_number(struct sra_event *event, const char *key, int64_t value);
/* Seconds with six decimals. */
void sra_event_seconds(struct sra_event *event, const char *key, uint64_t microseconds);
void sra_event_gpus(struct sra_event *event, const struct sra_gpus *gpus);
/* Closes it. 0, or -1 if it did not fit. */
int sra_event_end(struct sra_event *event);

/* Reads indices such as "0,2-3". Anything else, such as UUIDs, is not known. */
void sra_gpus_parse(const char *text, struct sra_gpus *gpus);

#endif
