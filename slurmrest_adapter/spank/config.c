/* Arguments of the line in plugstack.conf: one `key=value` each. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#define DEFAULT_SPOOL "/var/spool/slurmrest-adapter"
#define DEFAULT_SPOOL_MAX 10000
#define DEFAULT_TIMEOUT_MS 60
#define DEFAULT_RETRY_S 5

enum { CLUSTER, EVENTS, KEY_FILE, SPOOL, SPOOL_MAX, REPORT, TIMEOUT, RETRY, KEYS };
static const char *const KEY[KEYS] = { "cluster",   "events", "key_file",   "spool",
				       "spool_max", "report", "timeout_ms", "retry_s" };

static int bad(char why[SRA_WHY_MAX], const char *key, const char *what, const char *value)
{
	char shown[64];

	snprintf(why, SRA_WHY_MAX, "%s: %s: \"%s\"", key, what, sra_printable(value, shown, sizeof(shown)));
	return -1;
}

static int path(char why[SRA_WHY_MAX], const char *key, const char *value, char to[SRA_PATH_MAX])
{
	size_t length = strlen(value);

	/* Room is kept for what is put behind a spool's name. */
	if (value[0] != '/' || length > SRA_PATH_MAX - 96)
		return bad(why, key, "not an absolute path of at most 160 bytes", value);
	memcpy(to, value, length + 1);
	return 0;
}

static int number(char why[SRA_WHY_MAX], const char *key, const char *value, unsigned least, unsigned most,
		  unsigned *to)
{
	uint64_t found;
	char what[64];

	if (sra_number(value, most, &found) || found < least) {
		snprintf(what, sizeof(what), "not a number from %u to %u", least, most);
		return bad(why, key, what, value);
	}
	*to = (unsigned)found;
	return 0;
}

static int take(struct sra_config *config, int key, const char *value, char why[SRA_WHY_MAX])
{
	switch (key) {
	case CLUSTER:
		if (!sra_is_word(value, "_.-", SRA_NAME_MAX))
			return bad(why, KEY[key], "not a cluster's name", value);
		memcpy(config->cluster, value, strlen(value) + 1);
		return 0;
	case EVENTS:
		return sra_endpoint_parse(value, "/etc/hosts", &config->events, why);
	case KEY_FILE:
		return path(why, KEY[key], value, config->key_file);
	case SPOOL:
		return path(why, KEY[key], value, config->spool);
	case SPOOL_MAX:
		return number(why, KEY[key], value, 1, 1000000, &config->spool_max);
	case REPORT:
		config->report_all = !strcmp(value, "all");
		if (!config->report_all && strcmp(value, "option") != 0)
			return bad(why, KEY[key], "neither option nor all", value);
		return 0;
	case TIMEOUT:
		return number(why, KEY[key], value, 1, 150, &config->timeout_ms);
	default:
		return number(why, KEY[key], value, 1, 3600, &config->retry_s);
	}
}

int sra_config_parse(int ac, char *const *av, struct sra_config *config, char why[SRA_WHY_MAX])
{
	unsigned seen = 0;

	memset(config, 0, sizeof(*config));
	memcpy(config->spool, DEFAULT_SPOOL, sizeof(DEFAULT_SPOOL));
	config->spool_max = DEFAULT_SPOOL_MAX;
	config->timeout_ms = DEFAULT_TIMEOUT_MS;
	config->retry_s = DEFAULT_RETRY_S;
	for (int i = 0; i < ac; i++) {
		const char *value = strchr(av[i], '=');
		int key = 0;

		for (; value && key < KEYS; key++)
			if (strlen(KEY[key]) == (size_t)(value - av[i]) &&
			    !memcmp(KEY[key], av[i], (size_t)(value - av[i])))
				break;
		if (!value || key == KEYS)
			return bad(why, "plugstack.conf", "no such argument", av[i]);
		if (seen & 1u << key)
			return bad(why, KEY[key], "given twice", av[i]);
		seen |= 1u << key;
		if (take(config, key, value + 1, why))
			return -1;
	}
	for (int key = CLUSTER; key <= KEY_FILE; key++)
		if (!(seen & 1u << key)) {
			snprintf(why, SRA_WHY_MAX, "%s: missing", KEY[key]);
			return -1;
		}
	return 0;
}
