/* Words, numbers and the clock. */
#include "sra.h"

#include <string.h>
#include <time.h>

uint64_t sra_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

char *sra_printable(const char *from, char *to, size_t size)
{
	size_t i = 0;

	for (; from[i] && i + 1 < size; i++)
		to[i] = (from[i] >= ' ' && from[i] <= '~') ? from[i] : '?';
	to[i] = '\0';
	return to;
}

int sra_is_word(const char *text, const char *more, size_t most)
{
	size_t i = 0;

	for (; text[i]; i++) {
		char c = text[i];

		if (i == most)
			return 0;
		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr(more, c)))
			return 0;
	}
	return i > 0;
}

int sra_number(const char *text, uint64_t most, uint64_t *value)
{
	uint64_t sum = 0;

	if (!*text)
		return -1;
	for (; *text; text++) {
		if (*text < '0' || *text > '9')
			return -1;
		if (sum > (most - (uint64_t)(*text - '0')) / 10u)
			return -1;
		sum = sum * 10u + (uint64_t)(*text - '0');
	}
	*value = sum;
	return 0;
}
