/* The values are a user's: anything may stand in them. */
#include "options.h"

#include <string.h>

static const char *const WORD[] = { "", "all", "ends", "none" };
static struct sra_options *given;

static void dropped(const char *option, const char *value)
{
	char shown[48];

	sra_error("--%s: not usable, ignored: \"%s\"%s", option, sra_printable(value, shown, sizeof(shown)),
		  strlen(value) >= sizeof(shown) ? " (cut)" : "");
}

int sra_options_pod(struct sra_options *options, const char *value)
{
	if (!sra_is_word(value, "-", SRA_NAME_MAX)) {
		dropped("pod-uid", value);
		return -1;
	}
	memcpy(options->pod, value, strlen(value) + 1);
	return 0;
}

int sra_options_events(struct sra_options *options, const char *value)
{
	for (int i = SRA_ALL; i <= SRA_NONE; i++)
		if (!strcmp(value, WORD[i])) {
			options->events = (enum sra_events)i;
			return 0;
		}
	dropped("pod-events", value);
	return -1;
}

void sra_options_merge(struct sra_options *step, const struct sra_options *job)
{
	if (!step->pod[0])
		memcpy(step->pod, job->pod, sizeof(step->pod));
	if (step->events == SRA_UNSAID)
		step->events = job->events;
}

int sra_options_report(const struct sra_options *options, int report_all)
{
	if (options->events == SRA_NONE)
		return 0;
	return report_all || options->pod[0] || options->events != SRA_UNSAID;
}

int sra_options_wants(const struct sra_options *options, int ends)
{
	return ends || options->events != SRA_ENDS;
}

const char *sra_options_word(enum sra_events events)
{
	return WORD[events];
}

/* A callback that fails would fail the job, so none does. */
static int take(int which, const char *value, int remote)
{
	(void)remote;
	if (value && given)
		(void)(which ? sra_options_events(given, value) : sra_options_pod(given, value));
	return 0;
}

static struct spank_option OPTION[] = {
	{ (char *)"pod-uid", (char *)"UID", (char *)"report this job's starts and ends as those of a pod", 1, 0, take },
	{ (char *)"pod-events", (char *)"all|ends|none", (char *)"what of this job is reported", 1, 1, take },
};

void sra_options_register(spank_t spank, struct sra_options *options)
{
	given = options;
	for (size_t i = 0; i < sizeof(OPTION) / sizeof(OPTION[0]); i++)
		if (spank_option_register(spank, &OPTION[i]) != ESPANK_SUCCESS)
			sra_error("the option --%s cannot be offered", OPTION[i].name);
}

void sra_options_hide(spank_t spank)
{
	(void)spank_unsetenv(spank, "SLURM_SPANK__SLURM_SPANK_OPTION_" SRA_NAME "_pod_uid");
	(void)spank_unsetenv(spank, "SLURM_SPANK__SLURM_SPANK_OPTION_" SRA_NAME "_pod_events");
}

void sra_options_ask(spank_t spank, struct sra_options *options)
{
	given = options;
	for (size_t i = 0; i < sizeof(OPTION) / sizeof(OPTION[0]); i++) {
		char *value = NULL;

		if (spank_option_getopt(spank, &OPTION[i], &value) == ESPANK_SUCCESS)
			take(OPTION[i].val, value, 1);
	}
}
