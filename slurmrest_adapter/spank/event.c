#include "event.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 2, 3))) static void put(struct sra_event *event, const char *format, ...)
{
	size_t room = sizeof(event->text) - event->length;
	va_list args;
	int wanted;

	va_start(args, format);
	wanted = vsnprintf(event->text + event->length, room, format, args);
	va_end(args);
	if (wanted < 0 || (size_t)wanted >= room)
		event->full = 1;
	else
		event->length += (size_t)wanted;
}

static void put_key(struct sra_event *event, const char *key)
{
	put(event, "%s\"%s\":", event->length > 1 ? "," : "", key);
}

void sra_event_begin(struct sra_event *event)
{
	event->length = 0;
	event->full = 0;
	put(event, "{");
}

void sra_event_text(struct sra_event *event, const char *key, const char *value)
{
	put_key(event, key);
	put(event, "\"");
	for (const char *c = value; *c && !event->full; c++) {
		/* No name that Slurm gives has other characters; JSON must be well-formed all the same. */
		if (*c < ' ' || *c > '~')
			put(event, "?");
		else if (*c == '"' || *c == '\\')
			put(event, "\\%c", *c);
		else
			put(event, "%c", *c);
	}
	put(event, "\"");
}

void sra_event_number(struct sra_event *event, const char *key, int64_t value)
{
	put_key(event, key);
	put(event, "%" PRId64, value);
}

void sra_event_seconds(struct sra_event *event, const char *key, uint64_t microseconds)
{
	put_key(event, key);
	/* Not %f: slurmstepd's locale may write a comma. */
	put(event, "%" PRIu64 ".%06" PRIu64, microseconds / 1000000u, microseconds % 1000000u);
}

void sra_event_gpus(struct sra_event *event, const struct sra_gpus *gpus)
{
	if (!gpus->known)
		return;
	put_key(event, "gpus");
	put(event, "[");
	for (unsigned i = 0; i < gpus->count; i++)
		put(event, "%s%u", i ? "," : "", gpus->index[i]);
	put(event, "]");
}

int sra_event_end(struct sra_event *event)
{
	put(event, "}");
	return event->full ? -1 : 0;
}

/* Reads digits, at most 9999, and moves on; -1 if there are none or too many. */
static int index_at(const char **text)
{
	int value = 0, digits = 0;

	for (; **text >= '0' && **text <= '9'; (*text)++, digits++) {
		if (digits == 4)
			return -1;
		value = value * 10 + (**text - '0');
	}
	return digits ? value : -1;
}

void sra_gpus_parse(const char *text, struct sra_gpus *gpus)
{
	memset(gpus, 0, sizeof(*gpus));
	while (*text) {
		int first = index_at(&text), last = first;

		if (first < 0)
			return;
		if (*text == '-') {
			text++;
			last = index_at(&text);
		}
		if (last < first)
			return;
		for (int i = first; i <= last; i++) {
			if (gpus->count == SRA_GPUS_MAX)
				return;
			gpus->index[gpus->count++] = (unsigned)i;
		}
		if (*text == ',' && text[1])
			text++;
		else if (*text)
			return;
	}
	gpus->known = 1;
}
