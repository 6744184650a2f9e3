#include "sha256.h"

#include <string.h>

#define BLOCK 64

struct state {
	uint32_t h[8];
	uint8_t block[BLOCK];
	size_t used; /* bytes in the block */
	uint64_t length;
};

static const uint32_t K[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turned(uint32_t word, unsigned by)
{
	return word >> by | word << (32 - by);
}

static void compress(struct state *s)
{
	uint32_t w[64], v[8];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 |
		       (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
	for (int i = 16; i < 64; i++) {
		uint32_t a = w[i - 15], b = w[i - 2];

		w[i] = w[i - 16] + (turned(a, 7) ^ turned(a, 18) ^ a >> 3) + w[i - 7] +
		       (turned(b, 17) ^ turned(b, 19) ^ b >> 10);
	}
	memcpy(v, s->h, sizeof(v));
	for (int i = 0; i < 64; i++) {
		uint32_t one = v[7] + (turned(v[4], 6) ^ turned(v[4], 11) ^ turned(v[4], 25)) +
			       ((v[4] & v[5]) ^ (~v[4] & v[6])) + K[i] + w[i];
		uint32_t two = (turned(v[0], 2) ^ turned(v[0], 13) ^ turned(v[0], 22)) +
			       ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 7 * sizeof(v[0]));
		v[4] += one;
		v[0] = one + two;
	}
	for (int i = 0; i < 8; i++)
		s->h[i] += v[i];
	explicit_bzero(w, sizeof(w));
	explicit_bzero(v, sizeof(v));
}

static void begin(struct state *s)
{
	static const uint32_t H[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
				       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

	memcpy(s->h, H, sizeof(H));
	s->used = 0;
	s->length = 0;
}

static void more(struct state *s, const void *data, size_t length)
{
	const uint8_t *from = data;

	s->length += length;
	while (length) {
		size_t part = BLOCK - s->used < length ? BLOCK - s->used : length;

		memcpy(s->block + s->used, from, part);
		from += part;
		length -= part;
		s->used += part;
		if (s->used == BLOCK) {
			compress(s);
			s->used = 0;
		}
	}
}

static void finish(struct state *s, uint8_t digest[SRA_SHA256_LEN])
{
	uint64_t bits = s->length * 8;
	uint8_t tail[8];

	more(s, "\x80", 1);
	while (s->used != BLOCK - sizeof(tail))
		more(s, "", 1);
	for (int i = 0; i < 8; i++)
		tail[i] = (uint8_t)(bits >> (56 - 8 * i));
	more(s, tail, sizeof(tail));
	for (int i = 0; i < SRA_SHA256_LEN; i++)
		digest[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
	explicit_bzero(s, sizeof(*s));
}

void sra_sha256(const void *data, size_t length, uint8_t digest[SRA_SHA256_LEN])
{
	struct state s;

	begin(&s);
	more(&s, data, length);
	finish(&s, digest);
}

void sra_hmac_sha256(const void *key, size_t key_length, const void *data, size_t length,
		     uint8_t digest[SRA_SHA256_LEN])
{
	uint8_t pad[BLOCK] = { 0 }, inner[SRA_SHA256_LEN];
	struct state s;

	if (key_length > BLOCK)
		sra_sha256(key, key_length, pad);
	else
		memcpy(pad, key, key_length);
	for (int i = 0; i < BLOCK; i++)
		pad[i] ^= 0x36;
	begin(&s);
	more(&s, pad, BLOCK);
	more(&s, data, length);
	finish(&s, inner);
	for (int i = 0; i < BLOCK; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	begin(&s);
	more(&s, pad, BLOCK);
	more(&s, inner, sizeof(inner));
	finish(&s, digest);
	explicit_bzero(pad, sizeof(pad));
	explicit_bzero(inner, sizeof(inner));
}
