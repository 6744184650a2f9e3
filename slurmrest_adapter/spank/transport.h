/* One event, posted by HTTP within a fixed time. */
#ifndef SRA_TRANSPORT_H
#define SRA_TRANSPORT_H

#include "config.h"

/* Posts `body` and returns the answer's status (100 to 599), or -1 with the reason in `why` if there was none
 * before `limit_us` microseconds were over. Leaves no descriptor and raises no signal. */
int sra_post(const struct sra_endpoint *to, const char *body, size_t length, const char *signature,
	     uint64_t limit_us, char why[SRA_WHY_MAX]);

#endif
