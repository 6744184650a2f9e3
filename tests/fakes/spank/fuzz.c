/* Throws mutated input at all that reads text in the plugin: the line in plugstack.conf, options, lists of GPUs,
 * control groups. Built with the address and undefined behaviour sanitizers, which end it at the first fault;
 * beside that, what a parser accepts is checked.
 *
 *   fuzz SECONDS SEED          prints how many inputs it tried
 *   fuzz hmac                  reads lines "KEY DATA" in hexadecimal ("-": empty) and prints each one's HMAC */
#include "config.h"
#include "event.h"
#include "options.h"
#include "sha256.h"
#include "usage.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LONGEST 5000

/* What options.c and report.c expect of Slurm; what they log must be one line. */
static void check_line(const char *format, va_list values)
{
	char text[1024];

	vsnprintf(text, sizeof(text), format, values);
	if (strncmp(text, SRA_NAME ": ", sizeof(SRA_NAME) + 1) != 0 || strchr(text, '\n'))
		abort();
}

void slurm_error(const char *format, ...)
{
	va_list values;

	va_start(values, format);
	check_line(format, values);
	va_end(values);
}

spank_err_t spank_option_register(spank_t spank, struct spank_option *option)
{
	(void)spank;
	(void)option;
	return ESPANK_SUCCESS;
}

spank_err_t spank_option_getopt(spank_t spank, struct spank_option *option, char **value)
{
	(void)spank;
	(void)option;
	(void)value;
	return ESPANK_ERROR;
}

spank_err_t spank_unsetenv(spank_t spank, const char *name)
{
	(void)spank;
	(void)name;
	return ESPANK_SUCCESS;
}

static const char *const SEEDS[] = {
	"cluster=lab", "events=http://127.0.0.1:8322/spank/v1/events", "events=http://[::1]:80/a", "spool_max=10000",
	"events=unix:///run/sra.sock", "events=http://localhost:1", "key_file=/etc/slurm/sra-spank.key",
	"spool=/var/spool/x", "report=all", "report=option", "timeout_ms=60", "retry_s=30", "http://h:99999/",
	"36f4536d-118a-4b17-857b-00cf2d5626db", "all", "ends", "none", "0,1,2-5", "0-127", "GPU-3fa8", "9999-9999",
	"0::/system.slice/slurmstepd.scope/job_12/step_batch/user/task_0\n",
	"4:memory:/slurm/uid_1/job_12/step_0/task_0\n3:cpu,cpuacct:/slurm/uid_1/job_12/step_0\n",
	"127.0.0.1 localhost\n::1 ip6-localhost # %s%n\n10.0.0.5 head head.example\n",
};

static uint64_t state;

static uint32_t dice(uint32_t sides)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 16) % sides;
}

/* A few edits of a seed; the copy is exactly as long as it is, so that a read past its end is seen. */
static char *mutate(void)
{
	static const char BITS[] = "\n\0=:/[]%-,.0123456789 \t\\\"'\x7f\x80\xff";
	static char work[LONGEST * 2];
	const char *seed = SEEDS[dice(sizeof(SEEDS) / sizeof(SEEDS[0]))];
	size_t length = strlen(seed);
	char *made;

	memcpy(work, seed, length + 1);
	for (uint32_t edits = dice(6); edits; edits--) {
		size_t at = dice((uint32_t)length + 1), run = 1 + dice(dice(10) ? 4 : LONGEST / 2);

		switch (dice(4)) {
		case 0: /* insert a run of one byte */
			if (length + run > LONGEST)
				break;
			memmove(work + at + run, work + at, length - at + 1);
			memset(work + at, BITS[dice(sizeof(BITS) - 1)], run);
			length += run;
			break;
		case 1: /* cut */
			run = run > length - at ? length - at : run;
			memmove(work + at, work + at + run, length - at - run + 1);
			length -= run;
			break;
		case 2: /* change */
			if (at < length)
				work[at] = (char)dice(256);
			break;
		default: /* splice another seed in */
			seed = SEEDS[dice(sizeof(SEEDS) / sizeof(SEEDS[0]))];
			run = strlen(seed);
			if (length + run > LONGEST)
				break;
			memmove(work + at + run, work + at, length - at + 1);
			memcpy(work + at, seed, run);
			length += run;
		}
	}
	length = strlen(work);
	made = malloc(length + 1);
	if (!made)
		abort();
	memcpy(made, work, length + 1);
	return made;
}

static void check(int fine)
{
	if (!fine)
		abort();
}

static void whole_line(const char *why)
{
	check(strlen(why) < SRA_WHY_MAX && !strchr(why, '\n'));
}

static void configurations(void)
{
	char *av[12], why[SRA_WHY_MAX] = "";
	struct sra_config config;
	int ac = (int)dice(12);

	for (int i = 0; i < ac; i++)
		av[i] = mutate();
	if (dice(2) && ac > 2) { /* half of them have all that is needed */
		for (int i = 0; i < 3; i++) {
			free(av[i]);
			av[i] = strdup(SEEDS[i == 2 ? 6 : i]);
		}
	}
	if (sra_config_parse(ac, av, &config, why)) {
		check(why[0] != '\0');
		whole_line(why);
	} else {
		check(sra_is_word(config.cluster, "_.-", SRA_NAME_MAX) && config.key_file[0] == '/');
		check(config.timeout_ms >= 1 && config.timeout_ms <= 150 && config.spool_max >= 1);
		check(config.events.length > 0 && config.events.path[0] == '/' && !strpbrk(config.events.path, " \r\n"));
		check(!strpbrk(config.events.host, " \r\n"));
	}
	while (ac)
		free(av[--ac]);
}

static void endpoints(const char *hosts)
{
	char *url = mutate(), *text = mutate(), why[SRA_WHY_MAX] = "";
	struct sra_endpoint endpoint;
	FILE *file = fopen(hosts, "w");

	if (file) {
		fputs(text, file);
		fclose(file);
	}
	if (sra_endpoint_parse(url, hosts, &endpoint, why))
		whole_line(why);
	free(url);
	free(text);
}

static void values(void)
{
	struct sra_options options = { .events = SRA_UNSAID };
	char *text = mutate();
	struct sra_event event;
	struct sra_usage usage;
	struct sra_gpus gpus;

	if (!sra_options_pod(&options, text))
		check(strlen(text) <= SRA_NAME_MAX && !strcmp(options.pod, text));
	else
		check(!options.pod[0]);
	check(sra_options_events(&options, text) == 0 || options.events == SRA_UNSAID);
	sra_gpus_parse(text, &gpus);
	check(gpus.count <= SRA_GPUS_MAX);
	sra_usage_parse(&usage, text, "/sys/fs/cgroup", 12);
	check(!strstr(usage.cpu, "/..") && !strstr(usage.memory_peak, "/.."));
	sra_event_begin(&event);
	sra_event_text(&event, "text", text);
	sra_event_gpus(&event, &gpus);
	if (!sra_event_end(&event))
		check(event.length < SRA_EVENT_MAX && strlen(event.text) == event.length && !strchr(event.text, '\n'));
	else
		check(strlen(text) > SRA_EVENT_MAX / 4);
	free(text);
}

static size_t from_hex(const char *text, uint8_t *to)
{
	size_t length = 0;
	unsigned byte;

	while (sscanf(text + 2 * length, "%2x", &byte) == 1)
		to[length++] = (uint8_t)byte;
	return length;
}

static int hmacs(void)
{
	static char key_text[20000], data_text[20000];
	static uint8_t key[10000], data[10000];
	uint8_t digest[SRA_SHA256_LEN];

	while (scanf("%19999s %19999s", key_text, data_text) == 2) {
		size_t key_length = from_hex(key_text, key), length = from_hex(data_text, data);

		sra_hmac_sha256(key, key_length, data, length, digest);
		for (int i = 0; i < SRA_SHA256_LEN; i++)
			printf("%02x", digest[i]);
		printf("\n");
	}
	return 0;
}

int main(int argc, char **argv)
{
	char hosts[] = "/tmp/sra-fuzz-hosts-XXXXXX";
	uint64_t tried = 0;
	time_t end;
	int fd;

	if (argc == 2 && !strcmp(argv[1], "hmac"))
		return hmacs();
	if (argc != 3 || (fd = mkstemp(hosts)) < 0)
		return 2;
	fclose(fdopen(fd, "w"));
	end = time(NULL) + atoi(argv[1]);
	state = strtoull(argv[2], NULL, 10) * 2654435769u + 88172645463325252u;
	for (; time(NULL) < end; tried++) {
		configurations();
		values();
		if (tried % 16 == 0)
			endpoints(hosts);
	}
	remove(hosts);
	printf("%llu inputs\n", (unsigned long long)tried);
	return 0;
}
