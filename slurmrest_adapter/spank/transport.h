/* Events, posted by HTTP within a fixed time. */
#ifndef SRA_TRANSPORT_H
#define SRA_TRANSPORT_H

#include "config.h"

/* What is posted at most in one exchange. */
#define SRA_POSTS_MAX 2

struct sra_post {
	const char *body;
	size_t length;
	const char *signature;
	int status; /* of the answer, 100 to 599; -1 if there was none */
};

/* Posts all of them over one connection, one behind the other, and fills in how each was answered. Returns how
 * many were, the first ones; where that is not all, the reason is in `why`. Takes no longer than `limit_us`
 * microseconds, leaves no descriptor and raises no signal. */
unsigned sra_exchange(const struct sra_endpoint *to, struct sra_post *posts, unsigned count, uint64_t limit_us,
		      char why[SRA_WHY_MAX]);

#endif
