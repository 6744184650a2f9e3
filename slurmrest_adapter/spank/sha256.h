/* SHA-256 (FIPS 180-4) and HMAC (RFC 2104), so that the plugin brings no library into slurmd. */
#ifndef SRA_SHA256_H
#define SRA_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SRA_SHA256_LEN 32

void sra_sha256(const void *data, size_t length, uint8_t digest[SRA_SHA256_LEN]);

/* Leaves nothing of the key on the stack. */
void sra_hmac_sha256(const void *key, size_t key_length, const void *data, size_t length,
		     uint8_t digest[SRA_SHA256_LEN]);

#endif
