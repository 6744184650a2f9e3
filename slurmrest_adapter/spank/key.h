/* The key that proves where an event comes from. */
#ifndef SRA_KEY_H
#define SRA_KEY_H

#include "config.h"

/* Signs `body` as "sha256=<hex>". The key is read for this and wiped: slurmstepd forks the user's processes
 * between two events, and none of them may find it in its memory. 0, or -1 with the reason in `why`. */
int sra_key_sign(const char *file, const void *body, size_t length, char signature[SRA_SIGNATURE_LEN + 1],
		 char why[SRA_WHY_MAX]);

#endif
